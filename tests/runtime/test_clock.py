"""The modelled clock, the seeds of workers, floating point exceptions."""

import numpy as np
import pytest

from tests.runtime.codelets import Countdown
from tests.runtime.programs import blend_set, loaded, new_graph, variable
from tremula import (
    BOOL,
    FLOAT,
    INT,
    Execute,
    RepeatWhileTrue,
    Sequence,
    Sync,
    SyncType,
    cycle_count,
    cycle_stamp,
    errors,
    get_hw_seeds,
    set_floating_point_behaviour,
    set_hw_seeds,
)


def read_counter(engine, handle):
    low, high = engine.read_tensor(handle).tolist()
    return low + (high << 32)


def test_cycle_counts_are_exact_for_loops():
    """cycle_count grows by the same amount per iteration, also when data decides how many."""
    graph = new_graph()
    n = variable(graph, INT, [], "n", 0)
    go = variable(graph, BOOL, [], "go", False)
    cs = graph.add_compute_set()
    graph.add_vertex(cs, Countdown, {"n": n, "go": go, "inverted": 0}, tile=0)
    body = Sequence(Sync(SyncType.INTERNAL))
    counted = Sequence(RepeatWhileTrue(Execute(cs), go, body))
    graph.create_host_read("count", cycle_count(graph, counted, 0))
    engine = loaded(graph, counted)
    counts = []
    for start in (2, 3, 4, 10):
        engine.write_tensor("n", start)
        engine.run()
        counts.append(read_counter(engine, "count"))
    steps = np.diff(counts)
    assert steps[0] == steps[1] > 0
    assert steps[2] == 6 * steps[0]


def test_cycle_stamps_ascend_and_go_on_between_runs():
    """Stamps read one clock that starts at load and never goes back."""
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in "xy")
    program = Sequence()
    graph.create_host_read("before", cycle_stamp(graph, program, 1))
    program.add(Execute(blend_set(graph, x, y, 0.0)))
    graph.create_host_read("after", cycle_stamp(graph, program, 1))
    engine = loaded(graph, program)
    stamps = []
    for _ in range(2):
        engine.run()
        stamps += [read_counter(engine, "before"), read_counter(engine, "after")]
    assert stamps == sorted(set(stamps))
    assert stamps[3] - stamps[2] == stamps[1] - stamps[0]
    assert engine.clock.total_cycles >= stamps[-1]
    engine.load()
    assert engine.clock.total_cycles == 0


def test_hw_seeds_round_trip():
    """Seeds read from the machine can be set again; each worker has its own."""
    graph = new_graph(tiles=2)
    save = Sequence()
    seeds = get_hw_seeds(graph, save)
    graph.create_host_read("seeds", seeds)
    graph.create_host_write("seeds", seeds)
    restore = Sequence()
    set_hw_seeds(graph, seeds, restore)
    engine = loaded(graph, [save, restore])
    engine.run(0)
    first = engine.read_tensor("seeds")
    assert first.shape == (2, 6, 4)
    assert len(np.unique(first.reshape(-1, 4), axis=0)) == 12
    engine.write_tensor("seeds", first[::-1] + 1)
    engine.run(1)
    engine.run(0)
    assert np.array_equal(engine.read_tensor("seeds"), first[::-1] + 1)


@pytest.mark.parametrize(
    ("value", "flags", "text"),
    [
        (np.nan, {}, "floating-point invalid operation: field Blend.y wrote nan"),
        (3e38, {}, "floating-point overflow or division by zero: field Blend.y wrote inf"),
        (np.nan, {"inv": False}, None),
        (3e38, {"div0": False, "oflo": False}, None),
        (np.inf, {}, None),
        (1.0, {}, None),
    ],
)
def test_floating_point_exceptions(value, flags, text):
    """NaN and overflow stop the program if their exception is on; an infinite operand may pass."""
    graph = new_graph()
    x = variable(graph, FLOAT, [3], "x", [1, value, 1])
    y = variable(graph, FLOAT, [3], "y")
    program = Sequence()
    set_floating_point_behaviour(graph, program, **flags)
    program.add(Execute(blend_set(graph, x, y, 3e38)))
    engine = loaded(graph, program)
    if text is None:
        engine.run()
        return
    with pytest.raises(errors.RuntimeFailure) as caught:
        engine.run()
    assert f"{text} to element 1 of variable 'y' in compute set 'blend'." in str(caught.value)


def test_the_option_turns_floating_point_exceptions_on():
    """debug.floatPointOpException stops on NaN without any program step."""
    graph = new_graph()
    x = variable(graph, FLOAT, [1], "x", np.nan)
    y = variable(graph, FLOAT, [1], "y")
    engine = loaded(
        graph, Execute(blend_set(graph, x, y, 0.0)), **{"debug.floatPointOpException": True}
    )
    with pytest.raises(errors.RuntimeFailure, match="invalid operation"):
        engine.run()
