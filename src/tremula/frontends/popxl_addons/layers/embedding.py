"""Rows of a table, which groups of replicas may share."""

from functools import partial
from math import ceil

import numpy as np

import popxl
from popxl import ops
from tremula.frontends.popxl_addons.graphs.module import Module
from tremula.frontends.popxl_addons.layers.initialisers import truncated_normal

GRAIN = 16  # rows of a shard are a multiple of this, which lookups of slices like


class Embedding(Module):
    """A table [vocab, hidden] whose rows are chosen by indices.

    With a `replica_grouping` of several groups, each has a part of the rows: indices are less the
    group's offset (`get_offsets`), and those out of range give zeros.
    """

    def __init__(
        self,
        dtype: popxl.dtype,
        vocab_size: int,
        hidden_size: int,
        axis: int = 0,
        replica_grouping: popxl.ReplicaGrouping | None = None,
    ):
        super().__init__()
        self.dtype, self.vocab_size, self.hidden_size = dtype, vocab_size, hidden_size
        self.axis, self.replica_grouping = axis, replica_grouping
        self.n_shards = 1 if replica_grouping is None else replica_grouping.num_groups
        self.vocab_shard_size = self.get_vocab_shard_size(vocab_size, self.n_shards)
        self.offsets = self.get_offsets(vocab_size, self.n_shards)

    @staticmethod
    def get_vocab_shard_size(vocab_size: int, n_shards: int) -> int:
        """Rows of each part: a multiple of 16, so that all parts together may have more rows.

        >>> Embedding.get_vocab_shard_size(100, 2)
        64
        """
        return GRAIN * ceil(ceil(vocab_size / n_shards) / GRAIN)

    @staticmethod
    def get_offsets(vocab_size: int, n_shards: int) -> np.ndarray:
        """The first row of each part.

        >>> Embedding.get_offsets(100, 2).tolist()
        [0, 64]
        """
        return np.arange(n_shards) * Embedding.get_vocab_shard_size(vocab_size, n_shards)

    def build(self, indices: popxl.Tensor) -> popxl.Tensor:
        """Integers […] → […, hidden]."""
        shape = (self.vocab_shard_size, self.hidden_size)
        weight = self.add_variable_input(
            "weight", partial(truncated_normal, shape), self.dtype,
            replica_grouping=self.replica_grouping,
        )  # fmt: skip
        return ops.gather(weight, indices, axis=self.axis, zero_OOR=self.n_shards > 1)
