"""Devices, targets and the smaller public names, each used once as a user would."""

import numpy as np
import pytest

import tremula as tr
from tests.runtime.codelets import Countdown
from tremula import FLOAT, INT


def small_graph(tiles: int = 2) -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=tiles).create_device())


def test_devices_of_a_size_are_listed() -> None:
    """A Pod16 has 16 single devices, 4 of four IPUs, and none of 32."""
    manager = tr.DeviceManager()
    counts = [len(manager.get_devices(n_ipus=n)) for n in (1, 4, 32)]
    assert counts == [16, 4, 0]
    device = manager.get_devices(n_ipus=4)[0]
    assert device.attach()
    device.detach()
    assert device.target.n_tiles == 4 * 1472


def test_a_virtual_device_has_fewer_tiles() -> None:
    """create_virtual_device keeps the chip and uses part of its tiles."""
    device = tr.IPUModel("gc200").create_device().create_virtual_device(10)
    assert device.target.n_tiles == 10


def test_the_cpu_device_is_one_tile_with_one_worker() -> None:
    """Codelets can be tried on it without thinking of tiles."""
    target = tr.Device.create_cpu_device().target
    assert (target.n_tiles, target.n_worker_contexts) == (1, 1)


def test_target_answers_what_libraries_ask() -> None:
    """Sizes and widths of types, as PopLibs needs them."""
    target = tr.IPUModel("ipu2").create_target()
    assert target.data_path_width_bits == 64
    assert (target.type_size("half"), target.vector_width("half")) == (2, 4)
    assert (target.arch, target.exchange_bytes_per_cycle) == ("ipu2", 4.0)


def test_has_codelet_knows_what_was_added() -> None:
    """A class is known after add_codelets, by its name."""
    graph = small_graph()
    assert not graph.has_codelet("Countdown")
    assert graph.add_codelets(Countdown) == ["Countdown"]
    assert graph.has_codelet("Countdown")


def test_load_and_run_does_both() -> None:
    """One call on a fresh engine runs the program."""
    graph = small_graph()
    a = graph.add_variable(FLOAT, [2], "a", mapping=0)
    b = graph.add_variable(FLOAT, [2], "b", mapping=1)
    graph.set_initial_value(a, [3.0, 4.0])
    graph.create_host_read("b", b)
    engine = tr.Engine(graph, tr.Copy(a, b))
    engine.load_and_run()
    assert engine.read_tensor("b").tolist() == [3.0, 4.0]


def test_function_code_can_come_from_remote_memory() -> None:
    """Copying a function buffer in costs time and changes no data."""
    graph = small_graph()
    x = graph.add_variable(INT, [], "x", mapping=0)
    one = graph.add_constant(INT, [], 1)
    function = graph.add_function(tr.Copy(one, x))
    buffer = graph.add_function_buffer(function)
    graph.create_host_read("x", x)
    engine = tr.Engine(graph, tr.Sequence([tr.Copy(buffer, function), tr.Call(function)])).load()
    engine.run()
    assert engine.read_tensor("x") == 1
    assert engine.report().steps.cycles[0] > 0


def test_an_unreachable_default_still_runs_its_cases() -> None:
    """Switch.with_unreachable_default promises there is always a case."""
    graph = small_graph()
    x = graph.add_variable(INT, [], "x", mapping=0)
    control = graph.add_constant(INT, [], 7)
    seven = graph.add_constant(INT, [], 70)
    graph.create_host_read("x", x)
    switch = tr.Switch.with_unreachable_default(control).add(7, tr.Copy(seven, x))
    engine = tr.Engine(graph, switch).load()
    engine.run()
    assert engine.read_tensor("x") == 70


def test_an_empty_sequence_says_so() -> None:
    """is_empty is true until something is added."""
    sequence = tr.Sequence()
    assert sequence.is_empty
    sequence.add(tr.Sync(tr.SyncType.INTERNAL))
    assert not sequence.is_empty


def test_reports_say_what_is_placeholder_and_what_is_not_counted_yet() -> None:
    """A codelet whose cycles depend on its data has no cost before it ran."""
    graph = small_graph(1)
    graph.add_codelets(
        """
        #include <poplar/Vertex.hpp>
        class Twice : public poplar::Vertex {
        public:
          poplar::InOut<float> x;
          bool compute() { *x = *x + *x; return true; }
        };
        """
    )
    x = graph.add_variable(FLOAT, [], "x", mapping=0)
    twice = graph.add_compute_set("twice")
    graph.add_vertex(twice, "Twice", {"x": x}, tile=0)
    engine = tr.Engine(graph, tr.Execute(twice))
    with pytest.raises(tr.errors.MissingPerfEstimate, match="has not run yet"):
        engine.report().cycles_of_step(0)
    engine.load().run()
    report = engine.report()
    assert report.cycles_of_step(0) > 0
    assert report.placeholder_share == 1.0
    assert np.isclose(report.total_seconds, report.total_cycles / report.chip.clock_hz)
