"""Named remote buffers, and graphs that load and store them."""

from collections.abc import Mapping
from contextlib import ExitStack
from math import prod

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.dot_tree import DotTree
from tremula.frontends.popxl_addons.named.factories import NamedVariableFactories
from tremula.frontends.popxl_addons.named.tensors import NamedTensors


class NamedRemoteBuffers(DotTree[popxl.RemoteBuffer]):
    """Remote buffers by the names of what they hold."""


def create_remote_buffer(
    spec: popxl.TensorSpec | popxl.Tensor,
    entries: int = 1,
    replica_group: popxl.ReplicaGrouping | None = None,
    shard_over: int | None = None,
) -> popxl.RemoteBuffer:
    """A buffer for tensors like this one, or for shards of them.

    `replica_group` are replicas that have the same tensor, of which `shard_over` (by default all)
    have a shard each; 1 keeps tensors whole. The spec of a shard gives a buffer of such shards.
    """
    if spec.meta_shape:
        return _sharded_buffer(spec.shape, spec.meta_shape, spec.dtype, entries)
    if shard_over is None:
        whole: popxl.ReplicaGrouping = popxl.gcg().ir.replica_grouping()
        shard_over = (whole if replica_group is None else replica_group.const_rg).group_size
    if shard_over <= 1:
        return popxl.remote_buffer(spec.shape, spec.dtype, entries)
    n_elements = prod(spec.shape)
    if n_elements % shard_over:
        raise ValueError(
            f"Cannot shard a tensor of {n_elements} elements, {spec.shape}, over {shard_over}"
            " replicas: pass shard_over=1 to keep it whole"
        )
    return _sharded_buffer((n_elements // shard_over,), spec.shape, spec.dtype, entries)


def _sharded_buffer(
    shape: tuple[int, ...], whole: tuple[int, ...], dtype: popxl.dtype, entries: int
) -> popxl.RemoteBuffer:
    """A buffer of shards of one shape of tensors of another."""
    buffer = popxl.remote_buffer(shape, dtype, entries)
    buffer.meta_shape = tuple(whole)
    buffer.n_shards = -(-prod(whole) // prod(shape))
    return buffer


def named_buffers(tensors: NamedTensors, entries: int = 1) -> NamedRemoteBuffers:
    """A buffer for each tensor, of shards for shards."""
    return NamedRemoteBuffers.from_dict(
        {
            name: create_remote_buffer(t.spec, entries, shard_over=1)
            for name, t in tensors.to_dict().items()
        }
    )


def named_variable_buffers(
    factories: NamedVariableFactories,
    entries: int = 1,
    shard_over_dict: Mapping[str, int] | int | bool = True,
) -> NamedRemoteBuffers:
    """A buffer for each variable.

    `shard_over_dict` says over how many of the replicas that have the same value each is sharded: a
    number for each name or for all (1: not at all), all of them (True), or none (False).
    """
    buffers = {}
    for name, factory in factories.to_dict().items():
        spec = popxl.TensorSpec(factory.shape, factory.dtype, factory.meta_shape)
        group = factory.replica_grouping
        over = _n_shards(name, shard_over_dict, group.const_rg.group_size)
        buffers[name] = create_remote_buffer(spec, entries, group, over)
    return NamedRemoteBuffers.from_dict(buffers)


def _n_shards(name: str, shard_over: Mapping[str, int] | int | bool, group_size: int) -> int:
    if isinstance(shard_over, Mapping):
        return shard_over.get(name) or group_size
    if isinstance(shard_over, bool):
        return group_size if shard_over else 1
    if not isinstance(shard_over, int):
        raise ValueError(  # noqa: TRY004  as PopXL does
            f"shard_over_dict must be a dictionary, an integer or a boolean, got {shard_over!r}"
        )
    if not 1 <= shard_over <= group_size:
        raise ValueError(
            f"{name} has the same value on {group_size} replicas: it can be sharded over"
            f" 1 to {group_size} of them, got shard_over_dict={shard_over}"
        )
    return shard_over


def _transfers(stack: ExitStack, use_io_tiles: bool) -> None:
    """One exchange of transfers that do not depend on each other."""
    stack.enter_context(popxl.transforms.merge_exchange())
    stack.enter_context(popxl.in_sequence(False))
    if use_io_tiles:
        stack.enter_context(popxl.io_tiles())


def load_remote(
    buffers: NamedRemoteBuffers, entry: int | popxl.Tensor = 0, use_io_tiles: bool = False
) -> NamedTensors:
    """An entry of each buffer, here."""
    with ExitStack() as stack:
        _transfers(stack, use_io_tiles)
        loaded = {name: ops.remote_load(b, entry, name) for name, b in buffers.to_dict().items()}
    return NamedTensors.from_dict(loaded)


def store_remote(
    buffers: NamedRemoteBuffers,
    tensors: NamedTensors,
    entry: int | popxl.Tensor = 0,
    use_io_tiles: bool = False,
) -> None:
    """Tensors into an entry of the buffers of their names."""
    with ExitStack() as stack:
        _transfers(stack, use_io_tiles)
        for buffer, tensor in buffers.to_mapping(tensors).items():
            ops.remote_store(buffer, entry, tensor)


def load_remote_graph(
    buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph from an entry's number to the tensors there, and their names.

    graph, names = load_remote_graph(buffers)
    tensors = NamedTensors.pack(names, graph.call(0))
    """
    graph = popxl.gcg().ir.create_empty_graph("load_remote")
    names, chosen = buffers.unpack()
    with graph:
        index = popxl.graph_input([], popxl.int32, "load_index")
        with ExitStack() as stack:
            _transfers(stack, use_io_tiles)
            loaded = [
                ops.remote_load(_with_entries(buffer, entries), index, name)
                for name, buffer in zip(names, chosen, strict=True)
            ]
        for t in loaded:
            popxl.graph_output(t)
    return GraphWithNamedArgs(graph), names


def store_remote_graph(
    buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False
) -> GraphWithNamedArgs:
    """A graph that stores tensors, its named arguments, in the entry that its input says."""
    graph = popxl.gcg().ir.create_empty_graph("store_remote")
    names, chosen = buffers.unpack()
    args = {}
    with graph:
        index = popxl.graph_input([], popxl.int32, "store_index")
        for name, buffer in zip(names, chosen, strict=True):
            args[name] = popxl.graph_input(
                buffer.tensor_shape, buffer.tensor_dtype, name, meta_shape=buffer.meta_shape
            )
        with ExitStack() as stack:
            _transfers(stack, use_io_tiles)
            for name, buffer in zip(names, chosen, strict=True):
                ops.remote_store(_with_entries(buffer, entries), index, args[name])
    return GraphWithNamedArgs(graph, NamedTensors.from_dict(args))


def _with_entries(buffer: popxl.RemoteBuffer, entries: int) -> popxl.RemoteBuffer:
    buffer.entries = max(buffer.entries, entries)
    return buffer
