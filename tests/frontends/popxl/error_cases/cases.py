"""A call for every exception that PopXL raises: its type, its text, and what brings it about."""

from collections.abc import Callable
from importlib import import_module as module
from typing import Any

import numpy as np

import popart
import popart._internal.ir as _ir
import popxl
from popart import (
    popart_exception,
    popart_runtime_error,
    poplar_application_runtime_error,
)
from popxl import ops
from popxl.errors import UndefinedValue
from popxl.transforms import autodiff
from tests.frontends.popxl.error_cases.world import Case, World
from tremula.frontends.popxl.dtypes import to_array


def in_graph(graph: popxl.Graph, do: Callable[[], object]) -> None:
    with graph:
        do()


def entered(context: Any) -> None:
    with context:
        pass


def running(w: World, inputs: Any) -> None:
    on(w, lambda session: session.run(inputs(w)))


def on(w: World, do: Callable[[popxl.Session], object]) -> None:
    with w.outside(), popxl.Session(w.single(), "cpu") as session:
        do(session)


def without_graph(w: World) -> None:
    with w.outside():
        popxl.gcg()


def exchange_of_sums(w: World) -> None:
    with popxl.transforms.io_tile_exchange():
        _ = w.v + 1.0


def branch_with_collective(w: World) -> None:
    """Replicas disagree, and one branch needs all of them."""
    group = w.ir.replica_grouping(group_size=1)
    own = popxl.variable(np.array([True, False, True, False]), replica_grouping=group)
    then = w.made(ops.collectives.replicated_all_reduce, w.v)
    other = w.made(lambda t: t + 1.0, w.v)
    (y,) = ops.conditional(own, then, other, [w.v], [w.v])
    out = popxl.d2h_stream(y.shape, y.dtype)
    ops.host_store(out, y)
    with popxl.Session(w.ir, "cpu") as session:
        session.run()


def on_another_device(w: World) -> None:
    with w.outside():
        session = popxl.Session(w.single(), "cpu")
    session._set_device(popxl.utils._to_device_info("ipu_model"))
    session.__enter__()


def out_of_range_scale(w: World) -> None:
    ir = popxl.Ir()
    with w.outside(), ir.main_graph:
        ops.pow2scale_cast_to_fp8(popxl.variable([1.0]), 50, popxl.float8_143)
    with popxl.Session(ir, "cpu") as session:
        session.run()


def twice_loaded(w: World) -> None:
    ir = popxl.Ir()
    with w.outside(), ir.main_graph:
        stream = popxl.h2d_stream((), popxl.float32, "in")
        ops.host_load(stream)
        ops.host_load(stream)
    with popxl.Session(ir, "cpu") as session:
        session.run({stream: np.zeros((), np.float32)})


def large_buffer(w: World) -> None:
    ir = popxl.Ir()
    with w.outside(), ir.main_graph:
        ops.remote_load(popxl.remote_buffer((1 << 20,), popxl.float32, 1 << 10), 0)
    popxl.Session(ir, "cpu").report()


def writing(t: popxl.TensorByRef) -> None:
    ops.add_(t, 1.0)


def gradient_of_writes(w: World) -> None:
    def writes(t: popxl.Tensor) -> popxl.Tensor:
        return ops.add_(t, 1.0)

    autodiff(w.made(writes, w.v))


def gradient_of_a_writing_loop(w: World) -> None:
    def body(t: popxl.Tensor, total: popxl.TensorByRef) -> popxl.Tensor:
        ops.add_(total, t)
        return t * 2.0

    inner = w.made(body, w.v, w.v)
    autodiff(w.made(lambda t, total: ops.repeat(inner, 2, t, total), w.v, w.v))


def gradient_of_a_closed_graph(w: World) -> None:
    w.graph._pb_graph.setCanBeRecursivelyAutodiffed(False)
    autodiff(w.made(lambda t, s: ops.call(w.graph, t, s), w.v, w.s))


def gradient_for_another_call(w: World) -> None:
    info = autodiff(w.made(lambda t: t * t, w.v))
    info.inputs_dict(w.call)


def two_chips(w: World) -> list[popxl.Tensor]:
    return [w.v, w.v]


GRAPHS = [
    Case("no graph", RuntimeError, "There is no current graph",
         without_graph),
    Case("Graph()", RuntimeError, "cannot be constructed directly", lambda w: popxl.Graph()),
    Case("Tensor()", RuntimeError, "cannot be constructed directly", lambda w: popxl.Tensor()),
    Case("stream()", TypeError, "is made by popxl.h2d_stream",
         lambda w: popxl.HostToDeviceStream()),
    Case("dtype()", TypeError, "Cannot create dtype instances", lambda w: popxl.dtype()),
    Case("unknown tensor", ValueError, "There is no tensor 'y'", lambda w: w.main.get_tensor("y")),
    Case("in graph", TypeError, "must be of type popxl.Tensor", lambda w: 1 in w.main),
    Case("foreign output", ValueError, "is not a tensor of graph main",
         lambda w: popxl.graph_output(w.graph.inputs[0])),
    Case("hook", KeyError, "There is no hook 7", lambda w: w.main.remove_op_created_hook(7)),
    Case("another Ir", RuntimeError, "belongs to another Ir",
         lambda w: entered(popxl.Ir().main_graph)),
    Case("graph ==", TypeError, "must be of type popxl.Graph", lambda w: w.main == 1),
    Case("ir ==", TypeError, "must be of type popxl.Ir", lambda w: w.ir == 1),
    Case("replicas", ValueError, "must be a positive integer, got 0", lambda w: popxl.Ir(0)),
    Case("replicas later", RuntimeError, "cannot change after a Session",
         lambda w: w.closed() and setattr(w.ir, "replication_factor", 2)),
    Case("frozen", RuntimeError, "cannot be changed after a Session",
         lambda w: w.closed() and popxl.variable(1.0)),
    Case("module", NotImplementedError, "has no `build`", lambda w: popxl.Module()(w.v)),
    Case("mixed list", TypeError, "'a' mixes tensors and other values",
         lambda w: w.made(lambda a: None, [w.v, 1])),
    Case("arguments", ValueError, "2 arguments do not match the signature",
         lambda w: w.made(lambda a: a, w.v, w.v)),
    Case("result", ValueError, "must return None, a Tensor or an iterable of Tensors, got True",
         lambda w: w.made(lambda: True)),
    Case("results", ValueError, "must return None, a Tensor or an iterable of Tensors, got 1",
         lambda w: w.made(lambda: [1])),
    Case("spec", KeyError, "size", lambda w: w.v.spec["size"]),
    Case("iterating", TypeError, "is not iterable", lambda w: list(w.v)),
    Case("in tensor", TypeError, "is not a container", lambda w: 1 in w.v),
    Case("empty operand", ValueError, "has no elements", lambda w: np.zeros(0) + w.v),
    Case("mode of a sequence", TypeError, "takes True, False or 'pass', got 2",
         lambda w: popxl.in_sequence(2).__enter__()),
    Case("unknown chip", ValueError, "Could not infer the ipu .* specify `source`",
         lambda w: ops.ipu_copy(popxl.variable(1.0), 1)),
    Case("own code", ValueError, "cannot load the code",
         lambda w: ops.remote_code_load(w.main, "executable")),
    Case("permutation", ValueError, "Values in permutation .* rank 2",
         lambda w: ops.transpose(w.x, (5, 4))),
    Case("squeezed axis", ValueError, "must be dimensions of", lambda w: ops.squeeze(w.x, [2])),
    Case("squeezed twice", ValueError, "different dimensions",
         lambda w: ops.squeeze(popxl.constant([[1.0]]), [0, -2])),
    Case("partials", ValueError, "partials_type must be float16 or float32",
         lambda w: ops.matmul(w.x, w.x, partials_type=popxl.int32)),
    Case("partials of the session", ValueError, "must be 'float' or 'half'",
         lambda w: w.with_option("partialsTypeMatMuls", "foo", lambda: ops.matmul(w.x, w.x))),
    Case("partials of a convolution", ValueError, "must be 'half' or 'float', got 'int'",
         lambda w: ops.conv(w.image, w.image, partials_types=["int"])),
    Case("memory of a product", ValueError, "must be between 0 and 1, got 3.0",
         lambda w: ops.matmul(w.x, w.x.T, available_memory_proportion=3.0)),
    Case("memory of a convolution", ValueError, "must be between 0 and 1, got 1.5",
         lambda w: ops.conv(w.image, w.image, available_memory_proportions=[1.5])),
    Case("dithering of a convolution", ValueError, "must have one value, got 2",
         lambda w: ops.conv(w.image, w.image, enable_conv_dithering=[1, 0])),
    Case("chained transfers", RuntimeError, "must be independent", lambda w: w.chained()),
    Case("grouping itself", RuntimeError, "cannot be constructed directly",
         lambda w: popxl.ReplicaGrouping()),
    Case("joined types", TypeError, "concat operation must have the same type: got float32, int32",
         lambda w: ops.concat([w.v, w.i])),
    Case("neither branch", IndexError, "goes to neither branch",
         lambda w: w.branch().is_parent_index_in_then_branch(0)),
    Case("not an input of a branch", ValueError, "is not an input of this branch",
         lambda w: w.branch().parent_to_graph(w.x)),
    Case("branch modifies", NotImplementedError, "does not write its inputs",
         lambda w: w.branch().set_parent_input_modified(w.v)),
    Case("buffer of other shards", ValueError, "holds no shards",
         lambda w: popxl.remote_replica_sharded_variable(
             np.ones(9, np.float32), popxl.remote_buffer((3,), popxl.float32))),
    Case("operands by position", TypeError, "passed by name",
         lambda w: popxl.ops.utils.check_in_graph(w.main, w.v)),
    Case("operand is a number", TypeError, "`t` is not a Tensor",
         lambda w: popxl.ops.utils.check_in_graph(w.main, t=1)),
    Case("operand of another graph", ValueError, "`t` is not in the current graph",
         lambda w: popxl.ops.utils.check_in_graph(w.ir.create_empty_graph(), t=w.v)),
    Case("other chips", ValueError, "`lhs` and `rhs` are located on different IPUs: 0 != 1",
         lambda w: w.chips()),
    Case("bool", ValueError, "is not known while a graph is built", lambda w: bool(w.v)),
    Case("len", ValueError, "of a 0-rank tensor is undefined", lambda w: len(w.s)),
    Case("ipu", UndefinedValue, "does not have a ipu",
         lambda w: popxl.variable(1.0).ipu),
    Case("dtypes", ValueError, "dtypes do not match", lambda w: w.v._ensure_dtype_match(w.h)),
    Case("diag", ValueError, "needs a square matrix", lambda w: w.x.diag()),
    Case("float index", TypeError, "indexed by integers or booleans", lambda w: w.v[w.v]),
    Case("indices", IndexError, "2 indices for a tensor of rank 1", lambda w: w.v[0, 0]),
    Case("key", TypeError, "Invalid key 'a' of type str", lambda w: w.v["a"]),
    Case("index", IndexError, "Index 2 is out of range", lambda w: w.v[2]),
    Case("in_sequence", TypeError, "`None` cannot be passed",
         lambda w: entered(popxl.in_sequence(None))),
    Case("io_tile_exchange", RuntimeError, "Only loads and stores can overlap",
         exchange_of_sums),
    Case("class", AttributeError, "has no class 'AdOp'", lambda w: _ir.op.AdOp),
    Case("producer", ValueError, "No operation makes", lambda w: w.v._pb_tensor.getProducer()),
    Case("as_torch", ValueError, "does not have a `torch.dtype` equivalent",
         lambda w: popxl.float8_143.as_torch()),
    Case("as_dtype", ValueError, "There is no `popxl.dtype`",
         lambda w: popxl.dtype.as_dtype("float31")),
    Case("8 bits", TypeError, "cannot become .* without a scale",
         lambda w: to_array([1.0], popxl.float8_143)),
    Case("scale of 32 bits", RuntimeError, "log2_scale is for 8-bit floats",
         lambda w: popxl.variable([1.0], popxl.float32, log2_scale=1)),
    Case("scale of a tensor", ValueError, "log2_scale must be a scalar",
         lambda w: ops.pow2scale_cast_to_fp8(w.v, popxl.constant([1, 2]), popxl.float8_143)),
    Case("scale of floats", TypeError, "log2_scale must be of type popxl.int32",
         lambda w: ops.pow2scale_cast_to_fp8(w.v, popxl.constant(1.0), popxl.float8_143)),
]  # fmt: skip


DATA = [
    Case("variable in a graph", ValueError, "only be created in the main graph",
         lambda w: in_graph(w.graph, lambda: popxl.variable(1.0))),
    Case("mode", ValueError, "Retrieval mode must be one of",
         lambda w: popxl.variable(1.0, retrieval_mode="all")),
    Case("groups", ValueError, "must match the number of groups",
         lambda w: popxl.variable(1.0, replica_grouping=w.ir.replica_grouping(group_size=1))),
    Case("no numbers", TypeError, "must be numbers", lambda w: popxl.variable("a")),
    Case("constant", TypeError, "cannot become a constant tensor: it holds no numbers",
         lambda w: popxl.constant("a")),
    Case("constant of objects", TypeError, "cannot become a constant tensor",
         lambda w: popxl.constant(np.array([object()]))),
    Case("map's type", ValueError, "the `dtype` parameter .* without a copy",
         lambda w: popxl.variable(w.mapped(), popxl.float16)),
    Case("map of 64 bits", ValueError, "requires downcasting.* Map 32-bit numbers",
         lambda w: popxl.variable(w.mapped(np.float64))),
    Case("map's order", ValueError, "must already be in C-ordered",
         lambda w: popxl.variable(w.mapped(np.float32, (2, 2)).T)),
    Case("lazy shape", ValueError, r"of shape \(2,\) was made with \(3,\)",
         lambda w: popxl.LazyArray((2,), popxl.float32, lambda: np.zeros(3)).materialised()),
    Case("lazy type", TypeError, "make it in that type",
         lambda w: popxl.variable(popxl.LazyArray((2,), popxl.float32, lambda: None),
                                  popxl.float16)),
    Case("no file", FileNotFoundError, "does not exist",
         lambda w: popxl.open_memmap(w.folder / "none", (2,), popxl.float32)),
    Case("short file", ValueError, "is too short: 8 bytes",
         lambda w: popxl.open_memmap(w.mapped().filename, (3,), popxl.float32)),
    Case("sharded shape", ValueError, "does not match the whole shape",
         lambda w: popxl.remote_replica_sharded_variable(
             np.zeros(8, np.float32), popxl.replica_sharded_buffer((4,), popxl.float32))),
    Case("sharded dtype", ValueError, "does not match the buffer dtype",
         lambda w: popxl.remote_replica_sharded_variable(
             np.zeros(4, np.float16), popxl.replica_sharded_buffer((4,), popxl.float32))),
    Case("shard_over", ValueError, r"shard_over \(3\) must divide",
         lambda w: popxl.replica_sharded_buffer((4,), popxl.float32, shard_over=3)),
    Case("entries", ValueError, "must be a non-zero, positive integer. Got 0",
         lambda w: popxl.remote_buffer((2,), popxl.float32, 0)),
    Case("buffer shape", ValueError, "does not match the buffer shape",
         lambda w: ops.remote_store(w.buffer, 0, w.x)),
    Case("buffer dtype", ValueError, "does not match the buffer dtype",
         lambda w: ops.remote_store(w.buffer, 0, w.h)),
    Case("buffer offset", ValueError, "Offset 2 is out of range",
         lambda w: ops.remote_load(w.buffer, 2)),
    Case("offsets", ValueError, "is one integer", lambda w: ops.remote_load(w.buffer, w.v)),
    Case("seeds", ValueError, "need positive counts", lambda w: popxl.create_seeds(1, offset=-2)),
    Case("no 64 bits", ValueError, "64 bits",
         lambda w: popxl.random_seed.uint64_to_two_uint32(-1)),
    Case("no 32 bits", ValueError, "32 bits",
         lambda w: popxl.random_seed.two_uint32_to_uint64(2**32, 0)),
    Case("alias called", NotImplementedError, "is an annotation only",
         lambda w: popxl.typing_.NewAliasAnnotation("Id", int)()),
    Case("no hook", ValueError, "There is no hook 0",
         lambda w: popxl.context.get_current_context().remove_op_created_hook(0)),
    Case("no frame", IndexError, "frame 10000 was asked for",
         lambda w: popxl.context.get_source_location(10000)),
    Case("collective operator", ValueError, "Not a valid op: 'sub'",
         lambda w: popxl.ops.collectives.collectives.to_collective_op("sub")),
    Case("levels", ValueError, "must increase",
         lambda w: module("popxl.ops.histogram").check_increment([1.0, 1.0])),
    Case("slice lengths", ValueError, "must be of one length",
         lambda w: module("popxl.ops.slice").process_args([0], [1, 2])),
    Case("code source", ValueError, "from 'remote' or 'executable'",
         lambda w: module("popxl.ops.code_copy").code_copy(w.main, "disk", "executable")),
    Case("no attribute", AttributeError, "did you mean 'Ir'",
         lambda w: module("popxl.ir").Irr),
    Case("8-bit format", TypeError, "is not an 8-bit float",
         lambda w: popxl.fp8_utils.host_pow2scale_cast_to_fp8(1.0, popxl.float16)),
    Case("8-bit scale", ValueError, "log2_scale must be from -32 to 31, got 40",
         lambda w: popxl.fp8_utils.host_pow2scale_cast_to_fp8(1.0, log2_scale=40)),
    Case("8-bit scale of integers", TypeError, "a scale is for arrays of float16 or float32",
         lambda w: popxl.fp8_utils.host_fp8_mse_scale(np.arange(4))),
    Case("stride", ValueError, "Stride must be a positive number",
         lambda w: w.ir.replica_grouping(stride=0)),
    Case("stride of 4", ValueError, r"Stride \(3\) must be a factor",
         lambda w: w.ir.replica_grouping(stride=3)),
    Case("group size", ValueError, "Group size must be a positive number",
         lambda w: w.ir.replica_grouping(group_size=5)),
    Case("groups of 4", ValueError, "do not divide 4 replicas",
         lambda w: w.ir.replica_grouping(stride=2, group_size=3)),
    Case("assignments", ValueError, "must match the number of",
         lambda w: w.ir.replica_grouping_from_assignments([0, 1])),
    Case("uneven groups", ValueError, "same number of replicas",
         lambda w: w.ir.replica_grouping_from_assignments([0, 0, 0, 1])),
]  # fmt: skip

OPERATIONS = [
    Case("name", AttributeError, "has no operation 'mattmul'.*matmul", lambda w: ops.mattmul),
    Case("call", TypeError, "popxl.ops.abs: .*argument", lambda w: ops.abs()),
    Case("no tensor", TypeError, "popxl.ops.add takes tensors, got None",
         lambda w: ops.add(w.v, None)),
    Case("types", popart_exception, "operands must have the same dtype", lambda w: w.v + w.h),
    Case("foreign operand", ValueError, "is not in the current graph",
         lambda w: ops.abs(w.graph.inputs[0])),
    Case("shapes", popart_exception, r"popxl.ops.matmul\(float32\[2, 3\], float32\[2, 3\]\)",
         lambda w: w.x @ w.x),
    Case("reshape", ValueError, "Invalid shape value in reshape", lambda w: w.x.reshape((-2, 3))),
    Case("reshape -1", ValueError, "at most one '-1'", lambda w: w.x.reshape((-1, -1))),
    Case("slice", ValueError, "must be of one length", lambda w: ops.slice(w.x, [0], [1, 2])),
    Case("slice axis", popart_exception, r"popxl.ops.slice.*: there is no dimension 5",
         lambda w: ops.slice(w.x, 0, 1, axis=5)),
    Case("softmax axis", ValueError, "axis 5 of a softmax is out of range",
         lambda w: ops.softmax(w.x, 5)),
    Case("norm groups", ValueError, "num_groups=0 must divide the 3 channels",
         lambda w: ops.group_norm(w.x, w.v, w.v, 0)),
    Case("no buffer", TypeError, "Expected a buffer of popxl.remote_buffer, got 3",
         lambda w: popxl.remote_variable(np.ones(2, np.float32), 3)),
    Case("input of the main graph", ValueError, "The main graph has no inputs",
         lambda w: popxl.graph_input((2,), popxl.float32)),
    Case("no group", TypeError, "Expected a group of ir.replica_grouping, got 3",
         lambda w: popxl.replica_sharded_buffer((2,), popxl.float32, replica_grouping=3)),
    Case("recursion", ValueError, "would never end", lambda w: ops.call(w.ir.main_graph)),
    Case("subsampled dimensions", ValueError, "2 dimensions need as many strides",
         lambda w: ops.subsample(w.x, [2])),
    Case("subsample", ValueError, "strides must be at least 1",
         lambda w: ops.subsample(w.x, [0, 1])),
    Case("squeeze", ValueError, "is not of size 1", lambda w: ops.squeeze(w.x, [0])),
    Case("split", ValueError, "do not split into 2 equal parts", lambda w: ops.split(w.x, 2, 1)),
    Case("conv pads", ValueError, "pad_type must be one of",
         lambda w: ops.conv(w.image, w.image, pad_type="full")),
    Case("conv_transpose pads", ValueError, "pad_type must be one of",
         lambda w: ops.conv_transpose(w.image, w.image, pad_type="full")),
    Case("storage_order", ValueError, "must be 'row' or 'column'",
         lambda w: ops.max_pool(w.image, (2, 2), storage_order="tile")),
    Case("in_dilations", ValueError, "Dilations of a pool's input",
         lambda w: ops.average_pool(w.image, (2, 2), in_dilations=(2, 2))),
    Case("interpolate scales", ValueError, "need as many scales",
         lambda w: ops.interpolate(w.image, (2.0, 2.0))),
    Case("interpolate mode", ValueError, "mode must be one of",
         lambda w: ops.interpolate(w.image, mode="sharp")),
    Case("groupedgather", ValueError, "the first dimension must count 3 groups",
         lambda w: ops.groupedgather(w.x, w.i, 1, 3)),
    Case("scatter_reduce", ValueError, "reduction must be one of",
         lambda w: ops.scatter_reduce(w.v, w.i, "mode", axis_size=2)),
    Case("scatter_reduce size", ValueError, "axis_size or initial_values",
         lambda w: ops.scatter_reduce(w.v, w.i, "sum")),
    Case("scatter_reduce indices", ValueError, "indices are of the shape of the data, \\(2, 3\\)",
         lambda w: ops.scatter_reduce(w.x, w.i, "sum", axis_size=2, enable_index_broadcast=False)),
    Case("reduction axis", popart_exception, "there is no dimension 5",
         lambda w: ops.sum(w.x, 5)),
    Case("slice sizes", ValueError, "must have the same length",
         lambda w: ops.dynamic_slice(w.x, w.i, [0, 1], [1], True)),
    Case("classes", ValueError, "num_classes is the size of a dimension",
         lambda w: ops.onehot(w.i, w.i + 1, popxl.constant([0, 1]), 1)),
    Case("dynamic_slice", ValueError, r"1 axes need as many indices, or .*, got \(2,\)",
         lambda w: ops.dynamic_slice(w.x, w.i, [0], [1], True)),
    Case("nll_loss", ValueError, "reduction must be one of",
         lambda w: ops.nll_loss(w.x, w.i, reduction="median")),
    Case("seed", ValueError, "a seed has two words",
         lambda w: ops.dropout(w.x, popxl.variable(np.ones(3, np.uint32)), 0.5)),
    Case("ratio", ValueError, "must be from 0 to below 1", lambda w: ops.dropout(w.x, w.seed, 1.5)),
    Case("init", ValueError, "Unknown init_type: ones",
         lambda w: ops.init((2,), popxl.float32, init_type="ones")),
    Case("stored type", ValueError, "dtypes of stream and tensor",
         lambda w: ops.host_store(popxl.d2h_stream((2,), popxl.float16), w.v)),
    Case("stored shape", ValueError, "shapes of stream and tensor",
         lambda w: ops.host_store(popxl.d2h_stream((3,), popxl.float32), w.v)),
    Case("code", ValueError, "Code is loaded to 'executable'",
         lambda w: ops.remote_code_load(w.graph, "buffer")),
    Case("to 8 bits", TypeError, "Only floats of 16 and 32 bits",
         lambda w: ops.pow2scale_cast_to_fp8(w.i, 0, popxl.float8_143)),
    Case("from 8 bits", TypeError, "become floats of 16 or 32 bits",
         lambda w: ops.pow2scale_cast_from_fp8(w.code, 0, popxl.int32)),
    Case("8-bit product", TypeError, "takes 8-bit floats",
         lambda w: ops.matmul_pow2scaled(w.x, w.x, 0)),
    Case("bias correction", ValueError, "Bias correction requires both",
         lambda w: ops.var_updates.adam_updater(w.v, w.v, time_step=w.s, beta1=0.9)),
    Case("weight decay", ValueError, "Weight decay requires weight",
         lambda w: ops.var_updates.lamb_updater(w.v, w.v, weight_decay=0.1)),
    Case("adamax", ValueError, "AdaMax requires time_step",
         lambda w: ops.var_updates.adamax_updater(w.v, w.v)),
    Case("collective", ValueError, "Not a valid op: 'median'",
         lambda w: ops.collectives.replicated_all_reduce(w.v, "median")),
    Case("foreign grouping", ValueError, "has 2 replicas, the Ir 4",
         lambda w: ops.collectives.replicated_all_reduce(
             w.v, group=popxl.Ir(replication=2).replica_grouping())),
    Case("non-constant stride", ValueError, "does not have a constant stride",
         lambda w: ops.collectives.replicated_all_reduce(
             w.v, group=w.ir.replica_grouping_from_assignments([0, 1, 1, 0]))),
    Case("gather's shape", ValueError, "output_shape must be",
         lambda w: ops.collectives.replicated_all_gather(w.v, output_shape="stack")),
    Case("no shard", ValueError, "is not a shard",
         lambda w: ops.collectives.replicated_all_gather(w.v, output_shape="meta_shape")),
    Case("replicated_slice", ValueError, "axis must be from -1 to 0",
         lambda w: ops.collectives.replicated_slice(w.v, 1)),
    Case("replicated_all_gather", ValueError, "axis must be from -2 to 1",
         lambda w: ops.collectives.replicated_all_gather(w.v, 2, None, "new_axis")),
    Case("replicated_slice", ValueError, "does not divide into 4 equal parts",
         lambda w: ops.collectives.replicated_slice(w.v)),
    Case("chips", ValueError, "2 tensors, but 1 chips",
         lambda w: ops.collectives.all_reduce(two_chips(w), ipus=[0])),
    Case("same chip", ValueError, "on a separate chip",
         lambda w: ops.collectives.all_reduce(two_chips(w), ipus=[0, 0])),
]  # fmt: skip

CALLS = [
    Case("too many", ValueError, "Too many inputs have been provided",
         lambda w: ops.call(w.graph, w.v, w.s, w.s)),
    Case("too few", ValueError, "Not enough inputs have been provided",
         lambda w: ops.call(w.graph, w.v)),
    Case("twice", ValueError, "specified twice",
         lambda w: ops.call(w.graph, w.v, w.s, inputs_dict={w.graph.inputs[0]: w.v})),
    Case("no input", ValueError, "is not in the called graph",
         lambda w: ops.call(w.graph, w.v, inputs_dict={w.v: w.s})),
    Case("wrong graph", ValueError, "which is not a tensor of the current graph",
         lambda w: ops.call(w.graph, w.graph.inputs[0], w.s)),
    Case("wrong type", popart_exception, r"is float32 \(2,\), but h is float16",
         lambda w: ops.call(w.graph, w.h, w.s)),
    Case("graph_to_parent", ValueError, "neither an input nor an output of the graph called",
         lambda w: w.call.graph_to_parent(w.v)),
    Case("parent_to_graph", ValueError, "neither an input nor an output of this call",
         lambda w: w.call.parent_to_graph(w.x)),
    Case("parent_input", IndexError, "There is no input 5", lambda w: w.call.parent_input(5)),
    Case("modified", ValueError, "is not an input of this call",
         lambda w: w.call.set_parent_input_modified(w.x)),
    Case("repeat", ValueError, "Repeat count must be >= 0",
         lambda w: ops.repeat(w.graph, -1, w.v, w.s)),
    Case("repeat outputs", ValueError, "at least as many inputs as outputs",
         lambda w: ops.repeat(w.made(lambda t: [t + 1.0, t + 2.0], w.v), 2, w.v)),
    Case("repeat types", ValueError, "must be like input",
         lambda w: ops.repeat(w.made(ops.sum, w.v), 2, w.v)),
    Case("condition", ValueError, "is one boolean",
         lambda w: ops.conditional(w.v, w.graph, w.graph, [w.v, w.s], [w.v, w.s])),
    Case("branches", ValueError, "same number of outputs",
         lambda w: ops.conditional(w.flag, w.graph, w.made(lambda t: None, w.v), [w.v, w.s],
                                   [w.v])),
    Case("branch outputs", ValueError, "Outputs of the branches differ",
         lambda w: ops.conditional(w.flag, w.graph, w.made(ops.sum, w.v), [w.v, w.s],
                                   [w.v])),
    Case("branch by reference", NotImplementedError, "by value",
         lambda w: ops.conditional(w.flag, w.made(writing, w.v), w.made(writing, w.v), [w.v],
                                   [w.v])),
    Case("branch_to_parent", ValueError, "neither an input nor an output of a branch",
         lambda w: ops.conditional_with_info(w.flag, w.graph, w.graph, [w.v, w.s], [w.v, w.s])
         .graph_to_parent(w.x)),
    Case("main gradient", popart_exception, "The main graph cannot be differentiated",
         lambda w: autodiff(w.main)),
    Case("foreign gradient", ValueError, "is not a tensor of graph",
         lambda w: autodiff(w.graph, grads_required=[w.v])),
    Case("gradient of writes", popart_exception, "contains a modifying op", gradient_of_writes),
    Case("gradient of a writing loop", popart_exception, "writes some of its inputs",
         gradient_of_a_writing_loop),
    Case("no gradient", popart_exception, "ReplicatedAllReduce .* has no gradient",
         lambda w: autodiff(w.made(ops.collectives.replicated_all_reduce, w.v))),
    Case("closed graph", popart_exception, "marked as unsafe to autodiff as a part of",
         gradient_of_a_closed_graph),
    Case("another call", TypeError, "but the gradient is that of", gradient_for_another_call),
]  # fmt: skip

SESSIONS = [
    Case("no Ir", TypeError, "A Session runs a popxl.Ir, got int", lambda w: popxl.Session(1)),
    Case("device", ValueError, "device_desc must be one of", lambda w: popxl.Session(w.ir, "gpu")),
    Case("small device", popart_exception, "The program needs 4 IPUs",
         lambda w: popxl.Session(
             w.ir, popart.DeviceManager().createIpuModelDevice({"numIPUs": 2}))),
    Case("detached", ValueError, "is not attached", lambda w: popxl.Session(w.ir).run()),
    Case("missing", ValueError, r"missing \['in'\], unexpected none",
         lambda w: running(w, lambda _w: {})),
    Case("by name", TypeError, "are given by stream",
         lambda w: running(w, lambda _w: {"in": np.zeros(2)})),
    Case("array shape", ValueError, r"must have shape \(2,\).* Got \(3,\)",
         lambda w: running(w, lambda w: {w.stream: np.zeros(3, np.float32)})),
    Case("array dtype", ValueError, "the array given for it int32",
         lambda w: running(w, lambda w: {w.stream: np.zeros(2, np.int32)})),
    Case("written dtype", TypeError, "convert the array first",
         lambda w: on(w, lambda s: s.write_variable_data(w.own, np.zeros(2, np.int32)))),
    Case("written operation", TypeError, "is not of type Variable",
         lambda w: on(w, lambda s: s.write_variable_data(s.ir.main_graph.ops[0].outputs[0], 1))),
    Case("written shape", ValueError, "on the host, got",
         lambda w: on(w, lambda s: s.write_variable_data(w.own, np.zeros(3, np.float32)))),
    Case("no variable", TypeError, "is not of type Constant or Variable",
         lambda w: on(w, lambda s: s.get_tensor_data(s.ir.main_graph.ops[0].outputs[0]))),
    Case("scale out of range", poplar_application_runtime_error, "from -32 to 31, got 50",
         out_of_range_scale),
    Case("other device", RuntimeError, "was made for a device of type Cpu", on_another_device),
    Case("foreign variable", ValueError, "belongs to another Ir",
         lambda w: on(w, lambda s: s.get_tensor_data(w.v))),
    Case("transfers", popart_runtime_error, "set ir.num_host_transfers", twice_loaded),
    Case("tiles", popart_exception, "cannot run on tiles: remote buffers hold", large_buffer),
    Case("branch", RuntimeError, "needs all replicas, but only", branch_with_collective),
]  # fmt: skip

CASES = [*GRAPHS, *DATA, *OPERATIONS, *CALLS, *SESSIONS]
