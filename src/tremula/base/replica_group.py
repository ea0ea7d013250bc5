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

from tremula.base.errors import GraphReplicationError

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

    @classmethod
    def of_size(cls, size: int, n_replicas: int, *, is_orthogonal: bool = False) -> "ReplicaGroup":
        """Groups of neighbours, or orthogonal ones; an error unless they cover all replicas."""
        if not cls(size).divides(n_replicas):
            raise GraphReplicationError(
                f"A group of {size} replicas is not a factor of the replication factor"
                f" ({n_replicas})"
            )
        return cls.orthogonal(size, n_replicas) if is_orthogonal else cls(size)

    @classmethod
    def of_assignment(cls, numbers: Sequence[int]) -> "ReplicaGroup | None":
        """The groups with these numbers, by replica; None if members are not equally far apart.

        Groups are numbered by their first members, and are equally large.
        """
        first = [replica for replica, number in enumerate(numbers) if number == 0]
        group = cls(len(first), first[1] - first[0] if len(first) > 1 else 1)
        is_equal = group.divides(len(numbers)) and group.assignment(len(numbers)) == list(numbers)
        return group if is_equal else None

    @classmethod
    def coarsest_within(cls, numbers: Sequence[int]) -> "ReplicaGroup":
        """The largest groups that lie within groups with these numbers, by replica."""
        n = len(numbers)
        divisors = [k for k in range(1, n + 1) if n % k == 0]
        for size in reversed(divisors):
            for stride in divisors:
                group = cls(size, stride if size > 1 else 1)
                if group.divides(n) and group.refines(numbers):
                    return group
        raise AssertionError("groups of one replica refine every partition")

    def divides(self, n_replicas: int) -> bool:
        """Whether such groups cover all replicas."""
        return self.size > 0 and self.stride > 0 and n_replicas % (self.size * self.stride) == 0

    def refines(self, numbers: Sequence[int]) -> bool:
        """Whether the members of each group have equal numbers."""
        groups = map(self.members, range(self.n_groups(len(numbers))))
        return all(len({numbers[replica] for replica in group}) == 1 for group in groups)

    def assignment(self, n_replicas: int) -> list[int]:
        """The number of each replica's group."""
        return [self.group_of(replica) for replica in range(n_replicas)]

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
