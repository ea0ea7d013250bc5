"""Parameters of which groups of replicas have their own values: `parameter.replicaGrouping`."""

from dataclasses import dataclass

from torch import Tensor

from tremula.base.replica_group import ReplicaGroup
from tremula.frontends.poptorch.enums import CommGroupType, VariableRetrievalMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.group_values import GroupValues


@dataclass(frozen=True)
class _Request:
    """What a script said of a parameter; the number of replicas is known when it compiles."""

    kind: CommGroupType
    shards: int
    mode: VariableRetrievalMode

    def group_values(self, n_replicas: int) -> GroupValues:
        size = 1 if self.kind is CommGroupType.NoGrouping else self.shards
        is_orthogonal = self.kind is CommGroupType.Orthogonal
        group = ReplicaGroup.of_size(size, n_replicas, is_orthogonal=is_orthogonal)
        return GroupValues(group, self.mode is VariableRetrievalMode.AllReplicas)


class ParameterGroupings:
    """Groupings by parameter."""

    def __init__(self) -> None:
        self._of_parameter: dict[int, _Request] = {}  # by id of the parameter

    def set(self, parameter: Tensor, group_type: int, shards: int, mode: int) -> None:
        """Give groups of replicas their own values of a parameter; all replicas: the same again."""
        if parameter.dim() == 0:
            raise createPoptorchError(
                "Scalars cannot be passed as per-replica weight tensor values"
            )
        self._of_parameter.pop(id(parameter), None)
        request = _Request(CommGroupType(group_type), shards, VariableRetrievalMode(mode))
        if request.kind is not CommGroupType.All:
            self._of_parameter[id(parameter)] = request

    def named(
        self, parameters: list[tuple[str, Tensor]], n_replicas: int
    ) -> dict[str, GroupValues]:
        """Groupings of the replicas by the name of the parameter."""
        return {
            name: self._of_parameter[id(tensor)].group_values(n_replicas)
            for name, tensor in parameters
            if id(tensor) in self._of_parameter
        }
