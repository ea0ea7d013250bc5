"""A forecast walks a program on the modelled clock: the same report as a run, without one."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.errors import MissingProfileData
from tremula.poplibs import popops
from tremula.runtime.clock import Clock
from tremula.runtime.forecast import forecast, foretell_transfers


def small_graph() -> tuple[tr.Device, tr.Graph, tr.Tensor, tr.Sequence]:
    device = tr.IPUModel("bow", n_ipus=2, tiles_per_ipu=4).create_device()
    graph = tr.Graph(device)
    x = graph.add_variable(tr.FLOAT, [100], "x", mapping="linear")
    graph.set_initial_value(x, 1.0)
    body = tr.Sequence()
    popops.add_in_place(graph, x, x, body)
    return device, graph, x, body


@pytest.mark.slow
def test_a_forecast_equals_what_a_run_reports():
    """Loops, empty loops and calls take the cycles and executions that running them takes."""
    device, graph, _, body = small_graph()
    function = graph.add_function(body)
    loops = tr.Repeat(7, tr.Sequence(body, tr.Repeat(0, body), tr.Repeat(3, tr.Call(function))))
    engine = tr.Engine(graph, [tr.Sequence(body, loops)])
    foretold = forecast(engine.executable)
    engine.load(device).run()
    ran = engine.report()
    assert foretold.total_cycles == ran.total_cycles
    assert np.array_equal(foretold.steps.executed, ran.steps.executed)


def test_what_depends_on_data_cannot_be_foretold():
    """A branch on a value is an error that says to run the program."""
    _, graph, x, body = small_graph()
    flag = popops.cast(graph, x[0], tr.INT, body)
    engine = tr.Engine(graph, [tr.Sequence(body, tr.If(flag, body, body))])
    with pytest.raises(MissingProfileData, match="run the program on tiles"):
        forecast(engine.executable)


def test_transfers_of_alike_iterations():
    """Each iteration of a loop has its transfers, as far apart as iterations are long."""
    _, graph, x, body = small_graph()
    stream = graph.add_host_to_device_fifo("in", tr.FLOAT, x.n_elems)
    loop = tr.Repeat(6, tr.Sequence(tr.Copy(stream, x), body))
    executable = tr.Engine(graph, [loop]).executable
    result = foretell_transfers(executable, Clock(executable))
    assert len(result.steps) == 6
    assert (result.end > result.begin).all()
    assert len(set(np.diff(result.begin).tolist())) == 1
    assert result.end[-1] < result.total_cycles == forecast(executable).total_cycles


def test_transfers_behind_a_condition():
    """A loop that data ends counts once each time it is met."""
    _, graph, x, body = small_graph()
    stream = graph.add_host_to_device_fifo("in", tr.FLOAT, x.n_elems)
    test = tr.Sequence()
    flag = popops.cast(graph, x[0], tr.INT, test)
    inner = tr.RepeatWhileTrue(test, flag, tr.Sequence(tr.Copy(stream, x), body))
    executable = tr.Engine(graph, [tr.Repeat(3, inner)]).executable
    assert len(foretell_transfers(executable, Clock(executable)).steps) == 3
