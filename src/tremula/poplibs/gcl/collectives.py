"""Collectives over all replicas: reduce, gather, scatter, broadcast; bitwise equal on all."""

from collections.abc import Callable

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.gcl.rings import (
    as_parts,
    gathered_parts,
    n_replicas_of,
    pairs_are_cheaper,
    reduced_by_pairs,
    reduced_part,
    turned,
    turned_back,
)
from tremula.poplibs.popops.elementwise.expr import _1, _2, select
from tremula.poplibs.popops.elementwise.functions import (
    add_in_place,
    maximum_in_place,
    minimum_in_place,
    mul_in_place,
)
from tremula.poplibs.popops.elementwise.map import map as map_elements
from tremula.poplibs.poputil import duplicate
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
    graph: Graph, tensor: Tensor, operation: str, sequence: Sequence, name: str = ""
) -> Tensor:
    """A new tensor: every replica gets the ADD, MEAN, MUL, MIN or MAX of all replicas' tensors."""
    name = name or "allReduce"
    result = duplicate(graph, tensor, sequence, name)
    all_reduce_in_place(graph, result, sequence, name, operation=operation)
    return result


def all_reduce_in_place(
    graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "", *, operation: str = "ADD"
) -> None:
    """`all_reduce` in place.

    Small tensors are exchanged whole between pairs of replicas; large ones go around a ring in as
    many parts as there are replicas.
    """
    name = name or "allReduce"
    combine = _checked("all_reduce", tensor, operation)
    n = n_replicas_of(graph)
    if n == 1 or not tensor.n_elems:
        return
    if pairs_are_cheaper(graph, tensor.n_elems * tensor.type.n_bytes):
        reduced_by_pairs(graph, tensor, combine, sequence, name)
        _divide(graph, tensor, operation, sequence, name)
        return
    own = _own_part(graph, tensor, operation, sequence, name)
    parts = gathered_parts(graph, own, sequence, f"{name}/gather")
    whole = turned_back(graph, parts, sequence, name).flatten().slice(0, tensor.n_elems)
    sequence.add(Copy(whole, tensor.flatten()))


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
    """`all_reduce` within groups of `size` replicas (a power of two), `stride` apart.

    A stride of 1 is Poplar's consecutive group; the number of groups as stride, its orthogonal one.
    """
    combine = _checked("all_reduce_in_groups", tensor, operation)
    n = n_replicas_of(graph)
    if size < 1 or size & (size - 1) or stride < 1 or n % (size * stride) or operation == "MEAN":
        raise PoplibsError(
            f"all_reduce_in_groups of {operation} does not work for groups of {size} of {n} "
            f"replicas, {stride} apart.",
            source=user_source(),
            hint="use a power of two that divides the replicas; a mean is a sum and a division",
        )
    if tensor.n_elems:
        reduced_by_pairs(graph, tensor, combine, sequence, name or "allReduce", (size, stride))


def reduce_scatter(
    graph: Graph, tensor: Tensor, operation: str, sequence: Sequence, name: str = ""
) -> Tensor:
    """A new vector: replica r gets part r of the reduced tensor, ceil(n_elems / replicas) long.

    The last parts are padded with the operation's identity, 0 for ADD.
    """
    name = name or "reduceScatter"
    _checked("reduce_scatter", tensor, operation)
    if n_replicas_of(graph) == 1 or not tensor.n_elems:
        return duplicate(graph, tensor.flatten(), sequence, name)
    return _own_part(graph, tensor, operation, sequence, name)


def all_gather(graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """A new tensor [replicas, *shape]: row r is replica r's tensor."""
    name = name or "allGather"
    if n_replicas_of(graph) == 1 or not tensor.n_elems:
        rows = [duplicate(graph, tensor, sequence, name)] * n_replicas_of(graph)
        return rows[0].expand([0]).broadcast(len(rows), 0)
    parts = gathered_parts(graph, tensor.flatten(), sequence, name)
    return turned_back(graph, parts, sequence, name).reshape((parts.shape[0], *tensor.shape))


def broadcast(
    graph: Graph, tensor: Tensor, sequence: Sequence, name: str = "", *, root: int = 0
) -> Tensor:
    """A new tensor: every replica gets the tensor of replica `root`."""
    name, n = name or "broadcast", n_replicas_of(graph)
    if not 0 <= root < n:
        raise PoplibsError(
            f"broadcast got root {root}, expected 0 to {n - 1}.",
            source=user_source(),
            hint=f"the graph has {n} replicas",
        )
    _checked("broadcast", tensor, "ADD")
    if n == 1 or not tensor.n_elems:
        return duplicate(graph, tensor, sequence, name)
    number = graph.top.add_replication_index_constant()
    only_root = select(_1, 0, _2 == root)
    result = map_elements(graph, only_root, [tensor, number], sequence, f"{name}/choose")
    all_reduce_in_place(graph, result, sequence, name)
    return result


# -- inside ----------------------------------------------------------------------------------------


def _own_part(
    graph: Graph, tensor: Tensor, operation: str, sequence: Sequence, name: str
) -> Tensor:
    parts = as_parts(graph, tensor, _neutral(operation, tensor.type), sequence, name)
    parts = turned(graph, parts, sequence, name)
    own = reduced_part(graph, parts, _COMBINE[operation], sequence, name)
    _divide(graph, own, operation, sequence, name)
    return own


def _divide(graph: Graph, tensor: Tensor, operation: str, sequence: Sequence, name: str) -> None:
    if operation == "MEAN":
        mul_in_place(graph, tensor, 1 / n_replicas_of(graph), sequence, f"{name}/mean")


def _neutral(operation: str, type: Type) -> float:
    if operation in ("ADD", "MEAN"):
        return 0
    if operation == "MUL":
        return 1
    limits = np.finfo(type.dtype) if type.is_floating else np.iinfo(type.dtype)
    return limits.max if operation == "MIN" else limits.min


def _checked(what: str, tensor: Tensor, operation: str) -> Callable:
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
    "all_gather", "all_reduce", "all_reduce_in_place", "broadcast", "reduce_scatter",
]  # fmt: skip
