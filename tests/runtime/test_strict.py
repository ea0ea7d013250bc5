"""Strict mode: what a forgiving model lets pass and hardware does not, is found and named."""

import os

import numpy as np
import pytest

from tests.runtime.codelets import Blend, Collect, Mark
from tremula import (
    BOOL,
    FLOAT,
    INT,
    UNSIGNED_CHAR,
    Engine,
    Execute,
    Graph,
    Input,
    IPUModel,
    Output,
    Sequence,
    Vector,
    Vertex,
    errors,
    float32,
    int32,
)

# Codelets leave arrays on purpose: with bounds checks (`make test-sanitized`) Numba ends them.
beyond_bounds = pytest.mark.skipif(
    os.environ.get("NUMBA_BOUNDSCHECK") == "1", reason="Numba checks bounds before strict mode does"
)


class Reacher(Vertex):
    """Writes y, and `beyond` elements behind its end."""

    x: Input[Vector[float32]]
    y: Output[Vector[float32]]
    beyond: int32

    def compute(self):
        for i in range(len(self.y) + self.beyond):
            self.y[i] = float32(len(self.x))

    def cycles(v, chip):
        return 1


class Forgetful(Vertex):
    """Writes only the first `count` elements of y, to which it adds what y held if told to."""

    y: Output[Vector[float32]]
    count: int32
    adds: int32

    def compute(self):
        for i in range(self.count):
            if self.adds > 0:
                self.y[i] = self.y[i] + float32(1)
            else:
                self.y[i] = float32(7)

    def cycles(v, chip):
        return 1


class Peeker(Vertex):
    """y = the element `ahead` places behind the end of x."""

    x: Input[Vector[float32]]
    y: Output[float32]
    ahead: int32

    def compute(self):
        self.y = self.x[len(self.x) + self.ahead]

    def cycles(v, chip):
        return 1


@pytest.fixture
def graph():
    return Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())


def variable(graph, shape, name, value=None, type=FLOAT):
    tensor = graph.add_variable(type, shape, name, mapping=0)
    if value is not None:
        graph.set_initial_value(tensor, value)
    graph.create_host_read(name, tensor)
    return tensor


def engines(graph, program):
    """(forgiving, strict) engines, loaded."""
    return (
        Engine(graph, program, {"debug.strict": strict, "tremula.threads": 1}).load()
        for strict in (False, True)
    )


def assert_found(graph, program, *texts):
    """The program runs forgivingly, and strict mode refuses it with these texts."""
    forgiving, strict = engines(graph, program)
    forgiving.run()
    with pytest.raises(errors.StrictModeError) as caught:
        strict.run()
    for text in (*texts, "compute set 'cs'", "test_strict.py:", "try:"):
        assert text in str(caught.value)


@beyond_bounds
def test_writing_an_input_is_found(graph):
    """A vertex that writes what only an Input covers is refused, and the element is named."""
    x = variable(graph, [6], "x", 1)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Reacher, {"x": x[4:], "y": x[:3], "beyond": 2}, tile=0)
    assert_found(
        graph, Execute(cs), "a vertex wrote element 3 of variable 'x', which no Output or InOut"
    )


def test_an_input_cannot_even_be_assigned(graph):
    """A Python codelet that assigns to its own Input is refused when it is read."""

    class Assigner(Vertex):
        x: Input[Vector[float32]]

        def compute(self):
            self.x[0] = float32(1)

    with pytest.raises(
        errors.GraphObjectCreationError, match=r"writes 'self\.x', which is an Input"
    ):
        graph.add_codelets(Assigner)


@beyond_bounds
def test_writing_behind_a_variable_is_found(graph):
    """Memory that no field covers is watched, also behind the last element."""
    x, y = variable(graph, [2], "x", 1), variable(graph, [4], "y")
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Reacher, {"x": x, "y": y, "beyond": 1}, tile=0)
    assert_found(graph, Execute(cs), "a vertex wrote memory behind the end of variable 'y'")


@beyond_bounds
def test_order_dependence_is_found(graph):
    """Two vertices that write one element, one of them by accident, depend on their order."""
    x, y = variable(graph, [2], "x", 1), variable(graph, [4], "y")
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Reacher, {"x": x, "y": y[:2], "beyond": 1}, tile=0)
    graph.add_vertex(cs, Reacher, {"x": x[:1], "y": y[2:], "beyond": 0}, tile=1)
    assert_found(graph, Execute(cs), "element 2 of variable 'y' depends on the order of vertices")


@beyond_bounds
def test_order_dependence_between_codelets_is_found(graph):
    """Vertices of two codelets whose order matters are found."""
    x, y = variable(graph, [2], "x", 1), variable(graph, [4], "y")
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Reacher, {"x": x, "y": y[:2], "beyond": 1}, tile=0)
    graph.add_vertex(cs, Forgetful, {"y": y[2:], "count": 2, "adds": 0}, tile=1)
    assert_found(graph, Execute(cs), "element 2 of variable 'y' depends on the order of vertices")


def test_an_unwritten_output_is_found(graph):
    """An Output element that was not written is named."""
    y = variable(graph, [4], "y", 1)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Forgetful, {"y": y, "count": 3, "adds": 0}, tile=0)
    assert_found(graph, Execute(cs), "left element 3 of variable 'y' unwritten")


def test_an_unwritten_scattered_output_is_found(graph):
    """An unwritten element is named, too, if its field goes through scratch space."""
    y = variable(graph, [8], "y", 1)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Forgetful, {"y": y[::2], "count": 3, "adds": 0}, tile=0)
    assert_found(graph, Execute(cs), "unwritten")


def test_reading_an_output_is_found(graph):
    """A result that depends on what an Output held before is refused."""
    y = variable(graph, [4], "y", 1)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Forgetful, {"y": y, "count": 4, "adds": 1}, tile=0)
    assert_found(graph, Execute(cs), "variable 'y' depends on", "what an Output held before")


@beyond_bounds
def test_uninitialised_memory_is_poisoned(graph):
    """Variables without an initial value, and the memory between them, read as NaN."""
    x, y = variable(graph, [2], "x"), variable(graph, [2], "y")
    z = variable(graph, [2], "z", 3)
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Blend, {"x": x[:1], "y": y[:1], "shift": 1.0}, tile=0)
    graph.add_vertex(cs, Peeker, {"x": z, "y": y[1], "ahead": 1}, tile=0)
    forgiving, strict = engines(graph, Execute(cs))
    forgiving.run()
    assert forgiving.read_tensor("y").tolist() == [1, 0]
    strict.run()
    assert np.isnan(strict.read_tensor("y")).all()
    assert strict.read_tensor("z").tolist() == [3, 3]


def test_correct_programs_pass_with_equal_results(graph):
    """Strict mode runs a legal program, state and result flags included, to the same values."""
    x, y = variable(graph, [8], "x", np.arange(8)), variable(graph, [8], "y", 0)
    rows = variable(graph, [4], "rows", [1, 2, 3, 4], INT)
    total = variable(graph, [], "total", 0, INT)
    data = variable(graph, [3], "data", [1, 2, 3], UNSIGNED_CHAR)
    flags, result = variable(graph, [3], "flags", 0, BOOL), variable(graph, [], "result", 0, BOOL)
    cs = graph.add_compute_set("cs")
    for i in range(4):
        part = {"x": x[i : i + 2], "y": y[i::4], "shift": float(i)}
        graph.add_vertex(cs, Blend, part, tile=i)
    graph.add_vertex(cs, Collect, {"rows": [rows[::2], rows[1:]], "total": total}, tile=1)
    graph.add_vertex(cs, Mark, {"bytes": data, "flags": flags, "calls": 0}, tile=2)
    names = ("x", "y", "rows", "total", "data", "flags", "result")
    program = Sequence(Execute(cs, result), Execute(cs))
    results = []
    for engine in engines(graph, program):
        engine.run()
        results.append([engine.read_tensor(name).tolist() for name in names])
    assert results[0] == results[1]
    assert results[0][3] == 2 * (1 + 3 + 2 + 3 + 4)


def test_strict_mode_is_off_by_default(graph):
    """Without the option, memory starts as zeros and nothing is checked."""
    y = variable(graph, [4], "y")
    cs = graph.add_compute_set("cs")
    graph.add_vertex(cs, Forgetful, {"y": y, "count": 1, "adds": 0}, tile=0)
    engine = Engine(graph, Execute(cs)).load()
    engine.run()
    assert engine.read_tensor("y").tolist() == [7, 0, 0, 0]
