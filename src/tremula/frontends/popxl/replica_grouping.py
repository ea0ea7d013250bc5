"""Partitions of replicas into groups of equal size."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tremula.base.replica_group import ReplicaGroup
from tremula.frontends.popart.enums import VariableRetrievalMode
from tremula.frontends.popart.groups import VariableSettings


class ReplicaGrouping:
    """Which replicas belong together: every `stride`-th, `group_size` of them, lowest first.

    Made by `Ir.replica_grouping(stride, group_size)` or from a list of group numbers.
    """

    _assignment: tuple[int, ...]
    _group: ReplicaGroup | None  # None: members are not equally far apart
    _group_size: int

    def __init__(self) -> None:
        raise RuntimeError(
            "popxl.ReplicaGrouping cannot be constructed directly. Use `popxl.Ir.replica_grouping`"
            " or `popxl.Ir.replica_grouping_from_assignments`."
        )

    @classmethod
    def _make(
        cls, assignment: Sequence[int], group: ReplicaGroup | None, group_size: int
    ) -> "ReplicaGrouping":
        self = object.__new__(cls)
        self._assignment = tuple(int(number) for number in assignment)
        self._group, self._group_size = group, int(group_size)
        return self

    @classmethod
    def of_stride(
        cls, n_replicas: int, stride: int = 1, group_size: int | None = None
    ) -> "ReplicaGrouping":
        """Groups filled from the lowest replica that is left, with members `stride` apart."""
        size = n_replicas // stride if group_size is None and stride else group_size
        size = n_replicas if size is None else size
        _check_stride(n_replicas, stride, size)
        group = ReplicaGroup(size, 1 if size == 1 else stride)
        return cls._make(_assignment(group, n_replicas), group, size)

    @classmethod
    def of_assignment(cls, n_replicas: int, assignment: Sequence[int]) -> "ReplicaGrouping":
        """Groups by a number for each replica; groups are numbered by their first member."""
        result = [int(group) for group in assignment]
        if len(result) != n_replicas:
            raise ValueError(
                f"The number of group assignments ({len(result)}) must match the number of"
                f" replicas ({n_replicas})."
            )
        order = list(dict.fromkeys(result))
        counts = {group: result.count(group) for group in order}
        if len(set(counts.values())) > 1:
            raise ValueError(
                f"Every group must contain the same number of replicas, got sizes"
                f" {list(counts.values())} in assignment {result}."
            )
        size = counts[order[0]]
        numbered = [order.index(group) for group in result]
        return cls._make(numbered, _group_of(n_replicas, numbered, size), size)

    @classmethod
    def _from_variable_settings(cls, ir: Any, settings: VariableSettings) -> "ReplicaGrouping":
        """The partition that PopART's settings of a variable describe."""
        n = ir.replication_factor
        if settings.isUsingCommGroup():
            group = settings.getSharedVariableDomain().replica_group(n)
            return cls.of_stride(n, group.stride, group.size)
        return cls.of_stride(n, settings.getStride(), settings.getGroupSize())

    def _to_variable_settings(self, retrieval_mode: str | None = None) -> VariableSettings:
        """PopART's settings of a variable with this partition."""
        is_all = retrieval_mode == "all_replicas"
        mode = VariableRetrievalMode.AllReplicas if is_all else VariableRetrievalMode.OnePerGroup
        return VariableSettings(self.stride, self.group_size, mode)

    @property
    def assignment(self) -> list[int]:
        """The group of each replica."""
        return list(self._assignment)

    @property
    def num_replicas(self) -> int:
        return len(self._assignment)

    @property
    def num_groups(self) -> int:
        return self.num_replicas // self._group_size

    @property
    def group_size(self) -> int:
        return self._group_size

    @property
    def stride(self) -> int:
        """The distance between members; of groups without one, that between the first two."""
        if self._group is not None:
            return self._group.stride
        first = self.members[0]
        return first[1] - first[0] if len(first) > 1 else 1

    @cached_property
    def members(self) -> list[list[int]]:
        """The replicas of each group, in order."""
        groups: list[list[int]] = [[] for _ in range(self.num_groups)]
        for replica, group in enumerate(self._assignment):
            groups[group].append(replica)
        return groups

    @property
    def is_const(self) -> bool:
        """Whether members of every group are equally far apart, as collectives need it."""
        return self._group is not None

    @cached_property
    def const_rg(self) -> "ReplicaGrouping":
        """The coarsest partition into strided groups that refines this one."""
        if self.is_const:
            return self
        n = self.num_replicas
        for size in sorted(_divisors(self._group_size), reverse=True):
            for stride in _divisors(n // size):
                result = ReplicaGrouping.of_stride(n, stride, size)
                if result._refines(self):
                    return result
        raise AssertionError("groups of one replica refine every partition")

    def transpose(self) -> "ReplicaGrouping":
        """The partition whose group k holds the k-th member of every group."""
        assignment = np.empty(self.num_replicas, np.int64)
        for group in self.members:
            for k, replica in enumerate(group):
                assignment[replica] = k
        return ReplicaGrouping.of_assignment(self.num_replicas, assignment.tolist())

    @property
    def to_device_map(self) -> list[int]:
        """The group here that each group of `const_rg` takes its value from."""
        return [self._assignment[group[0]] for group in self.const_rg.members]

    @property
    def to_host_map(self) -> list[int]:
        """The group of `const_rg` that gives each group's value back."""
        to_device = self.to_device_map
        return [to_device.index(group) for group in range(self.num_groups)]

    def _refines(self, other: "ReplicaGrouping") -> bool:
        return all(len({other._assignment[r] for r in group}) == 1 for group in self.members)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ReplicaGrouping):
            return NotImplemented
        return self._assignment == other._assignment

    def __hash__(self) -> int:
        return hash(self._assignment)

    def __repr__(self) -> str:
        if not self.is_const:
            return f"ReplicaGrouping(num_replicas={self.num_replicas}, {list(self._assignment)})"
        return (
            f"ReplicaGrouping(num_replicas={self.num_replicas}, stride={self.stride},"
            f" group_size={self.group_size}, num_groups={self.num_groups})"
        )


def _check_stride(n: int, stride: int, size: int) -> None:
    if not 0 < stride <= n:
        raise ValueError(
            f"Stride must be a positive number smaller than or equal to the number of replicas"
            f" ({n}), got {stride}."
        )
    if n % stride:
        raise ValueError(f"Stride ({stride}) must be a factor of the number of replicas ({n}).")
    if not 0 < size <= n:
        raise ValueError(
            f"Group size must be a positive number smaller than or equal to the number of replicas"
            f" ({n}), got {size}."
        )
    if not ReplicaGroup(size, 1 if size == 1 else stride).divides(n):
        raise ValueError(
            f"Groups of {size} replicas that are {stride} apart do not divide {n} replicas."
        )


def _assignment(group: ReplicaGroup, n_replicas: int) -> list[int]:
    return [group.group_of(replica) for replica in range(n_replicas)]


def _group_of(n: int, numbered: list[int], size: int) -> ReplicaGroup | None:
    """The strided group that these groups are, or None."""
    if size == 1:
        return ReplicaGroup(1)
    first = [replica for replica, number in enumerate(numbered) if number == 0]
    group = ReplicaGroup(size, first[1] - first[0])
    return group if group.divides(n) and _assignment(group, n) == numbered else None


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]
