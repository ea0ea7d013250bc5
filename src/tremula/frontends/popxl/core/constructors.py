"""Functions that make tensors: variables, constants, inputs and outputs of graphs."""

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from tremula.frontends.popart.logging import getLogger
from tremula.frontends.popxl.core.context import get_current_graph, get_main_graph
from tremula.frontends.popxl.core.host_data import (
    HostData,
    as_host_data,
    is_read_only,
    to_numpy,
)
from tremula.frontends.popxl.core.registry import public
from tremula.frontends.popxl.core.remote_buffer import RemoteBuffer, shard_size
from tremula.frontends.popxl.core.tensor import Constant, RetrievalMode, Tensor, Variable
from tremula.frontends.popxl.dtypes import dtype
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
    except RuntimeError:
        raise
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
    if data is None or isinstance(data, str):
        raise TypeError("it holds no numbers")
    result = to_numpy(data, type_, downcast, False, log2_scale, nan_on_overflow)
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
    array, type_ = as_host_data(data, dtype, downcast, log2_scale, nan_on_overflow)
    array = _private_copy(array) if array is data else array
    return _variable(array, type_, name, replica_grouping, retrieval_mode)


def _variable(
    array: HostData,
    type_: dtype,
    name: str | None,
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
    shape = tuple(array.shape)
    n_groups = chosen.num_groups
    if n_groups > 1:
        if not shape or shape[0] != n_groups:
            raise ValueError(
                f"The first dimension of the data must match the number of groups: shape {shape},"
                f" {n_groups} groups of replicas"
            )
        shape = shape[1:]
    if isinstance(array, np.memmap) and not chosen.is_const:
        getLogger("popxl").warn(
            f"you have passed np.memmap data and the non-const replica grouping `{chosen}`: the"
            " values of each group are copied when they are written to the device"
        )
    made = Variable._make(graph, name or "t", shape, type_)
    made.data = array
    made._grouping, made._mode = chosen, mode or "one_per_group"
    made.remote, made.shard, made.synced = None, None, True
    made.is_read_only = is_read_only(array)
    return made


def _private_copy(data: HostData) -> HostData:
    """A copy of an ordinary array; maps, lazy arrays and repeated elements stay as they are."""
    is_repeated = isinstance(data, np.ndarray) and 0 in data.strides
    return data.copy() if type(data) is np.ndarray and not is_repeated else data


def _check_buffer(buffer: object) -> None:
    if not isinstance(buffer, RemoteBuffer):
        raise TypeError(f"Expected a buffer of popxl.remote_buffer, got {buffer!r}")


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
    _check_buffer(remote_buffer)
    array, type_ = as_host_data(data, dtype, downcast, log2_scale, nan_on_overflow)
    array = _without_group_axis(array, remote_buffer.tensor_shape, replica_grouping)
    remote_buffer.check_offset(offset)
    array = _private_copy(array) if array is data else array
    made = _variable(array, type_, name, replica_grouping, retrieval_mode)
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
    """A variable of which each replica has a shard in an entry of a remote buffer.

    A plain buffer, of the shape of one shard, becomes a sharded one for the shape of the data.
    """
    _check_buffer(remote_buffer)
    array, type_ = as_host_data(data, dtype, downcast, log2_scale, nan_on_overflow)
    if remote_buffer.meta_shape:
        array = _without_group_axis(array, remote_buffer.meta_shape, replica_grouping)
    array = _private_copy(array) if array is data else array
    remote_buffer.check_offset(offset)
    made = _variable(array, type_, name, replica_grouping, retrieval_mode)
    if not remote_buffer.meta_shape:
        _shard_plain_buffer(remote_buffer, made)
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


def _without_group_axis(
    array: HostData, shape: tuple[int, ...], grouping: ReplicaGrouping | None
) -> HostData:
    """Data without a leading axis of one group, where the shape that is wanted has none."""
    is_one_group = grouping is None or grouping.num_groups == 1
    if is_one_group and tuple(array.shape) == (1, *shape) and isinstance(array, np.ndarray):
        return array.reshape(shape)
    return array


def _shard_plain_buffer(buffer: RemoteBuffer, whole: Variable) -> None:
    """Let a buffer of shards know the shape of the whole, and over how many replicas it is cut."""
    n_parts = ceil(whole.nelms / max(prod(buffer.tensor_shape), 1))
    size = whole.replica_grouping.group_size
    if n_parts < 1 or size % n_parts or len(buffer.tensor_shape) != 1:
        raise ValueError(
            f"A buffer of shape {buffer.tensor_shape} holds no shards of a tensor of shape"
            f" {whole.shape}, which is cut into 1-D parts over {size} replicas: use a buffer of"
            f" shape {(ceil(whole.nelms / size),)}, or popxl.replica_sharded_buffer"
        )
    buffer.meta_shape, buffer.n_shards = whole.shape, n_parts


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
    if graph == graph.ir.main_graph:
        raise ValueError(
            "The main graph has no inputs, since nothing calls it: load data with ops.host_load, "
            "or call graph_input in a function of ir.create_graph"
        )
    t = graph.new_tensor(name or "t", tuple(int(n) for n in shape), dtype, tuple(meta_shape or ()))
    graph.mark_input(t, by_ref)
    return t


def graph_output(t: Tensor) -> None:
    """Make a tensor of the graph that is open an output of it."""
    graph = get_current_graph()
    graph.ir.check_open()
    graph.mark_as_output(t)
