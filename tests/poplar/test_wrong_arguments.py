"""Wrong arguments of a graph are errors that say what to do, and leave the graph as it was."""

import numpy as np
import pytest

import tremula as tr
from tremula import FLOAT, INT, Input, Output, Vector, Vertex, float32
from tremula.base.errors import PoplarError
from tremula.hardware import chip, load_chip, single

SHAPES = [
    [3.5], "12", b"12", [2**62], [2**64], [2**40, 2**40], [-1], [None], ["3"], [float("nan")],
    [float("inf")], 3.5, None, {3: 1}, {3}, [[3]], np.array([3.5]), np.float32(3),
]  # fmt: skip
NUMBERS = [3.5, "1", None, float("nan"), [1, "x"], 2**62, -9]


class Scale(Vertex):
    x: Input[Vector[float32]]
    factor: Input[float32]
    bias: float32
    out: Output[Vector[float32]]

    def compute(self):
        for i in range(len(self.x)):
            self.out[i] = self.x[i] * self.factor + self.bias


@pytest.fixture
def graph():
    return tr.Graph(tr.IPUModel("ipu2", tiles_per_ipu=4).create_device())


@pytest.fixture
def x(graph):
    return graph.add_variable(FLOAT, [6, 4], "x", mapping="linear")


@pytest.mark.parametrize("shape", SHAPES, ids=repr)
def test_shapes(graph, x, shape):
    """What is not a list of whole numbers, or larger than all memory, is not a shape."""
    for call in (
        lambda: graph.add_variable(FLOAT, shape, "v"),
        lambda: graph.add_constant(FLOAT, shape, 1.0),
        lambda: x.reshape(shape),
    ):
        with pytest.raises(PoplarError):
            call()
    assert len(graph.state.variables) == 1


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers(graph, x, number):
    """Dimensions, tiles, counts and sizes are whole numbers in range."""
    calls = [
        lambda: x.slice(0, 1, number),
        lambda: x.dim_shuffle(number),
        lambda: x.dim_shuffle([number, 0]),
        lambda: x.expand(number),
        lambda: x.squeeze([number]),
        lambda: graph.set_tile_mapping(x, number),
        lambda: graph.add_variable(FLOAT, [2], "v", mapping=number or "none"),
        lambda: graph.add_vertex(graph.add_compute_set(), Scale, tile=number or "none"),
    ]
    if number != 2**62:
        calls += [
            lambda: x.broadcast(number),
            lambda: graph.add_host_to_device_fifo("s", FLOAT, number),
            lambda: graph.add_remote_buffer("b", FLOAT, 4, number),
        ]
    for call in calls:
        with pytest.raises(PoplarError):
            call()
    assert len(graph.state.variables) == 1


@pytest.mark.parametrize("number", [10**11, 2**70, 3.5, "4", -1, float("nan"), float("inf")])
def test_machines(number, tmp_path):
    """Chips and systems of impossible sizes are errors, in Python and in files."""
    file = tmp_path / "chip.toml"
    file.write_text(f"base = 'bow'\nn_tiles = {number!r}\n")
    for call in (
        lambda: chip("bow").replace(n_tiles=number),
        lambda: chip("bow").replace(n_workers=number),
        lambda: single("bow", number),
        lambda: tr.IPUModel("bow", n_ipus=number).create_device(),
        lambda: tr.IPUModel("bow", tiles_per_ipu=number).create_device(),
        lambda: load_chip(file),
    ):
        with pytest.raises(PoplarError):
            call()


def test_a_failed_call_leaves_the_graph_usable(graph, x):
    """After every kind of failure the program that was begun compiles and runs."""
    out = graph.add_variable(FLOAT, [4], "out", mapping=1)
    wrong = graph.add_variable(INT, [4], "wrong", mapping=1)
    compute_set = graph.add_compute_set("scale")
    fields = {"x": x[0], "factor": 2.0, "bias": 1.0, "out": out}
    failures = [
        lambda: graph.add_variable(FLOAT, [4], "v", mapping=99),
        lambda: graph.add_variable(FLOAT, [4], "v", mapping="lineer"),
        lambda: graph.add_constant(FLOAT, [3], [1, 2]),
        lambda: graph.add_constant(FLOAT, [3], 1.0, mapping=99),
        lambda: graph.add_vertex(compute_set, Scale, {**fields, "y": out}, tile=1),
        lambda: graph.add_vertex(compute_set, Scale, {**fields, "out": wrong}, tile=1),
        lambda: graph.add_vertex(compute_set, Scale, {**fields, "out": "out"}, tile=1),
        lambda: graph.add_vertex(compute_set, Scale, {**fields, "bias": "one"}, tile=1),
        lambda: graph.add_vertex(compute_set, Scale, {**fields, "x": x}, tile=1),
        lambda: graph.add_vertices(compute_set, Scale, {**fields, "y": 1}, tiles=[1]),
        lambda: graph.set_tile_mapping(x, [[(0, 99)]]),
    ]
    for failure in failures:
        with pytest.raises(PoplarError):
            failure()
    graph.add_vertex(compute_set, Scale, fields, tile=1)
    graph.create_host_write("x", x)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, tr.Execute(compute_set)).load()
    engine.write_tensor("x", np.arange(24, dtype=np.float32).reshape(6, 4))
    engine.run()
    assert engine.read_tensor("out").tolist() == [1.0, 3.0, 5.0, 7.0]
    assert graph.n_vertices == 1
