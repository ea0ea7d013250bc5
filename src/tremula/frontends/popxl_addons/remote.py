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
    spec: popxl.TensorSpec, entries: int = 1, shard_over: int = 1
) -> popxl.RemoteBuffer:
    """A buffer for tensors like this; of shards, if the tensor divides into `shard_over` parts."""
    if spec.meta_shape:
        return _sharded_buffer(spec.shape, spec.meta_shape, spec.dtype, entries)
    n_elements = prod(spec.shape)
    if shard_over > 1 and n_elements % shard_over == 0:
        return _sharded_buffer((n_elements // shard_over,), spec.shape, spec.dtype, entries)
    return popxl.remote_buffer(spec.shape, spec.dtype, entries)


def _sharded_buffer(
    shape: tuple[int, ...], whole: tuple[int, ...], dtype: popxl.dtype, entries: int
) -> popxl.RemoteBuffer:
    """A buffer of shards of one shape of tensors of another."""
    buffer = popxl.remote_buffer(shape, dtype, entries)
    buffer.meta_shape = tuple(whole)
    buffer.n_shards = -(-prod(whole) // prod(shape))
    return buffer


def named_buffers(
    tensors: NamedTensors, entries: int = 1, shard_over_dict: Mapping[str, int] | None = None
) -> NamedRemoteBuffers:
    """A buffer for each tensor."""
    over = shard_over_dict or {}
    return NamedRemoteBuffers.from_dict(
        {
            name: create_remote_buffer(t.spec, entries, over.get(name, 1))
            for name, t in tensors.to_dict().items()
        }
    )


def named_variable_buffers(
    factories: NamedVariableFactories,
    entries: int = 1,
    shard_over_dict: Mapping[str, int] | None = None,
) -> NamedRemoteBuffers:
    """A buffer for each variable; names in `shard_over_dict` are split across that many replicas.

    Without a dictionary each is shared out over all replicas that hold the same value of it.
    """
    groups = factories.replica_groupings.to_dict()
    over = (
        {name: group.const_rg.group_size for name, group in groups.items()}
        if shard_over_dict is None
        else shard_over_dict
    )
    buffers = {}
    for name, factory in factories.to_dict().items():
        spec = popxl.TensorSpec(factory.shape, factory.dtype, factory.meta_shape)
        buffers[name] = create_remote_buffer(spec, entries, over.get(name, 1))
    return NamedRemoteBuffers.from_dict(buffers)


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
    names, held = buffers.unpack()
    with graph:
        index = popxl.graph_input([], popxl.int32, "load_index")
        with ExitStack() as stack:
            _transfers(stack, use_io_tiles)
            loaded = [
                ops.remote_load(_with_entries(buffer, entries), index, name)
                for name, buffer in zip(names, held, strict=True)
            ]
        for t in loaded:
            popxl.graph_output(t)
    return GraphWithNamedArgs(graph), names


def store_remote_graph(
    buffers: NamedRemoteBuffers, entries: int = 1, use_io_tiles: bool = False
) -> GraphWithNamedArgs:
    """A graph that stores tensors, its named arguments, in the entry that its input says."""
    graph = popxl.gcg().ir.create_empty_graph("store_remote")
    names, held = buffers.unpack()
    args = {}
    with graph:
        index = popxl.graph_input([], popxl.int32, "store_index")
        for name, buffer in zip(names, held, strict=True):
            args[name] = popxl.graph_input(
                buffer.tensor_shape, buffer.tensor_dtype, name, meta_shape=buffer.meta_shape
            )
        with ExitStack() as stack:
            _transfers(stack, use_io_tiles)
            for name, buffer in zip(names, held, strict=True):
                ops.remote_store(_with_entries(buffer, entries), index, args[name])
    return GraphWithNamedArgs(graph, NamedTensors.from_dict(args))


def _with_entries(buffer: popxl.RemoteBuffer, entries: int) -> popxl.RemoteBuffer:
    buffer.entries = max(buffer.entries, entries)
    return buffer
