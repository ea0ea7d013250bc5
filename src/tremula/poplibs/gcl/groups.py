"""Groups of replicas, and the ring that the members of a group form on the links."""

from dataclasses import dataclass

import numpy as np

from tremula.base.replica_group import ReplicaGroup
from tremula.base.source import user_source
from tremula.hardware import Traffic
from tremula.poplar.graph import Graph
from tremula.poplibs.registry import PoplibsError


def n_replicas_of(graph: Graph) -> int:
    return graph.top.replication_factor


def checked_group(graph: Graph, group: ReplicaGroup | None, what: str) -> ReplicaGroup:
    """The group, or all replicas; an error unless groups of its kind cover all replicas."""
    n = n_replicas_of(graph)
    if group is None:
        return ReplicaGroup(n)
    if not group.divides(n):
        raise PoplibsError(
            f"{what} does not work for groups of {group.size} of {n} replicas, "
            f"{group.stride} apart.",
            source=user_source(),
            hint="size times stride must divide the number of replicas",
        )
    return group


MAX_RING = 64  # a rack's chips: rounds grow with the members, and parts shrink


def levels_of(group: ReplicaGroup) -> tuple[ReplicaGroup, ReplicaGroup | None]:
    """Rings of neighbours; of a group too large for one, also rings across them, by position."""
    if group.size <= MAX_RING:
        return group, None
    near = max(n for n in range(1, MAX_RING + 1) if group.size % n == 0)
    if near == 1:
        return group, None  # a prime number
    far = ReplicaGroup(group.size // near, group.stride * near)
    return ReplicaGroup(near, group.stride), far


@dataclass(frozen=True, slots=True)
class Ring:
    """The members of every group in a circle; all replicas run the same rounds.

    `members` are numbers within a group, in the order of the circle. Either they count up, or up
    the even ones and down the odd ones: on an open ladder the last is then beside the first.
    """

    n_replicas: int
    group: ReplicaGroup
    is_folded: bool

    @property
    def members(self) -> list[int]:
        size = self.group.size
        if not self.is_folded:
            return list(range(size))
        return [*range(0, size, 2), *reversed(range(1, size, 2))]

    def after(self, n_places: int = 1) -> dict[int, int]:
        """Each replica and the one `n_places` further on in its circle."""
        members, size, stride = np.array(self.members), self.group.size, self.group.stride
        place = np.empty(size, np.int64)
        place[members] = np.arange(size)
        replica = np.arange(self.n_replicas)
        member = np.array([self.group.member_of(r) for r in range(self.n_replicas)])
        following = members[(place[member] + n_places) % size]
        return dict(enumerate((replica + (following - member) * stride).tolist()))


def best_ring(graph: Graph, group: ReplicaGroup, n_bytes: int) -> Ring:
    """The ring whose rounds are shorter on this machine's links."""
    n = n_replicas_of(graph)
    rings = [Ring(n, group, is_folded) for is_folded in (False, True)]
    return min(rings, key=lambda ring: round_cycles(graph, ring.after(), n_bytes))


def pairs_are_cheaper(graph: Graph, ring: Ring, n_bytes: int) -> bool:
    """Whether log2(n) rounds of the whole tensor beat 2 (n - 1) rounds of an n-th of it."""
    size = ring.group.size
    if size & (size - 1):
        return False  # pairs need a power of two
    by_pairs = sum(
        round_cycles(graph, partners(ring, 1 << i), n_bytes) for i in range(size.bit_length() - 1)
    )
    return by_pairs <= 2 * (size - 1) * round_cycles(graph, ring.after(), -(-n_bytes // size))


def partners(ring: Ring, distance: int) -> dict[int, int]:
    """Each replica and the member of its group whose number differs in one bit."""
    group = ring.group
    member = [group.member_of(r) for r in range(ring.n_replicas)]
    return {r: r + ((m ^ distance) - m) * group.stride for r, m in enumerate(member)}


def round_cycles(
    graph: Graph, to: dict[int, int], n_bytes: int, n_senders: int | None = None
) -> float:
    """A sync, and the time on the links; each chip sends its share to its counterpart.

    As many tiles send as there are, or as have a word to send, unless their number is given.
    """
    target = graph.top.target
    assert target.system is not None, "every target has a system"
    n_chips = target.n_ipus
    ends = np.array(list(to.items()), np.int64)
    chips = np.arange(n_chips)
    source, goal = ((ends[:, i, None] * n_chips + chips).ravel() for i in range(2))
    share = np.full(len(source), -(-n_bytes // n_chips))
    most = target.n_tiles if n_senders is None else n_senders
    sends = np.minimum(share // 4, -(-most // n_chips))
    seconds = target.system.loads_of(Traffic(source, goal, share, sends)).seconds
    return target.chip.external_sync_cycles + seconds * target.chip.clock_hz
