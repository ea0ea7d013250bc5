"""Lowerings of tensors that are sharded over replicas: own parts, gathered wholes, sums."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod

from tremula.base.types import Type
from tremula.ir.lowering.layouts import preferred_layout
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence as Program
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import gcl, popops
from tremula.poplibs.gcl.rings import replica_number
from tremula.poplibs.popops.elementwise.expr import _1
from tremula.poplibs.popops.slicing.dynamic_slice import dynamic_slice


def add_shard(graph: Graph, type: Type, n_elements: int, name: str) -> Tensor:
    """A variable for one replica's part, spread as collectives spread it."""
    return popops.create_sliceable_tensor(graph, type, (1, n_elements), name=name)[0]


def scattered_together(
    graph: Graph, tensors: Sequence[Tensor], n_replicas: int, sequence: Program, name: str
) -> list[Tensor]:
    """Sums over replicas, scattered as `gcl.reduce_scatter` does with each, in one collective.

    Replica r's part of all is one row: its parts of each tensor, one after another.
    """
    lengths = [-(-tensor.n_elems // n_replicas) for tensor in tensors]
    pieces = []
    for r in range(n_replicas):
        for tensor, length in zip(tensors, lengths, strict=True):
            begin = min(r * length, tensor.n_elems)
            end = min(begin + length, tensor.n_elems)
            pieces.append(tensor.flatten().slice(begin, end))
            if end - begin < length:
                shape = [length - (end - begin)]
                pieces.append(graph.add_constant(tensor.type, shape, 0, mapping=0))
    own = gcl.reduce_scatter(graph, concat(pieces), "ADD", sequence, name)
    ends = list(accumulate(lengths))
    return [own.slice(e - n, e) for n, e in zip(lengths, ends, strict=True)]


@lowers("tremula::own_shard", calls="popops.dynamic_slice")
def own_shard(tiles: Tiles, x: Tensor, n_replicas: int) -> Tensor:
    """Replica r's part: row r of the tensor cut into as many rows as there are replicas."""
    number = replica_number(tiles.graph, tiles.sequence, tiles.name)
    return _part(tiles, x, n_replicas, number)


def _part(tiles: Tiles, x: Tensor, n_parts: int, number: Tensor) -> Tensor:
    """Row `number` of a tensor cut into rows, the last of them padded with zeros."""
    (length,) = tiles.out_shape
    parts = popops.create_sliceable_tensor(
        tiles.graph, x.type, (n_parts, length), name=f"{tiles.name}/parts"
    )
    flat = parts.flatten()
    tiles.copy(x.flatten(), flat.slice(0, x.n_elems))
    if x.n_elems < flat.n_elems:
        rest = flat.slice(x.n_elems, flat.n_elems)
        popops.zero(tiles.graph, rest, tiles.sequence, tiles.name)
    result = dynamic_slice(
        tiles.graph, parts, number, tiles.sequence, tiles.name, dims=(0,), sizes=(1,)
    )
    return result.reshape((length,))


@lowers("tremula::gathered", calls="gcl.all_gather")
def gathered(tiles: Tiles, shard: Tensor, shape: Sequence[int], _n_replicas: int) -> Tensor:
    """The whole of which every replica has a part."""
    parts = gcl.all_gather(tiles.graph, shard, tiles.sequence, tiles.name)
    return _whole(tiles, parts, shape)


def _whole(tiles: Tiles, parts: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor that these are the parts of, laid out as its reader wants it."""
    whole = parts.flatten().slice(0, prod(shape)).reshape(tuple(shape))
    target = tiles.destination
    if target is None:  # as its reader wants it
        target = preferred_layout(tiles.node, lambda user: replace(tiles, node=user))
    if target is None:
        return whole
    tiles.copy(whole, target)
    return target


@lowers("tremula::sum_over_replicas", calls="gcl.all_reduce")
def sum_over_replicas(tiles: Tiles, x: Tensor) -> Tensor:
    return gcl.all_reduce(tiles.graph, x, "ADD", tiles.sequence, tiles.name)


# -- within groups of replicas ---------------------------------------------------------------------


@lowers("tremula::replica_number", calls="add_replication_index_constant")
def number_of_replica(tiles: Tiles) -> Tensor:
    number = replica_number(tiles.graph, tiles.sequence, tiles.name)
    own = tiles.graph.add_variable(number.type, number.shape, f"{tiles.name}/replica", mapping=0)
    tiles.copy(number, own)
    return own.reinterpret(tiles.out_type).reshape(())


@lowers("tremula::group_all_reduce", calls="gcl.all_reduce")
def group_all_reduce(tiles: Tiles, x: Tensor, operation: str, size: int, stride: int) -> Tensor:
    group = gcl.ReplicaGroup(size, stride)
    return gcl.all_reduce(tiles.graph, x, operation, tiles.sequence, tiles.name, group=group)


@lowers("tremula::group_all_gather", calls="gcl.all_gather")
def group_all_gather(tiles: Tiles, x: Tensor, size: int, stride: int) -> Tensor:
    group = gcl.ReplicaGroup(size, stride)
    return gcl.all_gather(tiles.graph, x, tiles.sequence, tiles.name, group=group)


@lowers("tremula::group_gathered", calls="gcl.all_gather")
def group_gathered(
    tiles: Tiles, shard: Tensor, shape: Sequence[int], size: int, stride: int
) -> Tensor:
    group = gcl.ReplicaGroup(size, stride)
    parts = gcl.all_gather(tiles.graph, shard, tiles.sequence, tiles.name, group=group)
    return _whole(tiles, parts, shape)


@lowers("tremula::group_reduce_scatter", calls="gcl.reduce_scatter")
def group_reduce_scatter(tiles: Tiles, x: Tensor, operation: str, size: int, stride: int) -> Tensor:
    group = gcl.ReplicaGroup(size, stride)
    return gcl.reduce_scatter(tiles.graph, x, operation, tiles.sequence, tiles.name, group=group)


@lowers("tremula::group_shard", calls="popops.dynamic_slice")
def group_shard(tiles: Tiles, x: Tensor, size: int, stride: int) -> Tensor:
    """A member's part: its number in the group chooses the row."""
    number = replica_number(tiles.graph, tiles.sequence, tiles.name)
    own = (_1 / stride) % size
    member = popops.map(tiles.graph, own, [number], tiles.sequence, f"{tiles.name}/member")
    return _part(tiles, x, size, member)
