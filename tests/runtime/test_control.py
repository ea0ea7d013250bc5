"""Control flow: aborts, switches, functions, loops, stopping, threads."""

import threading

import numpy as np
import pytest

from tests.runtime.codelets import Blend
from tests.runtime.programs import adder, loaded, new_graph, variable
from tremula import (
    BOOL,
    FLOAT,
    INT,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    Abort,
    AbortOnCondition,
    Call,
    Copy,
    ErrorProgram,
    Execute,
    Loop,
    Repeat,
    Sequence,
    Switch,
    errors,
)


def test_aborts_raise_with_their_message():
    """Abort, AbortOnCondition and ErrorProgram stop the run with their text and line."""
    graph = new_graph()
    flag = variable(graph, BOOL, [], "flag", False)
    x = variable(graph, INT, [3], "x", [1, 2, 3])
    control = variable(graph, INT, [], "control", 5)
    programs = {
        "plain": Abort(),
        "told": Abort("out of luck"),
        "maybe": Sequence(AbortOnCondition(flag, "flag is set"), Copy(x[0], x[1])),
        "values": ErrorProgram("bad values:", x),
        "switch": Switch.with_bounds_checking(control, [(1, Sequence()), (2, Sequence())]),
    }
    engine = loaded(graph, programs)
    engine.run("maybe")
    engine.write_tensor("flag", True)
    expected = {
        "plain": "the program was aborted",
        "told": "out of luck",
        "maybe": "flag is set",
        "values": "bad values: [1 1 3]",
        "switch": "Switch: no case for the control value; cases are [1, 2]",
    }
    for name, text in expected.items():
        with pytest.raises(errors.ApplicationRuntimeError) as caught:
            engine.run(name)
        assert text in str(caught.value)
        assert "test_control.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("type", "value", "case"),
    [
        (UNSIGNED_CHAR, 200, 200),
        (INT, -3, -3),
        (UNSIGNED_INT, 2**32 - 1, 2**32 - 1),
        (BOOL, True, 1),
    ],
)
def test_switch_on_any_type(type, value, case):
    """Cases match controls of signed and unsigned types, at the ends of their ranges."""
    graph = new_graph()
    control = variable(graph, type, [], "control", value)
    x = variable(graph, INT, [], "x", 0)
    one, two = (graph.add_constant(INT, [], v) for v in (1, 2))
    loaded_engine = loaded(graph, Switch(control, {case: Copy(one, x), 0: Copy(two, x)}))
    loaded_engine.run()
    assert loaded_engine.read_tensor("x") == 1


def test_functions_share_code_and_nest():
    """A function runs wherever it is called, also from functions, and its code exists once."""
    graph = new_graph()
    total = variable(graph, INT, [], "total", 0)
    one = graph.add_constant(INT, [1], 1)
    inner = graph.add_function(adder(graph, total, one), "inner")
    outer = graph.add_function(Sequence(Call(inner), Repeat(2, Call(inner))), "outer")
    engine = loaded(graph, Sequence(Call(outer), Call(inner), Repeat(2, Call(outer))))
    engine.run()
    assert engine.read_tensor("total") == 3 + 1 + 2 * 3
    assert sum(step.compute_set >= 0 for step in engine.executable.steps) == 1


def test_loop_ends_when_told():
    """Loop runs until another thread calls stop(), and the program then goes on."""
    graph = new_graph()
    total = variable(graph, INT, [], "total", 0)
    done = variable(graph, BOOL, [], "done", False)
    one = graph.add_constant(INT, [1], 1)
    yes = graph.add_constant(BOOL, [], True)
    engine = loaded(graph, Sequence(Loop(adder(graph, total, one)), Copy(yes, done)))
    runner = threading.Thread(target=engine.run)
    runner.start()
    while runner.is_alive() and engine.read_tensor("total") == 0:
        pass  # wait for the loop itself, however long compiling takes
    engine.stop()
    runner.join(timeout=60)
    assert not runner.is_alive()
    assert engine.read_tensor("done")
    assert engine.read_tensor("total") > 0


def test_a_callback_can_stop_a_loop():
    """stop() from a callback ends the loop after the body that called it."""
    graph = new_graph()
    x = variable(graph, INT, [1], "x", 0)
    seen = []
    engine = loaded(graph, Loop(Copy(x, graph.add_device_to_host_fifo("out", INT, 1))))

    def count(_):
        seen.append(1)
        if len(seen) == 5:
            engine.stop()

    engine.connect_stream_to_callback("out", count)
    engine.run()
    assert len(seen) == 5


def test_stop_before_run_is_harmless():
    """stop() without a running program does nothing."""
    graph = new_graph()
    total = variable(graph, INT, [], "total", 0)
    engine = loaded(graph, adder(graph, total, graph.add_constant(INT, [1], 1)))
    engine.stop()
    engine.run()
    assert engine.read_tensor("total") == 1


def test_long_loops_hear_interrupts(monkeypatch):
    """Ctrl-C ends even a loop with nothing in it: native code comes back regularly."""
    from tremula.runtime.interpreter import loop, record

    graph = new_graph()
    engine = loaded(graph, Repeat(10**15, Sequence()))
    native = loop.interpret
    returns = []

    def interrupted(*arguments):
        reason = native(*arguments)
        returns.append(reason)
        if len(returns) == 20:
            raise KeyboardInterrupt
        return reason

    monkeypatch.setattr(loop, "interpret", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert set(returns) == {record.BUDGET_SPENT}


@pytest.mark.parametrize("n_threads", [1, 2])
def test_threads_change_nothing(n_threads):
    """Large tables and large copies, which are split over threads, give the same values."""
    graph = new_graph(tiles=64)
    x, y, z = (graph.add_variable(FLOAT, [256, 512], name, mapping="linear") for name in "xyz")
    start = np.arange(256 * 512, dtype=np.float32).reshape(256, 512) % 1021
    graph.set_initial_value(x, start)
    graph.create_host_read("z", z)
    cs = graph.add_compute_set("blend")
    fields = {"x": x, "y": y, "shift": 1.0}
    graph.add_vertices(cs, Blend, fields, tiles=np.arange(256) % 64)
    engine = loaded(
        graph,
        Sequence(Execute(cs), Copy(y.transpose(), z)),
        **{"tremula.threads": n_threads},
    )
    engine.run()
    assert np.array_equal(engine.read_tensor("z").ravel(), (start / 2 + 1).T.ravel())


@pytest.mark.parametrize(("cycles", "n_chunks"), [(1000, 1), (100_000, 2)])
def test_tables_that_compute_much_on_little_are_split_over_threads(cycles, n_chunks):
    """Modelled cycles decide where fields have few elements; values stay."""
    graph = new_graph(tiles=4)
    x, y = (graph.add_variable(FLOAT, [8, 2], name, mapping="linear") for name in "xy")
    graph.set_initial_value(x, np.arange(16.0))
    graph.create_host_read("y", y)
    cs = graph.add_compute_set("blend")
    graph.add_vertices(cs, Blend, {"x": x, "y": y, "shift": 1.0}, tiles=np.arange(8) % 4)
    graph.register_perf_estimator("Blend", lambda v, chip: np.full(v.n_rows, cycles))
    engine = loaded(graph, Execute(cs), **{"tremula.threads": 2})
    assert engine.loaded.tables.n_chunks.tolist() == [n_chunks]
    engine.run()
    assert np.array_equal(engine.read_tensor("y").ravel(), np.arange(16) / 2 + 1)
