"""Poplar's calls, as ports of C++ programs make them: names, orders, constants, files, devices."""

import io
import re

import numpy as np
import pytest

import tremula as tr
from tests.runtime.codelets import Blend
from tests.runtime.programs import blend_set, loaded, new_graph, variable
from tremula import FLOAT, HALF, INT, errors
from tremula import poplar as p
from tremula.poplibs import popops
from tremula.poplibs.registry import PoplibsError


class Scale(tr.Vertex):
    """y = x · factor + the sum of terms."""

    x: tr.Input[tr.float32]
    terms: tr.Input[tr.Vector[tr.float32]]
    factor: tr.Input[tr.float32]
    y: tr.Output[tr.float32]

    def compute(self):
        total = self.x * self.factor
        for term in self.terms:
            total = total + term
        self.y = total

    def cycles(v, chip):
        return 10


@pytest.mark.parametrize("factor", [3, 3.0, True, np.float32(3), np.int64(3), np.array(3.0)])
@pytest.mark.parametrize("when", ["given", "connected", "mapped later"])
def test_numbers_for_inputs_become_constants(factor, when):
    """A number for a scalar Input, or a list for a vector, is a constant on the vertex's tile."""
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [], name, 2.0) for name in "xy")
    cs = graph.add_compute_set("cs")
    fields = {"x": x, "terms": [1.0, 2], "y": y}
    if when == "connected":
        vertex = graph.add_vertex(cs, Scale, fields, tile=2)
        graph.connect(vertex["factor"], factor)
    else:
        vertex = graph.add_vertex(cs, Scale, fields | {"factor": factor})
        graph.set_tile_mapping(vertex, 2)
    for constant in vertex.table.constants[vertex.row]:
        assert graph.get_tile_mapping(constant).tile.tolist() == [2]
    engine = loaded(graph, p.Execute(cs))
    engine.run()
    assert engine.read_tensor("y") == float(factor) * 2 + 3


@pytest.mark.parametrize("factor", [2.0, [1, 2, 3]])
def test_numbers_for_inputs_of_many_vertices(factor):
    """add_vertices takes one number for all vertices, or one for each."""
    graph = new_graph()
    x = variable(graph, FLOAT, [3], "x", [1, 2, 3])
    y = variable(graph, FLOAT, [3], "y")
    terms = variable(graph, FLOAT, [3, 1], "terms", 0)
    cs = graph.add_compute_set("cs")
    fields = {"x": x, "y": y, "terms": terms, "factor": factor}
    graph.add_vertices(cs, Scale, fields, tiles=[0, 1, 2])
    engine = loaded(graph, p.Execute(cs))
    engine.run()
    assert np.array_equal(engine.read_tensor("y"), np.array([1, 2, 3]) * factor)


def test_only_inputs_take_numbers():
    """What a vertex writes is a tensor."""
    graph = new_graph()
    x = variable(graph, FLOAT, [], "x")
    with pytest.raises(errors.GraphConnectionError, match=r"Scale\.y got float, expected a Tensor"):
        graph.add_vertex(graph.add_compute_set(), Scale, {"x": x, "y": 1.0}, tile=0)


def _programs():
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in "xy")
    flag = variable(graph, INT, [], "flag", 1)
    cs, body = blend_set(graph, x, y, 0.0), p.Sequence()
    function = graph.add_function(body)
    return {
        "Sequence": lambda n: p.Sequence([body, body], n),
        "Sequence of programs": lambda n: p.Sequence(body, body, n),
        "Execute": lambda n: p.Execute(cs, n),
        "Execute with a result": lambda n: p.Execute(cs, flag, n),
        "Copy": lambda n: p.Copy(x, y, n),
        "Copy not outlined": lambda n: p.Copy(x, y, False, n),
        "Repeat": lambda n: p.Repeat(2, body, n),
        "RepeatWhileTrue": lambda n: p.RepeatWhileTrue(body, flag, body, n),
        "RepeatWhileFalse": lambda n: p.RepeatWhileFalse(body, flag, body, n),
        "Loop": lambda n: p.Loop(body, n),
        "If": lambda n: p.If(flag, body, body, n),
        "Switch": lambda n: p.Switch(flag, {1: body}, body, n),
        "Switch without default": lambda n: p.Switch(flag, {1: body}, n),
        "Call": lambda n: p.Call(function, n),
        "Sync": lambda n: p.Sync(p.SyncType.INTERNAL, n),
        "Block": lambda n: p.Block(body, n),
        "PrintTensor": lambda n: p.PrintTensor("title", x, n),
        "PrintTensor without title": lambda n: p.PrintTensor(x, n),
        "WriteUndef": lambda n: p.WriteUndef(x, n),
        "AssumeEqualAcrossReplicas": lambda n: p.AssumeEqualAcrossReplicas(x, n),
        "CrossReplicaCopy": lambda n: p.CrossReplicaCopy(x, y, {0: 0}, n),
        "Abort": lambda n: p.Abort("message", n),
        "AbortOnCondition": lambda n: p.AbortOnCondition(flag, "message", n),
        "ErrorProgram": lambda n: p.ErrorProgram("message", x, n),
    }


@pytest.mark.parametrize("kind", _programs())
def test_the_last_argument_of_a_program_may_be_its_name(kind):
    """As in Poplar, where it is the debug context; messages and titles stay what they are."""
    program = _programs()[kind]("a name")
    assert program.name == "a name"
    assert getattr(program, "message", "message") == "message"
    assert getattr(program, "title", "") in ("", "title")


def test_poplars_orders_of_arguments():
    """Where types tell them apart, arguments may come in Poplar's order."""
    graph = new_graph()
    x = graph.add_variable(FLOAT, [64], p.VariableMappingMethod.LINEAR, "x")
    assert graph.get_tile_mapping(x).tile.tolist()
    assert graph.clone(HALF, x, "copy").type == HALF
    assert graph.clone(x, "copy").type == FLOAT
    metadata = graph.add_variable(p.QUARTER_METADATA, [], "m", mapping=0)
    assert graph.add_variable(p.QUARTER, [4], metadata, "q").metadata is not None
    graph.create_host_write("x", x, True)
    graph.create_host_read("x", x, False)
    options = {"bufferingDepth": "3", "splitLimit": 0}
    mode = p.ReplicatedStreamMode.BROADCAST
    assert graph.add_host_to_device_fifo("in", FLOAT, 4, mode, options).buffering_depth == 3
    graph.add_remote_buffer("remote", FLOAT, 4, 2, True, True)


def test_reductions_share_compute_sets():
    """A list of compute sets in place of a sequence gets the stages; the user executes them."""
    graph = tr.Graph(tr.IPUModel(tiles_per_ipu=8).create_device())
    sets: list[p.ComputeSet] = []
    values = np.random.default_rng(0).normal(size=(2, 30, 40)).astype(np.float32)
    for i in range(2):
        x = graph.add_variable(FLOAT, [30, 40], f"x{i}", mapping="linear")
        graph.set_initial_value(x, values[i])
        out = variable(graph, FLOAT, [40], f"out{i}")
        popops.reduce_with_output(graph, x, out, [0], "ADD", sets)
    assert len(sets) <= 3
    engine = loaded(graph, p.Sequence([p.Execute(cs) for cs in sets]))
    engine.run()
    for i in range(2):
        np.testing.assert_allclose(engine.read_tensor(f"out{i}"), values[i].sum(0), rtol=1e-4)
    with pytest.raises(PoplibsError, match="more than compute sets"):
        popops.reduce_with_output(graph, out, out, [], "ADD", sets)


def test_execution_profiling_can_be_disabled_and_reset():
    """Reports count what runs while profiling is enabled; cycle counters go on."""
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in "xy")
    engine = loaded(graph, p.Execute(blend_set(graph, x, y, 0.0)))

    def runs():
        report = engine.report()
        return int(report.steps.executed[0]), report.tiles.compute.tolist(), report.has_run

    engine.run()
    once, clock = runs(), engine.clock.total_cycles
    engine.disable_execution_profiling()
    engine.run()
    assert runs() == once
    assert engine.clock.total_cycles == 2 * clock
    assert engine.report().total_cycles == clock
    engine.enable_execution_profiling()
    engine.run()
    assert runs()[0] == 2
    engine.reset_execution_profiling()
    assert runs()[0] == 0
    assert not runs()[2]
    engine.run()
    assert runs() == once


def test_graphs_as_dot(tmp_path):
    """Vertices, compute sets and variables, with an arrow for each field in its direction."""
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in 'x"')
    first, second = blend_set(graph, x, y, 0.0), blend_set(graph, y, x, 1.0)
    graph.output_vertex_graph(tmp_path / "vertices.dot")
    text = (tmp_path / "vertices.dot").read_text()
    assert text.startswith("digraph vertices {")
    assert text.count(f"{Blend.__name__}\\ntile 0") == 2
    assert re.search(r'x0 -> v0_0_0 \[label="x"\];', text)
    assert re.search(r'v0_0_0 -> x1 \[label="y"\];', text)
    assert r'label="\"\nfloat [4]"' in text
    drawn = io.StringIO()
    graph.output_compute_graph(drawn, p.Repeat(2, p.Sequence(p.Execute(second), p.Execute(first))))
    assert "c0 -> c1 [style=dashed];" in drawn.getvalue()
    assert "x1 -> c0;" in drawn.getvalue()


def test_devices():
    """Devices of all sizes, numbered as Poplar does; the first that attaches is used."""
    manager = tr.DeviceManager.create_device_manager()
    assert manager.n_devices == 16 + 8 + 4 + 2 + 1
    assert [d.id for d in manager.get_devices(n_ipus=4)] == [24, 25, 26, 27]
    assert manager.get_child_device_ids(25, 1) == [4, 5, 6, 7]
    assert manager.get_devices(n_ipus=32) == []
    device = next(d for d in manager.get_devices(tr.TargetType.IPU, 2) if d.attach())
    assert device.is_attached
    assert device.target.n_ipus == 2
    device.detach()
    assert not device.is_attached
    assert manager.get_device(16).target.n_ipus == 2
    assert manager.acquire_available_device(8).is_attached
    with pytest.raises(errors.InvalidMachineModel, match="device 99 does not exist"):
        manager.get_device(99)
