"""Parameters of which groups of replicas have their own values: `parameter.replicaGrouping`."""

from torch import Tensor

from tremula.frontends.poptorch.enums import CommGroupType, VariableRetrievalMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.grouping import Grouping


class ParameterGroupings:
    """Groupings by parameter."""

    def __init__(self) -> None:
        self._of_parameter: dict[int, Grouping] = {}  # by id of the parameter

    def set(self, parameter: Tensor, group_type: int, shards: int, mode: int) -> None:
        """Give groups of replicas their own values of a parameter; all replicas: the same again."""
        if parameter.dim() == 0:
            raise createPoptorchError(
                "Scalars cannot be passed as per-replica weight tensor values"
            )
        self._of_parameter.pop(id(parameter), None)
        kind = CommGroupType(group_type)
        if kind is not CommGroupType.All:
            self._of_parameter[id(parameter)] = Grouping(
                1 if kind is CommGroupType.NoGrouping else shards,
                is_orthogonal=kind is CommGroupType.Orthogonal,
                returns_all=VariableRetrievalMode(mode) is VariableRetrievalMode.AllReplicas,
            )

    def named(self, parameters: list[tuple[str, Tensor]]) -> dict[str, Grouping]:
        """Groupings by the name of the parameter."""
        return {
            name: self._of_parameter[id(tensor)]
            for name, tensor in parameters
            if id(tensor) in self._of_parameter
        }
