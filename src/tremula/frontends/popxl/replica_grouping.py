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

    def __init__(self) -> None:
        raise RuntimeError(
            "popxl.ReplicaGrouping cannot be constructed directly. Use `popxl.Ir.replica_grouping`"
            " or `popxl.Ir.replica_grouping_from_assignments`."
        )

    @classmethod
    def _make(cls, assignment: Sequence[int], group: ReplicaGroup | None) -> "ReplicaGrouping":
        self = object.__new__(cls)
        self._assignment, self._group = tuple(assignment), group
        return self

    @classmethod
    def of_stride(
        cls, n_replicas: int, stride: int = 1, group_size: int | None = None
    ) -> "ReplicaGrouping":
        """Groups filled from the lowest replica that is left, with members `stride` apart."""
        return cls._of_group(n_replicas, _checked_group(n_replicas, stride, group_size))

    @classmethod
    def _of_group(cls, n_replicas: int, group: ReplicaGroup) -> "ReplicaGrouping":
        return cls._make(group.assignment(n_replicas), group)

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
        numbered = [order.index(group) for group in result]
        return cls._make(numbered, ReplicaGroup.of_assignment(numbered))

    @classmethod
    def _from_variable_settings(cls, ir: Any, settings: VariableSettings) -> "ReplicaGrouping":
        """The partition that PopART's settings of a variable describe."""
        n = ir.replication_factor
        if settings.isUsingCommGroup():
            return cls._of_group(n, settings.getSharedVariableDomain().replica_group(n))
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
        return len(self.members)

    @property
    def group_size(self) -> int:
        return len(self.members[0])

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
        groups: dict[int, list[int]] = {}
        for replica, group in enumerate(self._assignment):
            groups.setdefault(group, []).append(replica)
        return list(groups.values())

    @property
    def is_const(self) -> bool:
        """Whether members of every group are equally far apart, as collectives need it."""
        return self._group is not None

    @cached_property
    def const_rg(self) -> "ReplicaGrouping":
        """The coarsest partition into strided groups that refines this one."""
        if self.is_const:
            return self
        group = ReplicaGroup.coarsest_within(self._assignment)
        return ReplicaGrouping._of_group(self.num_replicas, group)

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


def _checked_group(n: int, stride: int, size: int | None) -> ReplicaGroup:
    """Groups with this stride, which without a size are as large as they can be."""
    if not 0 < stride <= n:
        raise ValueError(
            f"Stride must be a positive number smaller than or equal to the number of replicas"
            f" ({n}), got {stride}."
        )
    if n % stride:
        raise ValueError(f"Stride ({stride}) must be a factor of the number of replicas ({n}).")
    size = n // stride if size is None else size
    if not 0 < size <= n:
        raise ValueError(
            f"Group size must be a positive number smaller than or equal to the number of replicas"
            f" ({n}), got {size}."
        )
    group = ReplicaGroup(int(size), 1 if size == 1 else int(stride))
    if not group.divides(n):
        raise ValueError(
            f"Groups of {size} replicas that are {stride} apart do not divide {n} replicas."
        )
    return group
