"""Rounds between replicas: rings of parts, and exchanges of whole tensors between pairs.

All replicas run one program, so which part a replica sends cannot depend on its number. A ring
therefore first rotates the parts by the replica's place in it: row j of the replica at place p is
then part p + j of the whole, and every replica sends the same j. Many rounds are a loop, so that
256 replicas take no longer to compile than eight.
"""

from collections.abc import Callable

import numpy as np

from tremula.base.types import UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, CrossReplicaCopy, Repeat, Sequence, WriteUndef
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.gcl.groups import Ring, partners
from tremula.poplibs.popops import create_sliceable_tensor
from tremula.poplibs.popops.elementwise.expr import _1, select
from tremula.poplibs.popops.elementwise.fill import fill
from tremula.poplibs.popops.elementwise.map import map as map_elements
from tremula.poplibs.popops.elementwise.map import map_in_place
from tremula.poplibs.popops.slicing.dynamic_slice import (
    dynamic_slice,
    dynamic_slice_with_output,
    dynamic_update,
)
from tremula.poplibs.poputil import duplicate

Combine = Callable[..., None]  # (graph, into, other, sequence, name): in place
MAX_UNROLLED = 7  # rounds; a round of a loop also counts, and copies a part on the tile


def send_round(
    graph: Graph, sent: Tensor, to: dict[int, int], sequence: Sequence, name: str
) -> Tensor:
    """What each replica receives when every replica sends its tensor on."""
    received = graph.clone(sent, f"{name}/received")
    sequence.add(CrossReplicaCopy(sent, received, to))
    return received


def replica_number(graph: Graph, sequence: Sequence, name: str) -> Tensor:
    """UNSIGNED_INT [1]: the number of this replica, on one of the graph's own tiles."""
    number = graph.top.add_replication_index_constant().reshape((1,))
    if graph.tiles.to_own(np.zeros(1, np.int64))[0] >= 0:
        return number
    own = graph.add_variable(number.type, number.shape, f"{name}/replica", mapping=0)
    sequence.add(Copy(number, own))
    return own


def _place(graph: Graph, ring: Ring, sequence: Sequence, name: str) -> Tensor:
    """UNSIGNED_INT [1]: where in its ring this replica is."""
    number = replica_number(graph, sequence, name)
    size, stride = ring.group.size, ring.group.stride
    member = _1 if stride == 1 else _1 / stride
    member = member if size * stride == ring.n_replicas else member % size
    folded = select(member >> 1, (size - 1) - (member >> 1), (member & 1) == 0)
    place = folded if ring.is_folded else member + 0
    return map_elements(graph, place, [number], sequence, f"{name}/place")


def _rows(parts: Tensor, order: list[int]) -> Tensor:
    return concat([parts.slice(row, row + 1) for row in order])


# -- rings of parts --------------------------------------------------------------------------------


def as_parts(
    graph: Graph, tensor: Tensor, n: int, neutral: float, sequence: Sequence, name: str
) -> Tensor:
    """[n, part]: a copy cut for n replicas, padded at the end.

    Each part is spread over all tiles in the same way, so that rotating the parts moves nothing
    between tiles.
    """
    flat = tensor.flatten()
    size = -(-flat.n_elems // n)
    missing = n * size - flat.n_elems
    parts = create_sliceable_tensor(graph, tensor.type, (n, size), name=f"{name}/parts")
    sequence.add(WriteUndef(parts))  # it is written in two steps, and not live before
    sequence.add(Copy(flat, parts.flatten().slice(0, flat.n_elems)))
    if missing:
        rest = parts.flatten().slice(flat.n_elems, n * size)
        fill(graph, rest, neutral, sequence, f"{name}/rest")
    return parts


def by_place(ring: Ring, parts: Tensor) -> Tensor:
    """Rows in the order of members as rows in the order of their places."""
    return _rows(parts, ring.members) if ring.is_folded else parts


def by_member(ring: Ring, parts: Tensor) -> Tensor:
    """Rows in the order of places as rows in the order of the members there."""
    return _rows(parts, np.argsort(ring.members).tolist()) if ring.is_folded else parts


def turned(graph: Graph, ring: Ring, parts: Tensor, sequence: Sequence, name: str) -> Tensor:
    """Row j is the part of the place j further on in the ring."""
    n = parts.shape[0]
    place = _place(graph, ring, sequence, name)
    return dynamic_slice(graph, parts, place, sequence, f"{name}/turn", dims=(0,), sizes=(n,))


def turned_back(
    graph: Graph, ring: Ring, parts: Tensor, output: Tensor, sequence: Sequence, name: str
) -> None:
    """Undo the rotation: row p of the output is the part of place p again."""
    n = parts.shape[0]
    place = _place(graph, ring, sequence, name)
    back = select(0, n - _1, _1 == 0)
    offset = map_elements(graph, back, [place], sequence, f"{name}/back")
    dynamic_slice_with_output(graph, output, parts, offset, sequence, f"{name}/turn", sizes=(n,))


def reduced_part(
    graph: Graph, ring: Ring, parts: Tensor, combine: Combine, sequence: Sequence, name: str
) -> Tensor:
    """Row 0 of rotated parts, combined over the group: each owns the part of its number.

    A part starts at its owner's successor and reaches its owner after n - 1 rounds.
    """
    n = parts.shape[0]
    if n - 1 > MAX_UNROLLED:
        return _reduced_in_loop(graph, ring, parts, combine, sequence, name)
    moving = parts[n - 1]
    for row in reversed(range(n - 1)):
        moving = send_round(graph, moving, ring.after(), sequence, name)
        combine(graph, moving, parts[row], sequence, f"{name}/combine")
    return moving


def gathered_parts(
    graph: Graph, ring: Ring, own: Tensor, tensor: Tensor, sequence: Sequence, name: str
) -> None:
    """Fill `tensor`, [n, part], with the parts of all members, rotated; row 0 is the own one.

    The part that arrives in round k is k rows back.
    """
    n = ring.group.size
    sequence.add(Copy(own, tensor[0]))
    if n - 1 > MAX_UNROLLED:
        _gather_in_loop(graph, ring, tensor, sequence, name)
        return
    for row in reversed(range(1, n)):
        sent = tensor[(row + 1) % n]
        sequence.add(CrossReplicaCopy(sent, tensor[row], ring.after()))


def _reduced_in_loop(
    graph: Graph, ring: Ring, parts: Tensor, combine: Combine, sequence: Sequence, name: str
) -> Tensor:
    n = parts.shape[0]
    moving = duplicate(graph, parts[n - 1], sequence, f"{name}/moving")
    body = Sequence()
    row = _countdown(graph, n - 1, sequence, body, name)
    received = send_round(graph, moving, ring.after(), body, name)
    own = dynamic_slice(graph, parts, row, body, f"{name}/own", dims=(0,), sizes=(1,))
    combine(graph, received, own.flatten(), body, f"{name}/combine")
    body.add(Copy(received, moving))
    sequence.add(Repeat(n - 1, body))
    return moving


def _gather_in_loop(
    graph: Graph, ring: Ring, tensor: Tensor, sequence: Sequence, name: str
) -> None:
    n = ring.group.size
    moving = duplicate(graph, tensor[0], sequence, f"{name}/moving")
    body = Sequence()
    row = _countdown(graph, n, sequence, body, name)
    received = send_round(graph, moving, ring.after(), body, name)
    dynamic_update(
        graph, tensor, received.expand([0]), row, body, f"{name}/put", dims=(0,), sizes=(1,)
    )
    body.add(Copy(received, moving))
    sequence.add(Repeat(n - 1, body))


def _countdown(graph: Graph, begin: int, sequence: Sequence, body: Sequence, name: str) -> Tensor:
    """UNSIGNED_INT [1] that each turn of the body first lowers by one."""
    count = graph.add_variable(UNSIGNED_INT, [1], f"{name}/round", mapping=0)
    fill(graph, count, begin, sequence, f"{name}/rounds")
    map_in_place(graph, _1 - 1, [count], body, f"{name}/count")
    return count


def swapped_parts(graph: Graph, ring: Ring, parts: Tensor, sequence: Sequence, name: str) -> Tensor:
    """Of rotated parts, row j goes j places on; row j is then what came from j places on."""
    n = parts.shape[0]
    came = [send_round(graph, parts[row], ring.after(row), sequence, name) for row in range(1, n)]
    return concat([row.expand([0]) for row in (parts[0], *reversed(came))])


# -- whole tensors between pairs -------------------------------------------------------------------


def reduced_by_pairs(
    graph: Graph, ring: Ring, tensor: Tensor, combine: Combine, sequence: Sequence, name: str
) -> None:
    """Combine in place in log2(n) rounds. Partners compute the same sums, so replicas agree."""
    distance = 1
    while distance < ring.group.size:
        received = send_round(graph, tensor, partners(ring, distance), sequence, name)
        combine(graph, tensor, received, sequence, f"{name}/combine")
        distance *= 2
