"""The text of every error the graph layer raises: what, expected and got, the line, the hint."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tremula import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    QUARTER,
    QUARTER_METADATA,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    Call,
    Copy,
    CrossReplicaCopy,
    ErrorProgram,
    Execute,
    Graph,
    If,
    InOut,
    Input,
    Interval,
    IPUModel,
    Output,
    PrintTensor,
    PrintTensorFmt,
    Repeat,
    RepeatWhileTrue,
    Sequence,
    Slices,
    Switch,
    TensorRearranger,
    Vector,
    Vertex,
    WriteUndef,
    append,
    concat,
    errors,
    float32,
    int32,
    uint8,
)
from tremula.compiler.lower.lower import lower


class Sample(Vertex):
    """A codelet to connect wrongly."""

    x: Input[float32]
    y: Output[Vector[float32]]
    rows: Vector[Input[Vector[float32]]]
    n: uint8
    table: Vector[int32]

    def compute(self):
        self.y[0] = self.x


class Doubler(Vertex):
    x: InOut[float32]

    def compute(self):
        self.x = self.x * 2


@pytest.fixture
def made():
    """A graph on four tiles with a few of everything."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    cs = graph.add_compute_set("cs")
    return SimpleNamespace(
        graph=graph,
        cs=cs,
        x=graph.add_variable(FLOAT, [4, 6], "x", mapping=0),
        row=graph.add_variable(INT, [3], "row", mapping=1),
        flag=graph.add_variable(BOOL, [], "flag", mapping=1),
        unmapped=graph.add_variable(FLOAT, [8], "unmapped"),
        constant=graph.add_constant(FLOAT, [24], 1.0, "one"),
        vertex=graph.add_vertex(cs, Sample, tile=0),
        stream=graph.add_host_to_device_fifo("in", FLOAT, 24),
        buffer=graph.add_remote_buffer("store", FLOAT, 24, repeats=2),
        host_function=graph.add_host_function("f", [(FLOAT, 24)], [(INT, 3)]),
    )


def vertex_with(**fields):
    """A case: Sample added with one field connected."""
    return lambda m: m.graph.add_vertex(m.cs, Sample, {k: v(m) for k, v in fields.items()}, tile=0)


def bulk_with(field, value, tiles=(0, 1)):
    return lambda m: m.graph.add_vertices(m.cs, Sample, {field: value(m)}, tiles=list(tiles))


def beyond_size(made):
    made.graph.set_field_size(made.vertex["rows"], 1)
    made.graph.connect(made.vertex["rows"][2], made.x[0])


# (error class, what goes wrong, what the text says, what the hint says)
TENSORS = [
    ("TensorIndexError", lambda m: m.x[4],
     "index 4 of dimension 0 is out of range for a tensor of shape [4, 6].", "use 0 to 3"),
    ("TensorIndexError", lambda m: m.x[0, -7],
     "index -7 of dimension 1 is out of range for a tensor of shape [4, 6].", "use 0 to 5"),
    ("TensorIndexError", lambda m: m.flag[0],
     "index 0 of dimension 0 is out of range for a tensor of shape [].", "the tensor is a scalar"),
    ("TensorIndexError", lambda m: m.x[0:0][0],
     "index 0 of dimension 0 is out of range for a tensor of shape [0, 6].", "the tensor is empty"),
    ("TensorIndexError", lambda m: m.x[1, 2, 3], "3 indices for a tensor of shape [4, 6].",
     "give at most 2"),
    ("TensorIndexError", lambda m: m.x["a"], "a tensor cannot be indexed with 'a'.",
     "use whole numbers"),
    ("TensorIndexError", lambda m: m.x[1.5], "a tensor cannot be indexed with 1.5.",
     "use whole numbers"),
    ("TensorIndexError", lambda m: m.x[..., ...], "cannot be indexed with Ellipsis", "one ..."),
    ("TensorIndexError", lambda m: m.x.slice(2, 5),
     "slice [2, 5) of dimension 0 is out of range for a tensor of shape [4, 6].",
     "use 0 <= begin <= end <= 4"),
    ("TensorIndexError", lambda m: m.x.slice(3, 2), "slice [3, 2) of dimension 0",
     "use 0 <= begin"),
    ("TensorIndexError", lambda m: m.x.slice(Interval(0, 9), dim=1), "slice [0, 9) of dimension 1",
     "<= 6"),
    ("TensorIndexError", lambda m: m.x.slice(0, 1, 2), "dimension 2 is out of range", "use 0 to 1"),
    ("TensorIndexError", lambda m: m.x.slice([0], [1]),
     "slice of a rank-2 tensor got 1 begins, 1 ends.", "one begin and one end per dimension"),
    ("TensorIndexError", lambda m: m.x.slice(1), "a tensor cannot be indexed with None.",
     "use whole numbers"),
    ("TensorIndexError", lambda m: m.x.slices([7]), "slice [7, 8) of dimension 0", "<= 4"),
    ("TensorIndexError", lambda m: m.x.dim(2), "dimension 2 is out of range", "use 0 to 1"),
    ("TensorIndexError", lambda m: m.x.reverse(2), "dimension 2 is out of range", "use 0 to 1"),
    ("TensorIndexError", lambda m: m.x.expand([3]), "dimension 3 is out of range", "use 0 to"),
    ("TensorIndexError", lambda m: m.x.dim_roll(0, 5), "dimension 5 is out of range", "use 0 to 1"),
    ("TensorIndexError", lambda m: len(m.flag), "a scalar tensor has no length.",
     "use tensor.n_elems"),
    ("TensorCreationError", lambda m: m.x.reshape([5, 5]),
     "cannot reshape [4, 6] (24 elements) to [5, 5] (25 elements).", "keep the number of elements"),
    ("TensorCreationError", lambda m: m.x.reshape([-4, -6]), "cannot reshape [4, 6]",
     "keep the number"),
    ("TensorCreationError", lambda m: m.x.dim_shuffle([0, 0]),
     "[0, 0] is not a permutation of the 2 dimensions.", "use each of [0, 1] once"),
    ("TensorCreationError", lambda m: m.x.dim_shuffle_partial([0], [0, 1]),
     "dim_shuffle_partial got sources [0] and destinations [0, 1].",
     "as many destinations as sources"),
    ("TensorCreationError", lambda m: m.row.transpose(),
     "transpose needs a rank-2 tensor, got shape [3].", "use dim_shuffle"),
    ("TensorCreationError", lambda m: m.x.squeeze([1]), "cannot squeeze dimension 1 of size 6.",
     "only dimensions of size 1 can go"),
    ("TensorCreationError", lambda m: m.x.sub_sample(0),
     "sub_sample needs a stride of at least 1, got 0.", "use reverse()"),
    ("TensorCreationError", lambda m: m.x.broadcast(-1), "cannot repeat a tensor -1 times.",
     "use a whole number, 0 or more"),
    ("TensorCreationError", lambda m: concat([]), "concat needs at least one tensor.",
     "one or more"),
    ("TensorCreationError", lambda m: concat([m.x, 3]), "concat got int, expected tensors.",
     "give a list of tensors"),
    ("TensorCreationError", lambda m: concat([m.x, m.x[:, 1:]]),
     "cannot concat [4, 6] and [4, 5] along dimension 0.", "all other dimensions must agree"),
    ("TensorCreationError", lambda m: append(m.x, m.x[0, 1:]), "cannot concat [4, 6] and [1, 5]",
     "all other dimensions must agree"),
    ("TensorCreationError", lambda m: concat([m.x, other_graph_tensor()]),
     "cannot concat tensors of different graphs.", "use one graph"),
    ("TensorCreationError", lambda m: m.graph.add_variable(FLOAT, [2, -1], "bad"),
     "variable 'bad' cannot have shape [2, -1].", "whole numbers of 0 or more"),
    ("TensorCreationError", lambda m: m.graph.add_variable(FLOAT, 3, "bad"),
     "variable 'bad' cannot have shape 3.", "use a list of whole numbers"),
    ("TensorCreationError", lambda m: m.graph.set_initial_value(m.row, [1, 2]),
     "2 values do not fill a tensor of shape [3].", "give one value or 3"),
    ("TensorCreationError", lambda m: TensorRearranger(m.x).rearrange(m.row),
     "this order is for 24 elements, got 3.", "a tensor of the same size"),
    ("TypeMismatch", lambda m: concat([m.row, m.x[0, :3]]), "cannot concat int and float.", "cast"),
    ("TypeMismatch", lambda m: m.x.reinterpret(HALF),
     "cannot reinterpret float (4 bytes) as half (2 bytes).", "the same size"),
    ("TypeMismatch", lambda m: m.graph.set_initial_value(m.x, "text"),
     "cannot fill a tensor of float.", "give numbers"),
    ("TypeMismatch", lambda m: m.graph.add_variable("flaot", [1]), "unknown type 'flaot'.",
     "did you mean 'float'"),
    ("TypeMismatch", lambda m: m.graph.add_variable("double", [1]),
     "the machine has no type 'double'", "use FLOAT"),
    ("OverflowInField", lambda m: m.graph.add_constant(UNSIGNED_CHAR, [2], [1, 300]),
     "value 300 does not fit a tensor of unsigned char.", "use 0 to 255"),
    ("OverflowInField", lambda m: m.graph.add_constant(UNSIGNED_INT, [], -1),
     "value -1 does not fit a tensor of unsigned int.", "use 0 to"),
    ("TensorMetadataError", lambda m: m.graph.add_variable(QUARTER, [4], "q"),
     "variable 'q' of type quarter needs a metadata tensor.", "give metadata="),
    ("TensorMetadataError",
     lambda m: m.graph.add_variable(
         FLOAT, [4], "q", metadata=m.graph.add_variable(QUARTER_METADATA, [])),
     "variable 'q' of type float cannot have metadata.", "QUARTER variables only"),
    ("GraphReplicationError", lambda m: Graph(IPUModel("ipu2", n_ipus=4).create_device(), 3),
     "4 IPUs cannot hold 3 replicas.", "use a factor that divides the number of IPUs"),
]  # fmt: skip

MAPPINGS = [
    (lambda m: m.graph.set_tile_mapping(m.x, 4),
     "tile 4 does not exist: the graph has 4 tiles.", "use 0 to 3"),
    (lambda m: m.graph.set_tile_mapping(m.vertex, -1), "tile -1 does not exist", "use 0 to 3"),
    (lambda m: m.graph.set_tile_mapping(m.x, [[]] * 5), "tile 4 does not exist", "use 0 to 3"),
    (lambda m: m.graph.set_tile_mapping(m.x, [[(0, 25)]]),
     "the mapping names elements [0, 25) of a tensor with 24 elements.", "the flattened tensor"),
    (lambda m: m.graph.set_tile_mapping(m.x, "linear"), "a tensor cannot be mapped to 'linear'.",
     "map_linearly(tensor)"),
    (lambda m: m.graph.add_variable(FLOAT, [2], "v", mapping="lin"),
     "mapping 'lin' of variable 'v' is unknown.", "use 'linear', a tile number, or None"),
    (lambda m: m.graph.add_constant(FLOAT, [2], 0, "c", mapping="lin"),
     "mapping 'lin' of variable 'c' is unknown.", "use 'linear'"),
    (lambda m: m.graph.add_variable(FLOAT, [2], mapping=9), "tile 9 does not exist", "use 0 to 3"),
    (lambda m: m.graph.add_vertex(m.cs, Sample, tile=7), "tile 7 does not exist", "use 0 to 3"),
    (lambda m: m.graph.add_vertices(m.cs, Sample, {}, tiles=[0, 9]), "tile 9 does not exist",
     "use 0 to 3"),
    (lambda m: m.graph.add_vertices(m.cs, Sample, {}, tiles=0),
     "add_vertices got tiles of shape [] for an unknown number of vertices.", "one tile and n="),
    (lambda m: m.graph.add_vertices(m.cs, Sample, {}, tiles=[0, 1], n=3),
     "add_vertices got tiles of shape [2] for 3 vertices.", "give one tile per vertex"),
    (lambda m: m.graph.get_tile_mapping(m.unmapped),
     "elements [0, 8) of variable 'unmapped' are not mapped to a tile.", "set_tile_mapping"),
    (lambda m: m.graph.create_virtual_graph(5), "tile 5 does not exist", "use 0 to 3"),
    (lambda m: m.graph.create_virtual_graph([]), "a virtual graph needs one tile or more", "name"),
    (lambda m: m.graph.create_virtual_graph([1, 1]), "each once, got [1, 1].", "different tiles"),
    (lambda m: m.graph.create_virtual_graph([1, 2]).from_top_level_tile(3),
     "tile 3 is not part of this virtual graph.", "its 2 tiles are [1, 2] of the top level"),
    (lambda m: m.graph.create_virtual_graph(1, 3).set_tile_mapping(m.x, 2),
     "tile 2 does not exist: the graph has 2 tiles.", "use 0 to 1"),
    (lambda m: m.graph.create_virtual_graph([1, 2], 3),
     "a virtual graph got a list of tiles and an upper bound, 3.",
     "either (lower, upper) or a list"),
    (lambda m: m.graph.set_tile_mapping(m.vertex, "linear"),
     "a vertex cannot be mapped to 'linear'.", "the number of one tile"),
]  # fmt: skip

VERTICES = [
    ("UnknownVertexType", lambda m: m.graph.add_vertex(m.cs, "Sampel"),
     "no codelet 'Sampel' in this graph.", "did you mean 'Sample'?"),
    ("UnknownField", lambda m: m.vertex["row"], "vertex 'Sample' has no field 'row'.",
     "did you mean 'rows'"),
    ("UnknownField", vertex_with(z=lambda m: m.x), "has no field 'z'", "known names: n, rows"),
    ("UnknownField", bulk_with("z", lambda m: m.x), "has no field 'z'", "known names: n, rows"),
    ("TypeMismatch", vertex_with(y=lambda m: m.row),
     "field Sample.y has type float, got a tensor of int.", "reinterpret()"),
    ("TypeMismatch", bulk_with("y", lambda m: m.row),
     "field Sample.y has type float, got a tensor of int.", "reinterpret()"),
    ("GraphConnectionError", vertex_with(y=lambda m: m.x),
     "field Sample.y is a vector edge and takes a tensor of rank 1, got shape [4, 6].",
     "flatten()"),
    ("GraphConnectionError", vertex_with(x=lambda m: m.x[0]),
     "field Sample.x is a scalar edge and takes a tensor of rank 0, got shape [6].",
     "index one element"),
    ("GraphConnectionError", vertex_with(rows=lambda m: [m.x]),
     "field Sample.rows is a vector of vector edges and takes a tensor of rank 1", "flatten()"),
    ("GraphConnectionError", vertex_with(rows=lambda m: 3),
     "field Sample.rows got int, expected a Tensor.",
     "connect a Tensor"),
    ("GraphConnectionError", vertex_with(y=lambda m: np.zeros(3)),
     "field Sample.y got ndarray, expected a Tensor.", "values are for state fields"),
    ("GraphConnectionError", vertex_with(n=lambda m: m.row[0]),
     "field Sample.n is state, got a Tensor.", "give a value"),
    ("GraphConnectionError", vertex_with(n=lambda m: [1, 2]),
     "field Sample.n is a state, got a value of shape [2].", "give a scalar"),
    ("GraphConnectionError", vertex_with(table=lambda m: 1),
     "field Sample.table is a state vector, got a value of shape [].", "give a list"),
    ("GraphConnectionError", bulk_with("y", lambda m: 3),
     "field Sample.y got int, expected a Tensor or Slices.", "the number of vertices"),
    ("GraphConnectionError", bulk_with("y", lambda m: m.x),
     ("field Sample.y is a vector edge; 2 vertices need a tensor of shape [2, length], got shape "
      "[4, 6]."),
     "reshape the tensor"),
    ("GraphConnectionError", bulk_with("y", lambda m: Slices(m.x, [0], [3])),
     "2 vertices need a tensor of shape [2, length], got Slices for 1.",
     "Slices(tensor, begin, end)"),
    ("GraphConnectionError", bulk_with("y", lambda m: Slices(m.x, [0, 20], [3, 25])),
     "slice 1 is [20, 25) but the tensor has 24 elements.", "use 0 <= begin <= end"),
    ("GraphConnectionError", bulk_with("rows", lambda m: Slices(m.x, [0], [3], [0, 1, 5])),
     "Slices has 1 begins, 1 ends, and a start from 0 to 5.", "start ascends from 0"),
    ("GraphConnectionError", lambda m: m.graph.connect(m.vertex["y"][0], m.x[0]),
     "field Sample.y is a vector edge and has no elements to connect.", "connect the whole field"),
    ("GraphConnectionError", lambda m: m.graph.connect(m.x, m.x),
     "connect got Tensor and Tensor, expected a field of a vertex", 'vertex["field"]'),
    ("NoSizeSpecified", lambda m: m.graph.connect(m.vertex["rows"][0], m.x[0]),
     "field Sample.rows is a vector of vector edges without a size.", "graph.set_field_size"),
    ("GraphConnectionError", beyond_size, "element 2 of a field of size 1.",
     "an element from 0 to 0"),
    ("OverflowInField", vertex_with(n=lambda m: 256),
     "value 256 does not fit field Sample.n of type unsigned char.", "use 0 to 255"),
    ("OverflowInField", bulk_with("n", lambda m: [3, -1]), "value -1 does not fit field Sample.n",
     "use 0 to 255"),
    ("TensorCreationError", bulk_with("n", lambda m: [1, 2, 3]),
     "state Sample.n of 2 vertices got shape [3].", "one value for all, or one per vertex"),
    ("GraphConnectionError", lambda m: compile_vertex(m, {}),
     "field Doubler.x of vertex 0 in compute set 'cs' is not connected.", "connect it"),
    ("GraphConnectionError", lambda m: compile_vertex(m, {"x": m.x[0, 0]}, twice=m.x[0, 1]),
     "field Doubler.x of vertex 0 in compute set 'cs' is connected twice.", "connect it once"),
]  # fmt: skip

PROGRAMS = [
    (lambda m: Sequence(3), "Sequence: got int, expected a program.",
     "wrap a compute set in Execute"),
    (lambda m: Sequence([m.cs]), "Sequence: got ComputeSet, expected a program.", "Execute(cs)"),
    (lambda m: Execute("cs"), "Execute: got str, expected a compute set.",
     "graph.add_compute_set(name)"),
    (lambda m: Execute(m.cs, m.row), "Execute: the result must be a scalar tensor, got [3].",
     "index one element"),
    (lambda m: Copy(m.x, m.x[0]), "Copy: sizes differ: 24 and 6 elements.",
     "slice or broadcast one side"),
    (lambda m: Copy(m.row, m.x[0, :3]), "Copy: element types differ: int and float.",
     "cast one side"),
    (lambda m: Copy(m.x, m.constant), "Copy: cannot write to a constant.", "use add_variable"),
    (lambda m: Copy(m.x, m.x[:1].broadcast(4)), "the destination contains the same element twice.",
     "before broadcast"),
    (lambda m: Copy(m.x, m.stream), "stream 'in' runs the other way.", "add_device_to_host_fifo"),
    (lambda m: Copy(m.stream, m.x[0]), "Copy: sizes differ: 6 and 24 elements.",
     "slice or broadcast"),
    (lambda m: Copy(m.stream, m.buffer), "Copy: one side must be a tensor.", "stream → tensor"),
    (lambda m: Copy(m.x, 3), "Copy: cannot copy to or from int.", "use a tensor or stream"),
    (lambda m: Copy(m.x, m.buffer), "remote buffer 'store' has 2 rows and needs an offset.",
     "offset="),
    (lambda m: Copy(m.x, m.buffer, m.x[0, 0]), "the offset is float of rank 0.",
     "INT or UNSIGNED_INT"),
    (lambda m: Copy(m.x, m.buffer, m.row), "Copy: sizes differ: 24 and 72 elements.", "slice"),
    (lambda m: Repeat(-1, Sequence()), "Repeat: the count is -1.", "integer of 0 or more"),
    (lambda m: Repeat(2.5, Sequence()), "Repeat: the count is 2.5.", "integer of 0 or more"),
    (lambda m: Repeat(2, None), "Repeat: got NoneType, expected a program.",
     "Sequence() for nothing"),
    (lambda m: If(m.row, Sequence()), "If: the predicate must be a scalar tensor, got [3].",
     "index one element"),
    (lambda m: If(True, Sequence()), "If: the predicate must be a scalar tensor, got bool.",
     "index"),
    (lambda m: If(m.x[0, 0], Sequence()), "If: the predicate has type float.",
     "use BOOL or an integer"),
    (lambda m: RepeatWhileTrue(Sequence(), m.x, Sequence()),
     "RepeatWhileTrue: the predicate must be a scalar tensor, got [4, 6].", "index one element"),
    (lambda m: Switch(m.row[0], [(1, Sequence()), (1, Sequence())]),
     "Switch: case 1 is there twice.",
     "give each value once"),
    (lambda m: Switch(m.flag, {2: Sequence()}),
     "Switch: case 2 does not fit the control, which is bool.",
     "values the control can have"),
    (lambda m: Switch(m.row[0], {}, on_no_match="eror"), "Switch: on_no_match is 'eror'.",
     "'default', 'error' or 'undefined'"),
    (lambda m: Call(3), "Call: got int, expected a function.", "graph.add_function(program)"),
    (lambda m: Call(m.host_function, [m.x], []),
     "Call: outputs of host function 'f' are [], expected [(INT, 3)].", "add_host_function"),
    (lambda m: PrintTensor("title", 3), "PrintTensor: got int, expected a tensor.",
     "give a tensor"),
    (lambda m: WriteUndef(None), "WriteUndef: got NoneType, expected a tensor.", "give a tensor"),
    (lambda m: ErrorProgram("bad"), "ErrorProgram: got NoneType, expected a tensor.",
     "give a tensor"),
    (lambda m: CrossReplicaCopy(m.x, m.row, {0: 1, 1: 0}),
     "CrossReplicaCopy: 24 elements of float do not fit 3 of int.", "one type and size"),
    (lambda m: CrossReplicaCopy(m.x[0], m.x[1], {0: 1, 1: 2}),
     "{0: 1, 1: 2} is not a permutation of replicas.", "once as source and once as destination"),
]  # fmt: skip

HOST = [
    ("StreamConnectionError", lambda m: m.graph.add_host_to_device_fifo("in", FLOAT, 1),
     "handle 'in' is taken.", "its own name"),
    ("StreamConnectionError", lambda m: m.graph.add_device_to_host_fifo("none", FLOAT, 0),
     "'none' moves nothing", "1 or more"),
    ("StreamConnectionError", lambda m: m.graph.create_host_write("w", m.constant),
     "host write 'w' needs a tensor without constants and repeated elements.",
     "the variable itself"),
    ("StreamConnectionError", lambda m: m.graph.create_host_write("w", m.x.broadcast(2)),
     "without constants and repeated elements", "the variable itself"),
    ("GraphRecursionError", lambda m: lower(m.graph, recursive(m)),
     "twice calls itself: 1 calls deep.",
     "use Repeat"),
    ("ControlProgramError", lambda m: lower(m.graph, {"main": 3}),
     "program 'main' is a int, expected a program.", "a dict of them"),
    ("InvalidMachineModel", lambda m: IPUModel("ipu9").create_device(), "unknown chip 'ipu9'.",
     "did you mean"),
    ("InvalidMachineModel", lambda m: IPUModel("ipu2", tiles_per_ipu=5000).create_device(),
     "a target of 1 IPUs with 5000 tiles each is impossible: GC200 has 1472 tiles.",
     "1 to 1472 tiles"),
    ("InvalidOption", lambda m: PrintTensorFmt(float_format="fix"),
     "PrintTensorFmt has no float_format 'fix'.", "did you mean 'fixed'"),
]  # fmt: skip

# What has no line of the user's program to show: a name or number that is wrong by itself.
HAS_NO_LINE = {"InvalidMachineModel", "InvalidOption"}

CASES = [
    *TENSORS,
    *(("InvalidTileMapping", *row) for row in MAPPINGS),
    *VERTICES,
    *(("ControlProgramError", *row) for row in PROGRAMS),
    *HOST,
]


def other_graph_tensor():
    return Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device()).add_variable(FLOAT, [4, 6])


def compile_vertex(made, fields, twice=None):
    compute_set = made.graph.add_compute_set("cs")
    vertex = made.graph.add_vertex(compute_set, Doubler, fields, tile=0)
    if twice is not None:
        made.graph.connect(vertex["x"], twice)
    lower(made.graph, Execute(compute_set))


def recursive(made):
    body = Sequence()
    function = made.graph.add_function(body, "twice")
    body.add(Call(function))
    return Call(function)


@pytest.mark.parametrize(
    ("name", "fail", "what", "hint"), CASES, ids=[f"{case[0]}: {case[2]}" for case in CASES]
)
def test_error_text(made, name, fail, what, hint):
    """Each mistake raises its class and says what, where and how to fix it."""
    with pytest.raises(errors.PoplarError) as caught:
        fail(made)
    text = str(caught.value)
    assert type(caught.value).__name__ == name
    first, *rest = text.split("\n")
    assert what in first
    assert f"  try: {caught.value.hint}" == rest[-1]
    assert hint in caught.value.hint
    names_no_line = name in HAS_NO_LINE or "type '" in first  # as_type knows no graph
    assert names_no_line or any(f"{Path(__file__).name}:" in line for line in rest), text


def test_a_message_has_three_parts():
    """What, line and hint are also attributes, and the line is that of the call."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=4).create_device())
    x = graph.add_variable(FLOAT, [4], "x")
    with pytest.raises(errors.TensorIndexError) as caught:
        x[7]
    error = caught.value
    assert error.source.file == __file__
    line = Path(__file__).read_text(encoding="utf-8").splitlines()[error.source.line - 1]
    assert line.strip() == "x[7]"
    assert str(error) == f"{error.what}\n  at {error.source}\n  try: {error.hint}"


def test_poplar_errors_are_pythons_too():
    """Errors that Python has a class for can be caught as that class."""
    assert issubclass(errors.TensorIndexError, IndexError)
    assert issubclass(errors.TypeMismatch, TypeError)
    assert issubclass(errors.RuntimeFailure, RuntimeError)


PARTITION_ERRORS = (errors.SystemRuntimeError, errors.FileLoadError)


def test_every_class_of_the_graph_layer_is_here():
    """The table above has each error class that src/tremula/poplar raises.

    Those of partitions need a controller: tests/system has them.
    """
    folder = Path(errors.__file__).parent.parent / "poplar"
    text = "".join(path.read_text(encoding="utf-8") for path in folder.glob("*.py"))
    known = [name for name, cls in vars(errors).items() if isinstance(cls, type)]
    raised = {
        name for name in known if f"{name}(" in text and issubclass(vars(errors)[name], Exception)
    }
    of_partitions = {name for name in known if issubclass(vars(errors)[name], PARTITION_ERRORS)}
    assert raised - of_partitions <= {case[0] for case in CASES}
