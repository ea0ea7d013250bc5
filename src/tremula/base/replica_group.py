"""Groups of replicas: how many belong together, and how far apart they are.

Every front end, the collectives and the schedule of a step describe groups in this way. Twelve
replicas in groups of three members, two apart:

    replica     0  1  2  3  4  5    6  7  8  9 10 11
    group       0  1  0  1  0  1    2  3  2  3  2  3
    member      0  0  1  1  2  2    0  0  1  1  2  2

A stride of 1 makes neighbours a group, the number of groups as stride the replicas with equal
remainders ("orthogonal" groups).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, order=True)
class ReplicaGroup:
    """Replicas that work together: `size` of them, each `stride` from the next."""

    size: int
    stride: int = 1

    @classmethod
    def orthogonal(cls, size: int, n_replicas: int) -> "ReplicaGroup":
        """Groups of this size whose members are as far apart as they can be."""
        return cls(size, n_replicas // size)

    def divides(self, n_replicas: int) -> bool:
        """Whether such groups cover all replicas."""
        return self.size > 0 and self.stride > 0 and n_replicas % (self.size * self.stride) == 0

    def n_groups(self, n_replicas: int) -> int:
        """How many groups there are."""
        return n_replicas // self.size

    def group_of(self, replica: int) -> int:
        """The number of the group that a replica belongs to."""
        return replica // (self.stride * self.size) * self.stride + replica % self.stride

    def member_of(self, replica: int) -> int:
        """The number of a replica within its group."""
        return replica // self.stride % self.size

    def members(self, group: int) -> range:
        """The replicas of a group, in order."""
        first = group // self.stride * self.stride * self.size + group % self.stride
        return range(first, first + self.size * self.stride, self.stride)

    def slice_of(self, values: Sequence[T], replica: int) -> T:
        """A replica's value, of one for each group."""
        return values[self.group_of(replica)]

    def joined(self, values: Sequence[T]) -> list[T]:
        """One value for each group, that of its first member, of one for each replica."""
        return [values[self.members(g)[0]] for g in range(self.n_groups(len(values)))]
