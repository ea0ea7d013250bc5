"""Functions that make tensors: variables, constants, inputs and outputs of graphs."""

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from tremula.frontends.popxl.core.context import get_current_graph, get_main_graph
from tremula.frontends.popxl.core.host_data import HostData, as_host_data, is_read_only
from tremula.frontends.popxl.core.registry import public
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer, shard_size
from tremula.frontends.popxl.core.tensor import Constant, RetrievalMode, Tensor, Variable
from tremula.frontends.popxl.dtypes import dtype, to_array
from tremula.frontends.popxl.fp8_utils import host_pow2scale_cast_to_fp8
from tremula.frontends.popxl.replica_grouping import ReplicaGrouping

_MODES = ("one_per_group", "all_replicas")


@public
def constant(
    data: object,
    dtype: dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Constant:
    """A tensor whose values are part of the program; in any graph."""
    graph = get_current_graph()
    graph.ir.check_open()
    try:
        array = _array(data, dtype, downcast, log2_scale, nan_on_overflow)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{data!r} cannot become a constant tensor: {error}") from error
    type_ = _type_of(array)
    made = Constant._make(graph, name or "t", array.shape, type_)
    made.data = array.copy() if array is data else array
    return made


def _array(
    data: object,
    type_: dtype | None,
    downcast: bool,
    log2_scale: int | None,
    nan_on_overflow: bool | None,
) -> np.ndarray:
    """Host data in its type; 8-bit floats are made with a scale."""
    if type_ is not None and type_.is_float8 and log2_scale is not None:
        scale, is_nan = log2_scale, nan_on_overflow is not False
        return host_pow2scale_cast_to_fp8(np.asarray(data), type_, scale, is_nan)
    if data is None or isinstance(data, str):
        raise TypeError("it holds no numbers")
    result = to_array(data, type_, downcast)
    if result.dtype == object:
        raise TypeError("it holds no numbers")
    return result


def _type_of(array: np.ndarray) -> dtype:
    return dtype.as_dtype(array.dtype)


def variable(
    data: object,
    dtype: dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A tensor that keeps its values between runs; on the main graph only."""
    if dtype is not None and dtype.is_float8 and log2_scale is not None:
        data = _array(data, dtype, downcast, log2_scale, nan_on_overflow)
    return _variable(data, dtype, name, downcast, replica_grouping, retrieval_mode)


def _variable(
    data: object,
    type_: dtype | None,
    name: str | None,
    downcast: bool,
    grouping: ReplicaGrouping | None,
    mode: RetrievalMode | None,
) -> Variable:
    graph = get_current_graph()
    if not graph.is_main:
        raise ValueError(
            f"Variable tensors can only be created in the main graph, not in {graph.id}:"
            " create it there and pass it as an input"
        )
    graph.ir.check_open()
    chosen: ReplicaGrouping = grouping or graph.ir.replica_grouping()
    if mode not in (None, *_MODES):
        raise ValueError(f"Retrieval mode must be one of {_MODES}, got {mode!r}")
    array, type_ = as_host_data(data, type_, downcast)
    shape = tuple(array.shape)
    n_groups = chosen.num_groups
    if n_groups > 1:
        if not shape or shape[0] != n_groups:
            raise ValueError(
                f"The first dimension of the data must match the number of groups: shape {shape},"
                f" {n_groups} groups of replicas"
            )
        shape = shape[1:]
    made = Variable._make(graph, name or "t", shape, type_)
    made.data = _private_copy(array) if array is data else array
    made._grouping, made._mode = chosen, mode or "one_per_group"
    made.remote, made.shard, made.synced = None, None, True
    made.is_read_only = is_read_only(array)
    return made


def _private_copy(data: HostData) -> HostData:
    """A copy of an ordinary array; maps, lazy arrays and repeated elements stay as they are."""
    is_repeated = isinstance(data, np.ndarray) and 0 in data.strides
    return data.copy() if type(data) is np.ndarray and not is_repeated else data


def remote_variable(
    data: object,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable that lives in an entry of a remote buffer."""
    made = variable(
        data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow
    )
    remote_buffer.check_offset(offset)
    remote_buffer.validate_tensor_matches_buffer(made)
    made.remote = (remote_buffer, offset)
    return made


def remote_replica_sharded_variable(
    data: object,
    remote_buffer: RemoteBuffer,
    offset: int = 0,
    dtype: dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    retrieval_mode: RetrievalMode | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> Variable:
    """A variable of which each replica has a shard in an entry of a remote buffer."""
    made = variable(
        data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow
    )
    remote_buffer.check_offset(offset)
    if made.shape != remote_buffer.meta_shape:
        raise ValueError(
            f"The data shape {made.shape} does not match the whole shape of the sharded buffer,"
            f" {remote_buffer.meta_shape}: make it with popxl.replica_sharded_buffer"
        )
    if made.dtype != remote_buffer.tensor_dtype:
        raise ValueError(
            f"The data dtype {made.dtype!r} does not match the buffer dtype"
            f" {remote_buffer.tensor_dtype!r}"
        )
    made.remote = (remote_buffer, offset)
    return made


def replica_sharded_variable(
    data: object,
    dtype: dtype | None = None,
    name: str | None = None,
    downcast: bool = True,
    replica_grouping: ReplicaGrouping | None = None,
    shard_over: int | None = None,
    retrieval_mode: RetrievalMode | None = None,
    log2_scale: int | None = None,
    nan_on_overflow: bool | None = None,
) -> tuple[Variable, Tensor]:
    """A variable, and the tensor that is each replica's shard of it and keeps its values, too."""
    made = variable(
        data, dtype, name, downcast, replica_grouping, retrieval_mode, log2_scale, nan_on_overflow
    )
    graph = get_main_graph()
    n = shard_size(graph.ir, made.replica_grouping, shard_over)
    shape = (ceil(prod(made.shape) / n),)
    shard = graph.new_tensor(f"{made.name}_shard", shape, made.dtype, made.shape)
    made.shard = (shard, n)
    return made, shard


def graph_input(
    shape: Sequence[int],
    dtype: dtype,
    name: str | None = None,
    by_ref: bool = False,
    meta_shape: Sequence[int] | None = None,
) -> Tensor:
    """One more input of the graph that is open."""
    graph = get_current_graph()
    graph.ir.check_open()
    t = graph.new_tensor(name or "t", tuple(int(n) for n in shape), dtype, tuple(meta_shape or ()))
    graph.mark_input(t, by_ref)
    return t


def graph_output(t: Tensor) -> None:
    """Make a tensor of the graph that is open an output of it."""
    graph = get_current_graph()
    graph.ir.check_open()
    graph.mark_as_output(t)
