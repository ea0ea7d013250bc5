"""Which replica holds which part of which tensor: groups of replicas, shapes of shards.

A weight is split over tp1 and tp2 ("both"), over one of them, or over none. Replicas that hold the
same part form its value group; the weight's bytes in streaming memory are split across them.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from tremula.base.replica_group import ReplicaGroup
from tremula.garden.models.gpt3.config import GPTConfig, Parallelism

SPLITS = ("both", "tp1", "tp2", "none")


def communication_groups(parallel: Parallelism) -> dict[str, ReplicaGroup]:
    """Replicas that differ in one place only: in tp1, in tp2, in both, in dp."""
    return {
        "tp1": ReplicaGroup(parallel.tensor_1, parallel.tensor_2),
        "tp2": ReplicaGroup(parallel.tensor_2),
        "tp_all": ReplicaGroup(parallel.tensor),
        "dp": ReplicaGroup(parallel.data, parallel.tensor),
    }


def places(parallel: Parallelism) -> np.ndarray:
    """int64[replicas, 3]: the place of each replica in dp, tp1 and tp2."""
    shape = parallel.data, parallel.tensor_1, parallel.tensor_2
    return np.stack(np.unravel_index(np.arange(prod(shape)), shape), axis=1)


def value_assignment(parallel: Parallelism, split: str) -> list[int]:
    """For each replica the number of the part that it holds of a weight split so."""
    _, tp1, tp2 = places(parallel).T
    parts = {
        "both": tp1 * parallel.tensor_2 + tp2,
        "tp1": tp1,
        "tp2": tp2,
        "none": np.zeros_like(tp1),
    }
    return parts[split].tolist()


def sharing_group(parallel: Parallelism, split: str) -> ReplicaGroup:
    """The largest groups of equal distance among replicas that hold the same part.

    A weight split over tp1 is the same on all of tp2 and dp, but those are not equally far apart:
    only its copies along tp2 share it out.
    """
    groups = communication_groups(parallel)
    return {
        "both": groups["dp"],
        "tp1": groups["tp2"] if parallel.tensor_1 > 1 else ReplicaGroup(parallel.n_replicas),
        "tp2": ReplicaGroup(parallel.data * parallel.tensor_1, parallel.tensor_2),
        "none": ReplicaGroup(parallel.n_replicas),
    }[split]


@dataclass(frozen=True)
class ShardedWeight:
    """A weight as one replica holds it."""

    name: str
    shape: tuple[int, ...]
    split: str

    @property
    def n_elements(self) -> int:
        return prod(self.shape)


def layer_weights(config: GPTConfig) -> list[ShardedWeight]:
    """Of one decoder layer, in two-dimensional tensor parallelism."""
    h, tp1, tp2 = config.model.hidden, config.parallel.tensor_1, config.parallel.tensor_2
    return [
        ShardedWeight("attention.ln_1.weight", (h // tp2,), "tp2"),
        ShardedWeight("attention.ln_1.bias", (h // tp2,), "tp2"),
        ShardedWeight("attention.qkv.weight", (h // tp2, 3 * h // tp1), "both"),
        # Split like what it is added to: upstream's example splits it over tp2, which is wrong.
        ShardedWeight("attention.qkv.bias", (3 * h // tp1,), "tp1"),
        ShardedWeight("attention.output.weight", (h // tp1, h // tp2), "both"),
        ShardedWeight("attention.output.bias", (h // tp2,), "tp2"),
        ShardedWeight("feed_forward.ln_2.weight", (h // tp2,), "tp2"),
        ShardedWeight("feed_forward.ln_2.bias", (h // tp2,), "tp2"),
        ShardedWeight("feed_forward.intermediate.weight", (h // tp2, 4 * h // tp1), "both"),
        ShardedWeight("feed_forward.intermediate.bias", (4 * h // tp1,), "tp1"),
        ShardedWeight("feed_forward.output.weight", (4 * h // tp1, h // tp2), "both"),
        ShardedWeight("feed_forward.output.bias", (h // tp2,), "tp2"),
    ]


def embedding_weights(config: GPTConfig) -> list[ShardedWeight]:
    """Word and position tables; both have their rows over tp1 and their columns over tp2."""
    h, parallel = config.model.hidden, config.parallel
    columns = h // parallel.tensor_2
    return [
        ShardedWeight("embeddings.word", (config.word_rows, columns), "both"),
        ShardedWeight(
            "embeddings.position", (config.model.sequence // parallel.tensor_1, columns), "both"
        ),
    ]


def head_weights(config: GPTConfig) -> list[ShardedWeight]:
    """The last layer norm; logits use the word table of the embedding."""
    columns = config.model.hidden // config.parallel.tensor_2
    return [
        ShardedWeight("head.ln_f.weight", (columns,), "tp2"),
        ShardedWeight("head.ln_f.bias", (columns,), "tp2"),
    ]


def shard_elements(weight: ShardedWeight, parallel: Parallelism) -> int:
    """Elements of a weight's shard in streaming memory; all of it, if it cannot be split."""
    size = sharing_group(parallel, weight.split).size
    return weight.n_elements if weight.n_elements % size else weight.n_elements // size
