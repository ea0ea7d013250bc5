"""Trees of tensors, of their values, and of groups of replicas."""

from collections.abc import Iterable, Mapping

import numpy as np

import popxl
from tremula.frontends.popxl_addons.named.dot_tree import DotTree


class NamedTensors(DotTree[popxl.Tensor]):
    """Tensors by dotted names."""

    @property
    def tensors(self) -> tuple[popxl.Tensor, ...]:
        """The tensors alone."""
        return tuple(self.to_dict().values())

    @property
    def named_tensors(self) -> dict[str, popxl.Tensor]:
        """All tensors by name."""
        return self.to_dict()

    def remap(self, mapping: Mapping[popxl.Tensor, popxl.Tensor]) -> "NamedTensors":
        """What tensors become under a mapping; those that it does not have are left out."""
        result = {name: mapping[t] for name, t in self.to_dict().items() if t in mapping}
        return NamedTensors.from_dict(result)


class NamedTensorData(DotTree[np.ndarray]):
    """Arrays by dotted names."""


class NamedReplicaGrouping(DotTree[popxl.ReplicaGrouping]):
    """Groups of replicas by the names of variables."""

    @classmethod
    def build_groups(
        cls, names: Iterable[str], value: popxl.ReplicaGrouping | None = None
    ) -> "NamedReplicaGrouping":
        """The same groups for all names: one of all replicas unless given."""
        group = value or popxl.gcg().ir.replica_grouping()
        return cls.from_dict(dict.fromkeys(names, group))
