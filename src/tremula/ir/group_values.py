"""How the values of a parameter that differ between groups of replicas lie on the host."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.base.replica_group import ReplicaGroup


@dataclass(frozen=True)
class GroupValues:
    """One value for each group of replicas, and which replicas return theirs.

    The host's tensor has one more dimension, the first: an entry for each group or, when all
    replicas returned theirs, for each replica.
    """

    replicas: ReplicaGroup
    returns_all: bool = False  # every replica's value; otherwise that of the first in each group

    def slice_of(self, value: Tensor, replica: int, n_replicas: int) -> Tensor:
        """A replica's part of the host's value."""
        is_by_group = value.shape[0] == self.replicas.n_groups(n_replicas)
        return value[self.replicas.group_of(replica) if is_by_group else replica]

    def joined(self, values: Sequence[Tensor]) -> Tensor:
        """The host's value from those of all replicas."""
        return torch.stack(list(values) if self.returns_all else self.replicas.joined(values))
