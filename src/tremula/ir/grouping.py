"""Which replicas share a value of a parameter. Options name it, so little is imported here."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.base.replica_group import ReplicaGroup
from tremula.ir.errors import UnsuitableModel


@dataclass(frozen=True)
class Grouping:
    """Which replicas share a value of a parameter, and which of them return it."""

    size: int  # replicas in a group
    is_orthogonal: bool = False  # members are as far apart as they can be, instead of neighbours
    returns_all: bool = False  # every replica's value; otherwise that of the first in each group

    def group(self, n_replicas: int) -> ReplicaGroup:
        """The groups of a number of replicas."""
        size = self.size
        if size < 1 or n_replicas % size:
            raise UnsuitableModel(
                f"A group of {size} replicas is not a factor of the replication factor "
                f"({n_replicas})"
            )
        return (
            ReplicaGroup.orthogonal(size, n_replicas) if self.is_orthogonal else ReplicaGroup(size)
        )

    def n_groups(self, n_replicas: int) -> int:
        return self.group(n_replicas).n_groups(n_replicas)

    def slice_of(self, value: Tensor, replica: int, n_replicas: int) -> Tensor:
        """A replica's part of the host's value."""
        if value.shape[0] == self.n_groups(n_replicas):
            return value[self.group(n_replicas).group_of(replica)]
        return value[replica]

    def joined(self, values: Sequence[Tensor]) -> Tensor:
        """The host's value from those of all replicas."""
        return torch.stack(
            list(values) if self.returns_all else self.group(len(values)).joined(values)
        )
