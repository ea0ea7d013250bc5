"""Replicated tensor sharding: specs of shards, graphs that gather and reduce them."""

from collections.abc import Callable, Mapping

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.graph import GraphWithNamedArgs
from tremula.frontends.popxl_addons.named.replica_groupings import NamedReplicaGrouping
from tremula.frontends.popxl_addons.named.tensors import NamedTensors

Groups = NamedReplicaGrouping | None


def replica_sharded_spec(
    t: popxl.Tensor, shard_over: popxl.ReplicaGrouping | int | None = None
) -> popxl.TensorSpec:
    """The spec of a replica's shard of a tensor; that of the tensor if it does not divide."""
    if shard_over is None:
        size: int = popxl.gcg().ir.replication_factor
    else:
        size = shard_over if isinstance(shard_over, int) else shard_over.group_size
    if t.meta_shape or size == 1 or t.nelms % size:
        return t.spec
    return popxl.TensorSpec((t.nelms // size,), t.dtype, t.shape)


def gather_replica_sharded_tensor(
    t: popxl.Tensor,
    use_io_tiles: bool = False,
    replica_group: popxl.ReplicaGrouping | None = None,
) -> popxl.Tensor:
    """The whole of a shard; other tensors as they are."""
    if t.meta_shape:
        t = ops.collectives.replicated_all_gather(t, group=replica_group)
    return ops.io_tile_copy(t) if use_io_tiles else t


def reduce_replica_sharded_tensor(
    t: popxl.Tensor,
    op: str = "add",
    replica_group: popxl.ReplicaGrouping | None = None,
    shard_group: popxl.ReplicaGrouping | None = None,
) -> popxl.Tensor:
    """Reduce over `replica_group`, and keep this replica's shard of it in `shard_group`.

    If both are the same, one reduce-scatter does it. Tensors that do not divide stay whole.
    """
    whole: popxl.ReplicaGrouping = popxl.gcg().ir.replica_grouping()
    over = whole if replica_group is None else replica_group
    sharing = over if shard_group is None else shard_group
    is_sharded = sharing.group_size > 1 and t.nelms % sharing.group_size == 0
    if is_sharded and sharing == over:
        return ops.collectives.replicated_reduce_scatter(t, op, over, True)
    if over.group_size > 1:
        t = ops.collectives.replicated_all_reduce(t, op, over)
    return ops.collectives.replica_sharded_slice(t, sharing) if is_sharded else t


def all_gather_replica_sharded_graph(
    tensors: NamedTensors, use_io_tiles: bool = False, replica_groups: Groups = None
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph from shards, its named arguments, to whole tensors, and their names.

    graph, names = all_gather_replica_sharded_graph(shards)
    whole = NamedTensors.pack(names, graph.bind(shards).call())
    """
    groups = _groups(replica_groups)

    def gather(name: str, t: popxl.Tensor) -> popxl.Tensor:
        group = groups.get(name)
        return gather_replica_sharded_tensor(t, use_io_tiles, group and group.const_rg)

    return _graph_of_each("all_gather", tensors, gather)


def reduce_replica_sharded_graph(
    tensors: NamedTensors,
    op: str = "add",
    use_io_tiles: bool = False,
    shard_groups: Groups = None,
    replica_group: popxl.ReplicaGrouping | None = None,
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph from tensors, its named arguments, to what is left of them on a replica, reduced."""
    groups = _groups(shard_groups)

    def reduce(name: str, t: popxl.Tensor) -> popxl.Tensor:
        t = ops.io_tile_copy(t) if use_io_tiles else t
        group = groups.get(name)
        return reduce_replica_sharded_tensor(t, op, replica_group, group and group.const_rg)

    return _graph_of_each("replica_reduce", tensors, reduce)


def _groups(groups: Groups) -> Mapping[str, popxl.ReplicaGrouping]:
    return {} if groups is None else groups.to_dict()


def _graph_of_each(
    what: str, tensors: NamedTensors, function: Callable[[str, popxl.Tensor], popxl.Tensor]
) -> tuple[GraphWithNamedArgs, list[str]]:
    """A graph that does the same with each of its named arguments; names of its outputs."""
    graph = popxl.gcg().ir.create_empty_graph(what)
    names, like = tensors.unpack()
    args = {}
    with graph, popxl.in_sequence(False):
        for name, t in zip(names, like, strict=True):
            args[name] = popxl.graph_input(t.shape, t.dtype, name, meta_shape=t.meta_shape)
            popxl.graph_output(function(name, args[name]))
    return GraphWithNamedArgs(graph, NamedTensors.from_dict(args)), names
