"""Rounds between replicas: rings of parts, and exchanges of whole tensors between pairs.

All replicas run one program, so which part a replica sends cannot depend on its number. A ring
therefore first rotates the parts by the replica's place in it: row j of the replica at place p is
then part p + j of the whole, and every replica sends the same j.
"""

from collections.abc import Callable

import numpy as np

from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, CrossReplicaCopy, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.popops import create_sliceable_tensor
from tremula.poplibs.popops.elementwise.expr import _1, select
from tremula.poplibs.popops.elementwise.fill import fill
from tremula.poplibs.popops.elementwise.map import map as map_elements
from tremula.poplibs.popops.slicing.dynamic_slice import dynamic_slice

Combine = Callable[..., None]  # (graph, into, other, sequence, name): in place


def n_replicas_of(graph: Graph) -> int:
    return graph.top.replication_factor


def send_round(
    graph: Graph, sent: Tensor, to: dict[int, int], sequence: Sequence, name: str
) -> Tensor:
    """What each replica receives when every replica sends its tensor on."""
    received = graph.clone(sent, f"{name}/received")
    sequence.add(CrossReplicaCopy(sent, received, to))
    return received


def ring_of(n: int) -> list[int]:
    """Replicas as a ring: up the even ones and down the odd ones, since links form a ladder."""
    return [*range(0, n, 2), *reversed(range(1, n, 2))]


def next_of(n: int) -> dict[int, int]:
    ring = ring_of(n)
    return {ring[p]: ring[(p + 1) % n] for p in range(n)}


def _place(graph: Graph, n: int, sequence: Sequence, name: str) -> Tensor:
    """UNSIGNED_INT [1]: where in the ring this replica is."""
    number = graph.top.add_replication_index_constant().reshape((1,))
    place = select(_1 >> 1, (n - 1) - (_1 >> 1), (_1 & 1) == 0)
    return map_elements(graph, place, [number], sequence, f"{name}/place")


def _rows(parts: Tensor, order: list[int]) -> Tensor:
    return concat([parts.slice(row, row + 1) for row in order])


# -- rings of parts --------------------------------------------------------------------------------


def as_parts(graph: Graph, tensor: Tensor, neutral: float, sequence: Sequence, name: str) -> Tensor:
    """[n, part]: a copy cut for n replicas, padded at the end.

    Each part is spread over all tiles in the same way, so that rotating the parts moves nothing
    between tiles.
    """
    n, flat = n_replicas_of(graph), tensor.flatten()
    size = -(-flat.n_elems // n)
    missing = n * size - flat.n_elems
    parts = create_sliceable_tensor(graph, tensor.type, (n, size), name=f"{name}/parts")
    sequence.add(Copy(flat, parts.flatten().slice(0, flat.n_elems)))
    if missing:
        rest = parts.flatten().slice(flat.n_elems, n * size)
        fill(graph, rest, neutral, sequence, f"{name}/rest")
    return parts


def turned(graph: Graph, parts: Tensor, sequence: Sequence, name: str) -> Tensor:
    """Row j is the part of the replica j places further on in the ring."""
    n = parts.shape[0]
    place = _place(graph, n, sequence, name)
    around = _rows(parts, ring_of(n))
    return dynamic_slice(graph, around, place, sequence, f"{name}/turn", dims=(0,), sizes=(n,))


def turned_back(graph: Graph, parts: Tensor, sequence: Sequence, name: str) -> Tensor:
    """Undo the rotation: row r is the part of replica r again."""
    n = parts.shape[0]
    place = _place(graph, n, sequence, name)
    back = map_elements(graph, (n - 1) - _1, [place], sequence, f"{name}/back")
    # Row 1 comes first, so that an offset of n, for place 0, is one of n - 1.
    around = _rows(parts, [*range(1, n), 0])
    found = dynamic_slice(graph, around, back, sequence, f"{name}/turn", dims=(0,), sizes=(n,))
    return _rows(found, [ring_of(n).index(r) for r in range(n)])


def reduced_part(
    graph: Graph, parts: Tensor, combine: Combine, sequence: Sequence, name: str
) -> Tensor:
    """Row 0 of rotated parts, combined over all replicas: each owns the part of its number.

    A part starts at its owner's successor and reaches its owner after n - 1 rounds.
    """
    n = parts.shape[0]
    moving = parts[n - 1]
    for row in reversed(range(n - 1)):
        moving = send_round(graph, moving, next_of(n), sequence, name)
        combine(graph, moving, parts[row], sequence, f"{name}/combine")
    return moving


def gathered_parts(graph: Graph, own: Tensor, sequence: Sequence, name: str) -> Tensor:
    """[n, …]: every replica's own part, rotated; the part arriving in round k is k rows back."""
    n = n_replicas_of(graph)
    rows = [own]
    for _ in range(n - 1):
        rows.append(send_round(graph, rows[-1], next_of(n), sequence, name))
    return concat([row.expand([0]) for row in (rows[0], *reversed(rows[1:]))])


# -- whole tensors between pairs -------------------------------------------------------------------


def reduced_by_pairs(
    graph: Graph,
    tensor: Tensor,
    combine: Combine,
    sequence: Sequence,
    name: str,
    group: tuple[int, int] | None = None,
) -> None:
    """Combine in place in log2(n) rounds. Partners compute the same sums, so replicas agree.

    `group` (size, stride): only within groups of `size` replicas, each `stride` from the next.
    """
    n = n_replicas_of(graph)
    size, stride = group or (n, 1)
    distance = 1
    while distance < size:
        member = [r // stride % size for r in range(n)]
        partner = {r: r + ((m ^ distance) - m) * stride for r, m in enumerate(member)}
        received = send_round(graph, tensor, partner, sequence, name)
        combine(graph, tensor, received, sequence, f"{name}/combine")
        distance *= 2


def pairs_are_cheaper(graph: Graph, n_bytes: int) -> bool:
    """Whether log2(n) rounds of the whole tensor beat 2 (n - 1) rounds of an n-th of it."""
    n = n_replicas_of(graph)
    if n & (n - 1):
        return False  # pairs need a power of two
    distances = [1 << i for i in range(n.bit_length() - 1)]
    by_pairs = [_round_cycles(graph, {r: r ^ d for r in range(n)}, n_bytes) for d in distances]
    return sum(by_pairs) <= 2 * (n - 1) * _round_cycles(graph, next_of(n), -(-n_bytes // n))


def _round_cycles(graph: Graph, to: dict[int, int], n_bytes: int) -> float:
    """A sync, and the time on the links; each chip sends its share to its counterpart."""
    target = graph.top.target
    assert target.system is not None, "every target has a system"
    n_chips = target.n_ipus
    traffic = np.zeros((target.system.n_ipus,) * 2, np.int64)
    for source, destination in to.items():
        chips = np.arange(n_chips)
        traffic[source * n_chips + chips, destination * n_chips + chips] = n_bytes // n_chips
    seconds = target.system.link_loads(traffic).seconds
    return target.chip.external_sync_cycles + seconds * target.chip.clock_hz
