"""Groups of replicas of an Ir: whom tensors are reduced with, and who holds the same part."""

from dataclasses import dataclass
from functools import cached_property

import popxl
from tremula.garden.models.gpt3.config import Parallelism
from tremula.garden.models.gpt3.layout import communication_groups


@dataclass(frozen=True)
class Replicas:
    """Groups of an Ir's replicas, by what varies in them."""

    ir: popxl.Ir
    parallel: Parallelism

    def _communication(self, name: str) -> popxl.ReplicaGrouping:
        group = communication_groups(self.parallel)[name]
        return self.ir.replica_grouping(stride=group.stride, group_size=group.size)

    @cached_property
    def tp1(self) -> popxl.ReplicaGrouping:
        return self._communication("tp1")

    @cached_property
    def tp2(self) -> popxl.ReplicaGrouping:
        return self._communication("tp2")

    @cached_property
    def dp(self) -> popxl.ReplicaGrouping:
        return self._communication("dp")

    @cached_property
    def whole(self) -> popxl.ReplicaGrouping:
        return self.ir.replica_grouping()

    def holding(self, split: str) -> popxl.ReplicaGrouping:
        """Replicas that hold the same part: the transpose of those that split the weight."""
        if split == "none":
            return self.whole
        return self._communication("tp_all" if split == "both" else split).transpose()
