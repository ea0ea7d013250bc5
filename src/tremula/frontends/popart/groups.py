"""Which replicas share a weight, and which of them give it back."""

from collections.abc import Sequence
from dataclasses import dataclass

from tremula.base.errors import GraphReplicationError
from tremula.base.replica_group import ReplicaGroup
from tremula.frontends.popart.enums import CommGroupType, VariableRetrievalMode
from tremula.frontends.popart.exceptions import popart_exception
from tremula.ir.group_values import GroupValues


@dataclass(frozen=True)
class CommGroup:
    """A partition of replicas: all of them, neighbours, every n-th, or each its own."""

    type: CommGroupType = CommGroupType.All
    replicaGroupSize: int = 0

    def replica_group(self, n_replicas: int) -> ReplicaGroup:
        """The groups of a number of replicas."""
        size = {CommGroupType.All: n_replicas, CommGroupType.NoGrouping: 1}.get(
            self.type, self.replicaGroupSize
        )
        is_orthogonal = self.type is CommGroupType.Orthogonal
        try:
            return ReplicaGroup.of_size(size, n_replicas, is_orthogonal=is_orthogonal)
        except GraphReplicationError as error:
            raise popart_exception(str(error)) from None

    def numbers(self) -> list[int]:
        """As a node's attribute holds it."""
        return [int(self.type), self.replicaGroupSize]


class VariableSettings:
    """How a weight differs between groups of replicas: `VariableSettings(group, mode)`.

    The array of such a weight has one more dimension, the first, with an entry for each group.
    """

    def __init__(
        self,
        group: CommGroup | VariableRetrievalMode | int | None = None,
        mode: VariableRetrievalMode | int = VariableRetrievalMode.OnePerGroup,
        retrievalMode: VariableRetrievalMode | int | None = None,
    ):
        if isinstance(group, VariableRetrievalMode):
            group, mode = None, group
        self._stride = 0
        if isinstance(group, int):  # a stride, and the size of a group
            self._stride, size = group, int(mode)
            kind = CommGroupType.Consecutive if group == 1 else CommGroupType.Orthogonal
            group, mode = CommGroup(kind, size), VariableRetrievalMode.OnePerGroup
        self._group = group or CommGroup()
        self._mode = VariableRetrievalMode(mode if retrievalMode is None else retrievalMode)

    def getSharedVariableDomain(self) -> CommGroup:
        """The replicas that share a value."""
        return self._group

    def getRetrievalMode(self) -> VariableRetrievalMode:
        """Which replicas give their value back."""
        return self._mode

    def isUsingCommGroup(self) -> bool:
        """Whether the groups were chosen by a CommGroup, not by a stride and a size."""
        return self._stride == 0

    def getStride(self) -> int:
        """The distance between members of a group; 0 if a CommGroup chose the groups."""
        return self._stride

    def getGroupSize(self) -> int:
        """How many replicas share a value; 0 for all."""
        return self._group.replicaGroupSize

    def groupCount(self, numReplicas: int) -> int:
        """How many different values there are."""
        grouping = self.grouping(numReplicas)
        return 1 if grouping is None else grouping.replicas.n_groups(numReplicas)

    def getGroupCount(self, numReplicas: int) -> int:
        """How many different values there are."""
        return self.groupCount(numReplicas)

    def getRealGroupSize(self, numReplicas: int) -> int:
        """How many replicas share a value."""
        grouping = self.grouping(numReplicas)
        return numReplicas if grouping is None else grouping.replicas.size

    def getGroupRepresentative(self, group: int) -> int:
        """The first replica of a group."""
        kind, size = self._group.type, self._group.replicaGroupSize
        if kind is CommGroupType.Consecutive:
            return group * size
        return 0 if kind is CommGroupType.All else group

    def groups(self, numReplicas: int) -> list[list[int]]:
        """The replicas of each group."""
        group = self._group.replica_group(numReplicas)
        if self._stride:
            group = ReplicaGroup(group.size, self._stride)
        return [list(group.members(number)) for number in range(group.n_groups(numReplicas))]

    def numReplicasReturningVariable(self, numReplicas: int) -> int:
        """How many values come back to the host."""
        if self._mode is VariableRetrievalMode.OnePerGroup:
            return self.groupCount(numReplicas)
        return numReplicas

    def getCommGroupType(self) -> CommGroupType:
        """How replicas are grouped."""
        return self._group.type

    def shapeOnHost(self, replicaShape: Sequence[int], numReplicas: int) -> list[int]:
        """The shape of the array of a weight whose shape on a replica is given."""
        n = self.groupCount(numReplicas)
        return list(replicaShape) if n == 1 else [n, *replicaShape]

    def shapeOnReplica(
        self, fullShape: Sequence[int], numReplicas: int, name: str = ""
    ) -> list[int]:
        """The shape on a replica of a weight whose array has this shape."""
        n, shape = self.groupCount(numReplicas), list(fullShape)
        if n == 1:
            return shape
        if not shape or shape[0] != n:
            raise popart_exception(
                f"The array of the weight {name!r} must have a first dimension of {n}, one entry"
                f" for each group of replicas; its shape is {shape}"
            )
        return shape[1:]

    def verify(self) -> None:
        """Raise if the group and its size contradict each other."""
        kind, size = self._group.type, self._group.replicaGroupSize
        needs_size = kind in (CommGroupType.Consecutive, CommGroupType.Orthogonal)
        if needs_size and size < 1:
            raise popart_exception(f"A {kind.name} group needs a size of at least 1, got {size}")

    def grouping(self, n_replicas: int) -> GroupValues | None:
        """The partition, or None if all replicas share one value."""
        kind, group = self._group.type, self._group.replica_group(n_replicas)
        if kind is CommGroupType.All or (group.size == n_replicas and n_replicas > 1):
            return None
        if self._stride > 1 and self._stride != group.stride:
            raise popart_exception(
                f"A stride of {self._stride} between {group.size} members of a group of"
                f" {n_replicas} replicas is not supported: it must be 1 or {group.stride}"
            )
        return GroupValues(group, returns_all=self._mode is VariableRetrievalMode.AllReplicas)

    def __repr__(self) -> str:
        return f"VariableSettings({self._group}, {self._mode})"
