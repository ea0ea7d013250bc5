"""Collectives over replicas, all or in groups: reduce, gather, scatter, swap, broadcast."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from tremula.base.errors import suggest
from tremula.base.replica_group import ReplicaGroup
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.graph_state import GraphState
from tremula.poplar.programs import Call, Copy, Function, Sequence, WriteUndef
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.gcl.groups import (
    Ring,
    best_ring,
    checked_group,
    levels_of,
    pairs_are_cheaper,
)
from tremula.poplibs.gcl.parts import Cuts, TileOrder, add_parts, by_tile, cut_where_it_lies
from tremula.poplibs.gcl.rings import (
    as_parts,
    by_member,
    by_place,
    gathered_parts,
    reduced_by_pairs,
    reduced_part,
    replica_number,
    swapped_parts,
    turned,
    turned_back,
)
from tremula.poplibs.popops import create_sliceable_tensor
from tremula.poplibs.popops.elementwise.expr import _1, _2, select
from tremula.poplibs.popops.elementwise.fill import fill
from tremula.poplibs.popops.elementwise.functions import (
    add_in_place,
    maximum_in_place,
    minimum_in_place,
    mul_in_place,
)
from tremula.poplibs.popops.elementwise.map import map as map_elements
from tremula.poplibs.poputil import clone_in_order, duplicate, replayed
from tremula.poplibs.poputil.layout_key import key_of_graph
from tremula.poplibs.registry import PoplibsError

TYPES = (FLOAT, HALF, INT, UNSIGNED_INT)
_COMBINE: dict[str, Callable] = {
    "ADD": add_in_place,
    "MEAN": add_in_place,
    "MUL": mul_in_place,
    "MIN": minimum_in_place,
    "MAX": maximum_in_place,
}


def all_reduce(
    graph: Graph,
    tensor: Tensor,
    operation: str,
    sequence: Sequence,
    name: str = "",
    *,
    group: ReplicaGroup | None = None,
) -> Tensor:
    """A new tensor: the ADD, MEAN, MUL, MIN or MAX of the tensors of all replicas, or of a group's.

    Every replica of a group gets the same, to the bit.
    """
    name = name or "allReduce"
    result = duplicate(graph, tensor, sequence, name)
    all_reduce_in_place(graph, result, sequence, name, operation=operation, group=group)
    return result


def all_reduce_in_place(
    graph: Graph,
    tensor: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    operation: str = "ADD",
    group: ReplicaGroup | None = None,
) -> None:
    """`all_reduce` in place.

    Small tensors are exchanged whole between pairs of replicas; large ones go around a ring in as
    many parts as there are replicas. Many replicas form rings of neighbours, whose members of equal
    place then form rings in turn.
    """
    name = name or "allReduce"
    combine_of("all_reduce", tensor, operation)
    ring = _ring(graph, tensor, group, "all_reduce")
    if ring is None:
        return
    graph.top.add_replication_index_constant()  # which no tape can hold, so it is made before
    order, n_bytes = by_tile(graph, tensor), tensor.n_elems * tensor.type.n_bytes
    if pairs_are_cheaper(graph, ring, n_bytes):
        _reduce_by_pairs(graph, order.flat, sequence, name, operation=operation, ring=ring)
        return
    near, far = levels_of(ring.group)
    ring = ring if far is None else best_ring(graph, near, -(-n_bytes // near.size))
    shared = _shared_sum(graph, order, Rings(ring, far), operation)
    there = shared.whole.slice(0, tensor.n_elems)
    sequence.add(WriteUndef(shared.whole))  # what the last call left is not live
    _copy(graph, order.flat, there, sequence)
    sequence.add(Call(shared.function))
    _copy(graph, there, order.flat, sequence)


@replayed
def _reduce_by_pairs(
    graph: Graph, flat: Tensor, sequence: Sequence, name: str, *, operation: str, ring: Ring
) -> None:
    reduced_by_pairs(graph, ring, flat, _COMBINE[operation], sequence, name)
    _divide(graph, ring, flat, operation, sequence, name)


@replayed
def _copy(graph: Graph, source: Tensor, target: Tensor, sequence: Sequence) -> None:  # noqa: ARG001
    sequence.add(Copy(source, target))


def all_reduce_in_groups_in_place(
    graph: Graph,
    tensor: Tensor,
    size: int,
    stride: int,
    sequence: Sequence,
    name: str = "",
    *,
    operation: str = "ADD",
) -> None:
    """`all_reduce_in_place` within groups of `size` replicas, `stride` apart."""
    group = ReplicaGroup(size, stride)
    all_reduce_in_place(graph, tensor, sequence, name, operation=operation, group=group)


def reduce_scatter(
    graph: Graph,
    tensor: Tensor,
    operation: str,
    sequence: Sequence,
    name: str = "",
    *,
    group: ReplicaGroup | None = None,
) -> Tensor:
    """A new vector: member m of a group gets part m of the reduced tensor.

    Parts are ceil(n_elems / members) long; the last are padded with the operation's identity, 0 for
    ADD.
    """
    name = name or "reduceScatter"
    combine_of("reduce_scatter", tensor, operation)
    ring = _ring(graph, tensor, group, "reduce_scatter")
    if ring is None:
        return duplicate(graph, tensor.flatten(), sequence, name)
    return _own_part(graph, ring, tensor, operation, sequence, name)


def all_gather(
    graph: Graph,
    tensor: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    group: ReplicaGroup | None = None,
) -> Tensor:
    """A new tensor [members, *shape]: row m is the tensor of the group's member m."""
    name = name or "allGather"
    ring = _ring(graph, tensor, group, "all_gather")
    if ring is None:
        n = checked_group(graph, group, "all_gather").size
        rows = [duplicate(graph, tensor, sequence, name)] * n
        return rows[0].expand([0]).broadcast(len(rows), 0)
    shape = ring.group.size, tensor.n_elems
    rotated = create_sliceable_tensor(graph, tensor.type, shape, name=f"{name}/found")
    sequence.add(WriteUndef(rotated))  # it is written row by row
    gathered_parts(graph, ring, tensor.flatten(), rotated, sequence, name)
    rows = clone_in_order(graph, rotated, f"{name}/rows")
    turned_back(graph, ring, rotated, rows, sequence, name)
    return by_member(ring, rows).reshape((shape[0], *tensor.shape))


def all_to_all(
    graph: Graph,
    tensor: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    group: ReplicaGroup | None = None,
) -> Tensor:
    """A new tensor like [members, …]: row m is what member m had for this replica."""
    name = name or "allToAll"
    n = checked_group(graph, group, "all_to_all").size
    if not tensor.rank or tensor.shape[0] != n:
        raise PoplibsError(
            f"all_to_all got a tensor of shape {tensor.shape}, expected a row for each of "
            f"{n} replicas.",
            source=user_source(),
            hint=f"give a tensor of shape [{n}, …]: row m goes to member m",
        )
    ring = _ring(graph, tensor, group, "all_to_all")
    if ring is None:
        return duplicate(graph, tensor, sequence, name)
    ring = replace(ring, is_folded=False)  # parts go to all places, so their order is free
    parts = as_parts(graph, tensor, n, 0, sequence, name)
    rotated = turned(graph, ring, parts, sequence, name)
    came = swapped_parts(graph, ring, rotated, sequence, name)
    turned_back(graph, ring, came, parts, sequence, name)
    return parts.reshape(tensor.shape)


def broadcast(
    graph: Graph,
    tensor: Tensor,
    sequence: Sequence,
    name: str = "",
    *,
    root: int = 0,
    group: ReplicaGroup | None = None,
) -> Tensor:
    """A new tensor: every replica gets the tensor of its group's member `root`."""
    name = name or "broadcast"
    group = checked_group(graph, group, "broadcast")
    if not 0 <= root < group.size:
        raise PoplibsError(
            f"broadcast got root {root}, expected 0 to {group.size - 1}.",
            source=user_source(),
            hint=f"the group has {group.size} replicas",
        )
    combine_of("broadcast", tensor, "ADD")
    if group.size == 1 or not tensor.n_elems:
        return duplicate(graph, tensor, sequence, name)
    number = replica_number(graph, sequence, name).reshape(())
    only_root = select(_1, 0, (_2 / group.stride) % group.size == root)
    result = map_elements(graph, only_root, [tensor, number], sequence, f"{name}/choose")
    all_reduce_in_place(graph, result, sequence, name, group=group)
    return result


# -- inside ----------------------------------------------------------------------------------------


class Rings(NamedTuple):
    """A ring, and the groups of its members with those of other rings, if there are any."""

    near: Ring
    far: ReplicaGroup | None


class SharedSum(NamedTuple):
    """A function that reduces `whole`, tile by tile, over the replicas."""

    whole: Tensor
    function: Function


_SHARED: WeakKeyDictionary[GraphState, dict[object, SharedSum]] = WeakKeyDictionary()


def _shared_sum(graph: Graph, order: TileOrder, rings: Rings, operation: str) -> SharedSum:
    """The function for tensors with as many elements on each tile: they share its buffers.

    Its steps would also be alike in place. But a part of them that is outlined by itself would be
    called while the buffers of one sum are live, and so keep those of all sums live together.
    """
    cuts, flat = cut_where_it_lies(graph, rings.near, order), order.flat
    columns = (column.tobytes() for column in cuts)
    key = (key_of_graph(graph), flat.type.name, flat.n_elems, *columns, rings, operation)
    known = _SHARED.setdefault(graph.state, {})
    if key not in known:
        known[key] = _build_sum(graph, flat, cuts, rings, operation)
    return known[key]


def _build_sum(graph: Graph, flat: Tensor, cuts: Cuts, rings: Rings, operation: str) -> SharedSum:
    (ring, far), sequence, name = rings, Sequence(), "allReduce"
    parts, whole = add_parts(graph, flat.type, ring.group.size, cuts, f"{name}/parts")
    if whole.n_elems > flat.n_elems:
        rest, neutral = whole.slice(flat.n_elems, whole.n_elems), _neutral(operation, flat.type)
        fill(graph, rest, neutral, sequence, f"{name}/rest")
    rotated = turned(graph, ring, parts, sequence, name)
    own = reduced_part(graph, ring, rotated, _COMBINE[operation], sequence, name)
    _divide(graph, ring, own, operation, sequence, name)
    if far is not None:
        all_reduce_in_place(graph, own, sequence, f"{name}/far", operation=operation, group=far)
    gathered_parts(graph, ring, own, rotated, sequence, f"{name}/gather")
    turned_back(graph, ring, rotated, parts, sequence, name)
    return SharedSum(whole, graph.add_function(sequence, name))


def _ring(graph: Graph, tensor: Tensor, group: ReplicaGroup | None, what: str) -> Ring | None:
    """The ring of each group; None if there is nothing to send, or no replica to send to."""
    group = checked_group(graph, group, what)
    if group.size == 1 or not tensor.n_elems:
        return None
    return best_ring(graph, group, -(-tensor.n_elems * tensor.type.n_bytes // group.size))


def _own_part(
    graph: Graph, ring: Ring, tensor: Tensor, operation: str, sequence: Sequence, name: str
) -> Tensor:
    neutral = _neutral(operation, tensor.type)
    parts = by_place(ring, as_parts(graph, tensor, ring.group.size, neutral, sequence, name))
    parts = turned(graph, ring, parts, sequence, name)
    own = reduced_part(graph, ring, parts, _COMBINE[operation], sequence, name)
    _divide(graph, ring, own, operation, sequence, name)
    return own


def _divide(
    graph: Graph, ring: Ring, tensor: Tensor, operation: str, sequence: Sequence, name: str
) -> None:
    if operation == "MEAN":
        mul_in_place(graph, tensor, 1 / ring.group.size, sequence, f"{name}/mean")


def _neutral(operation: str, type: Type) -> float:
    if operation in ("ADD", "MEAN"):
        return 0
    if operation == "MUL":
        return 1
    limits = np.finfo(type.dtype) if type.is_floating else np.iinfo(type.dtype)
    return limits.max if operation == "MIN" else limits.min


def combine_of(what: str, tensor: Tensor, operation: str) -> Callable:
    """The function that adds one tensor to another, in place; an error if it does not exist."""
    if operation not in _COMBINE:
        raise PoplibsError(
            f"{what} does not know operation {operation!r}.",
            source=user_source(),
            hint=suggest(operation, _COMBINE),
        )
    known = (FLOAT, HALF) if operation == "MEAN" else TYPES
    if tensor.type not in known:
        raise PoplibsError(
            f"{what} of {operation} does not work on {tensor.type}, only on "
            f"{', '.join(str(t) for t in known)}.",
            source=user_source(),
            hint="cast the tensor",
        )
    return _COMBINE[operation]


__all__ = [
    "all_gather", "all_reduce", "all_reduce_in_groups_in_place", "all_reduce_in_place",
    "all_to_all", "broadcast", "reduce_scatter",
]  # fmt: skip
