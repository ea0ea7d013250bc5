"""Poplar's calls, as ports of C++ programs make them: names, orders, constants, files, devices."""

import io
import json
import re
import zlib

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


# -- Poplar's own spellings ------------------------------------------------------------------------


def test_getters_can_be_called_by_poplars_names():
    """What is a property here is a method under Poplar's name, in both styles."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2, 3], "x")
    target = graph.get_target()
    assert target is graph.getTarget() is graph.target
    assert target.get_num_tiles() == target.getNumTiles() == target.n_tiles
    assert x.num_elements() == x.numElements() == 6
    assert x.element_type() is x.elementType() is FLOAT
    assert x.isContiguous()
    assert x.is_contiguous
    assert x.shapeToString() == "{2,3}"
    model = p.IPUModel()
    model.numIPUs = 2
    assert model.createDevice().getTarget().getNumIPUs() == 2
    assert p.DeviceManager().getNumDevices() == p.DeviceManager().n_devices


def test_a_program_in_poplars_spelling():
    """A port that keeps C++'s names builds and runs."""
    graph = new_graph()
    x = graph.addVariable(FLOAT, [3], "x")
    graph.setTileMapping(x, 1)
    graph.setInitialValue(x, [1.0, 2.0, 3.0])
    graph.createHostRead("x", x)
    engine = tr.Engine(graph, p.Sequence())
    engine.loadAndRun()
    assert engine.readTensor("x").tolist() == [1, 2, 3]


@pytest.mark.parametrize("format", list(p.SerializationFormat))
@pytest.mark.parametrize("stream", [io.BytesIO, io.StringIO])
def test_graphs_are_described(format, stream):
    """`serialize` writes variables, their mapping and vertices, to text or bytes."""
    if format is p.SerializationFormat.Binary and stream is io.StringIO:
        return
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in "xy")
    blend_set(graph, x, y, 0.5)
    out = stream()
    graph.serialize(out, format)
    data = out.getvalue()
    text = zlib.decompress(data) if format is p.SerializationFormat.Binary else data
    described = json.loads(text)
    names = [row["name"] for row in described["variables"]]
    assert names[:2] == ["x", "y"]
    assert described["variables"][0]["shape"] == [4]
    mapped = sum(end - begin for _, begin, end in described["variables"][0]["mapping"])
    assert mapped == 4
    (table,) = described["compute_sets"][0]["vertices"]
    assert len(table["tile"]) == graph.n_vertices
    assert all(len(field["n_elements"]) == len(table["tile"]) for field in table["fields"].values())


def test_executables_in_streams():
    """An executable is written to a stream and read back; other bytes are an error."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x", 3)
    graph.create_host_read("again", x)
    executable = tr.compile_graph(graph, [p.Sequence()])
    out = io.BytesIO()
    executable.serialize(out)
    out.seek(0)
    engine = tr.Engine(tr.Executable.deserialize(out)).load()
    assert engine.read_tensor("again").tolist() == [3, 3]
    with pytest.raises(errors.FileLoadError, match="is not a Tremula file"):
        tr.Executable.deserialize(io.BytesIO(b"other"))


def test_profile_summaries_have_poplars_options():
    """Options are those of Poplar, as text or flags; an unknown one suggests the nearest."""
    graph = new_graph()
    x, y = (variable(graph, FLOAT, [4], name, 1) for name in "xy")
    engine = loaded(graph, p.Execute(blend_set(graph, x, y, 0.5)))
    engine.run()
    texts = []
    for options in (None, {"showExecutionSteps": "true"}, {"showVarStorage": True}):
        out = io.StringIO()
        engine.printProfileSummary(out, options)
        texts.append(out.getvalue())
    assert len(set(texts)) == 3
    with pytest.raises(errors.InvalidOption, match="showExecutionSteps"):
        engine.print_profile_summary(io.StringIO(), {"showExecutionStep": "true"})
    engine.resetExecutionProfile()
    with pytest.raises(errors.MissingProfileData, match="nothing has run"):
        _ = engine.report().total_cycles


def test_memory_of_streams_by_begin_and_end():
    """A stream reads from and writes to memory between two addresses, or two views of an array."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    to, back = (
        graph.add_host_to_device_fifo("to", FLOAT, 2),
        graph.add_device_to_host_fifo("back", FLOAT, 2),
    )
    copies = p.Sequence([p.Copy(to, x), p.Copy(x, back)])
    engine = tr.Engine(graph, p.Repeat(2, copies)).load()
    data = np.arange(8, dtype=np.float32)
    result = np.zeros(4, np.float32)
    begin = data.ctypes.data
    for first, end in ((data, data[4:]), (begin, begin + 16)):
        engine.connectStream("to", first, end)
        engine.connect_stream("back", result.ctypes.data, result.ctypes.data + result.nbytes)
        engine.run()
        assert result.tolist() == [0, 1, 2, 3]
        result[:] = 0
    with pytest.raises(errors.StreamConnectionError, match="ends 3 bytes after"):
        engine.connect_stream("to", begin, begin + 3)
    with pytest.raises(errors.StreamConnectionError, match="two views of one array"):
        engine.connect_stream("to", data[:2], data[4:])


def test_callbacks_by_replica_index():
    """The index of a replica may come before the callback, as in Poplar."""
    device = p.IPUModel(n_ipus=2, tiles_per_ipu=2).create_device()
    graph = p.Graph(device, replication_factor=2)
    x = graph.add_variable(FLOAT, [1], "x", mapping=0)
    stream = graph.add_host_to_device_fifo("in", FLOAT, 1)
    graph.create_host_read("x", x)
    engine = tr.Engine(graph, p.Copy(stream, x)).load(device)
    for replica in range(2):
        engine.connectStreamToCallback("in", replica, lambda out, r=replica: out.fill(10.0 + r))
    engine.run()
    assert [float(engine.read_tensor("x", replica=r)[0]) for r in range(2)] == [10, 11]


_PRINTS = """
#include <poplar/Vertex.hpp>
#include <cstdio>
class Says : public poplar::Vertex {
public:
  poplar::Output<float> out;
  bool compute() { printf("hello %d\\n", 7); *out = 1; return true; }
};
"""


def test_what_codelets_print_goes_to_a_stream(capfd):
    """`set_print_stream` collects printf of C++ codelets; otherwise it is the process's output."""
    graph = new_graph()
    graph.add_codelets(_PRINTS)
    x = variable(graph, FLOAT, [], "x")
    cs = graph.add_compute_set("cs")
    vertex = graph.add_vertex(cs, "Says", {"out": x}, tile=0)
    graph.set_perf_estimate(vertex, 10)
    engine = loaded(graph, p.Execute(cs))
    out = io.StringIO()
    engine.setPrintStream(out)
    engine.run()
    assert out.getvalue() == "hello 7\n"
    assert capfd.readouterr().out == ""
