"""A forecast walks a program on the modelled clock: the same report as a run, without one."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.errors import MissingProfileData
from tremula.poplibs import popops
from tremula.runtime.forecast import forecast


def small_graph() -> tuple[tr.Device, tr.Graph, tr.Tensor, tr.Sequence]:
    device = tr.IPUModel("bow", n_ipus=2, tiles_per_ipu=4).create_device()
    graph = tr.Graph(device)
    x = graph.add_variable(tr.FLOAT, [100], "x", mapping="linear")
    graph.set_initial_value(x, 1.0)
    body = tr.Sequence()
    popops.add_in_place(graph, x, x, body)
    return device, graph, x, body


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
