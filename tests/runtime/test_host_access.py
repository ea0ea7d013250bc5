"""The engine and the host: reads, writes, programs by name, what load sets back."""

import numpy as np
import pytest

from tests.runtime.codelets import Mark
from tests.runtime.programs import ONE_THREAD, blend_set, loaded, new_graph, variable
from tremula import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    UNSIGNED_CHAR,
    Copy,
    Engine,
    Execute,
    Sequence,
    compile_graph,
    errors,
)


def test_what_the_host_writes_it_reads():
    """write_tensor and read_tensor go through any view, in its own order."""
    graph = new_graph()
    x = graph.add_variable(FLOAT, [2, 3], "x", mapping=1)
    graph.create_host_write("in", x.transpose())
    graph.create_host_read("out", x)
    graph.create_host_read("repeated", x[0].expand([0]).broadcast(2))
    engine = loaded(graph, Sequence())
    engine.write_tensor("in", np.arange(6).reshape(3, 2))
    assert engine.read_tensor("out").tolist() == [[0, 2, 4], [1, 3, 5]]
    assert engine.read_tensor("repeated").tolist() == [[0, 2, 4], [0, 2, 4]]


def test_what_is_read_is_a_copy():
    """Changing an array that was read does not change the device."""
    graph = new_graph()
    variable(graph, FLOAT, [2], "x", 1)
    engine = loaded(graph, Sequence())
    engine.read_tensor("x")[:] = 9
    assert engine.read_tensor("x").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("handle", "data", "text"),
    [
        ("y", [1.0], "no host write 'y'.\n  try: known names: x"),
        ("x", [1.0], "host write 'x' takes 4 elements, got 1 (shape [1])."),
        ("x", ["a"] * 4, "host write 'x' has type FLOAT, got <U1."),
    ],
)
def test_wrong_writes_are_refused(handle, data, text):
    """Unknown handles, sizes and types that do not fit are errors that say so."""
    graph = new_graph()
    variable(graph, FLOAT, [4], "x")
    engine = loaded(graph, Sequence())
    with pytest.raises(errors.StreamConnectionError) as caught:
        engine.write_tensor(handle, data)
    assert text in str(caught.value)


def test_nothing_works_before_load():
    """Reading, writing and running need load() first, and the error says so."""
    graph = new_graph()
    variable(graph, FLOAT, [1], "x")
    engine = Engine(graph, Sequence(), ONE_THREAD)
    for act in (
        engine.run,
        lambda: engine.read_tensor("x"),
        lambda: engine.write_tensor("x", [1.0]),
    ):
        with pytest.raises(errors.TensorIoStateError, match="the engine is not loaded"):
            act()


def test_programs_by_index_and_name():
    """Programs run by position or name; unknown ones are errors."""
    graph = new_graph()
    x = variable(graph, INT, [], "x", 0)
    one, two = (graph.add_constant(INT, [], v) for v in (1, 2))
    engine = loaded(graph, {"first": Copy(one, x), "second": Copy(two, x)})
    engine.run(1)
    assert engine.read_tensor("x") == 2
    engine.run("first")
    assert engine.read_tensor("x") == 1
    with pytest.raises(errors.ControlProgramError, match="did you mean 'second'"):
        engine.run("secnd")
    with pytest.raises(errors.ControlProgramError, match="program 2 does not exist: there are 2"):
        engine.run(2)


def test_state_persists_until_load():
    """Variables and vertex state survive run; load brings back initial values."""
    graph = new_graph()
    flags = variable(graph, BOOL, [3], "flags", True)
    data = variable(graph, UNSIGNED_CHAR, [3], "data", [1, 2, 3])
    cs = graph.add_compute_set()
    graph.add_vertex(cs, Mark, {"bytes": data, "flags": flags, "calls": 0}, tile=0)
    engine = loaded(graph, Execute(cs))
    seen = []
    for _ in range(2):
        engine.run()
        seen.append(engine.read_tensor("flags").tolist())
    engine.load()
    seen.append(engine.read_tensor("flags").tolist())
    engine.run()
    seen.append(engine.read_tensor("flags").tolist())
    first, second = [False, True, True], [False, False, True]
    assert seen == [first, second, [True, True, True], first]


def test_initial_values_and_constants():
    """Initial values may be set through views, the last one wins; constants hold theirs."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2, 3], "x", 1)
    graph.set_initial_value(x[:, 1], [7, 8])
    graph.create_host_read("c", graph.add_constant(HALF, [2, 2], [[1, 2], [3, 4]]))
    graph.create_host_read("zero", graph.add_variable(FLOAT, [2], mapping=0))
    engine = loaded(graph, Sequence())
    assert engine.read_tensor("x").tolist() == [[1, 7, 1], [1, 8, 1]]
    assert engine.read_tensor("c").tolist() == [[1, 2], [3, 4]]
    assert engine.read_tensor("c").dtype == np.float16


def test_a_compiled_executable_runs():
    """Engine takes an Executable in place of a graph, several times independently."""
    graph = new_graph()
    x = variable(graph, FLOAT, [4], "x", 2)
    executable = compile_graph(graph, Execute(blend_set(graph, graph.clone(x), x, 1.0)))
    first, second = Engine(executable).load(), Engine(executable).load()
    first.run()
    assert first.read_tensor("x").tolist() == [1, 1, 1, 1]
    assert second.read_tensor("x").tolist() == [2, 2, 2, 2]


def test_progress_is_reported():
    """The progress function sees each pass and ends at the total."""
    graph = new_graph()
    seen = []
    Engine(graph, Sequence(), progress=lambda step, total: seen.append((step, total)))
    assert [step for step, _ in seen] == list(range(1, seen[-1][1] + 1))
