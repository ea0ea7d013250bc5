"""A knowledge graph made by rules, its balanced batches, and the ranks of true tails.

Entities stand on a ring. Relations move along it: some are inverse to each other, some compose to
others, one joins pairs both ways. So what is left out for the test follows from what is kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

STEPS = (1, -1, 2, 7, 8, -8)  # 1 and -1 are inverse; 1 twice is 2; 1 and 7 compose to 8
N_RELATIONS = len(STEPS) + 1  # the last joins neighbours 2k and 2k + 1, both ways


@dataclass(frozen=True, slots=True)
class Triples:
    """Columns of head, relation and tail; entity e is row e // shards of shard e % shards."""

    head: np.ndarray
    relation: np.ndarray
    tail: np.ndarray

    def __len__(self) -> int:
        return len(self.head)

    def taken(self, rows: np.ndarray) -> "Triples":
        return Triples(self.head[rows], self.relation[rows], self.tail[rows])


def rule_graph(n_entities: int, seed: int = 0) -> tuple[Triples, Triples]:
    """Triples for training, and a tenth of all for the test. Entities get random numbers."""
    if n_entities % 2:
        raise ValueError(f"entities come in pairs, got {n_entities} of them.")
    random = np.random.default_rng(seed)
    places = np.arange(n_entities)
    tails = [(places + step) % n_entities for step in STEPS] + [places ^ 1]
    number_of = random.permutation(n_entities)
    head = number_of[np.tile(places, N_RELATIONS)]
    relation = np.repeat(np.arange(N_RELATIONS), n_entities)
    all_triples = Triples(head, relation, number_of[np.concatenate(tails)])
    order = random.permutation(len(head))
    n_test = len(order) // 10
    return all_triples.taken(order[n_test:]), all_triples.taken(order[:n_test])


@dataclass(frozen=True, slots=True)
class TripleBatch:
    """What each replica needs for one micro-batch, as rows of its shard: int32 columns.

    Triples belong to the replica of their head. heads and relations are [replica, tail's shard,
    triple]; tails and negatives are what a replica sends, [sender, receiver, …].
    """

    heads: np.ndarray
    relations: np.ndarray
    tails: np.ndarray
    negatives: np.ndarray  # [sender, receiver, triple of the receiver, negatives]


def batches(
    triples: Triples, n_shards: int, n_of_bucket: int, n_negatives: int, seed: int = 0
) -> Iterator[TripleBatch]:
    """Endless batches with equally many triples of each pair of shards, and negatives of each.

    So every replica gathers, sends, receives and scores as much as any other.
    """
    random = np.random.default_rng(seed)
    bucket = triples.head % n_shards * n_shards + triples.tail % n_shards
    members = [np.flatnonzero(bucket == b) for b in range(n_shards**2)]
    empty = [divmod(b, n_shards) for b, rows in enumerate(members) if not len(rows)]
    if empty:
        raise ValueError(
            f"no triple leads from shard {empty[0][0]} to shard {empty[0][1]}: take fewer shards."
        )
    n_rows = (int(max(triples.head.max(), triples.tail.max())) + n_shards) // n_shards
    while True:
        rows = np.stack([random.choice(rows, n_of_bucket) for rows in members])
        rows = rows.reshape(n_shards, n_shards, n_of_bucket)  # [head's shard, tail's shard, triple]
        size = (n_shards, n_shards, n_shards * n_of_bucket, n_negatives)
        yield TripleBatch(
            (triples.head[rows] // n_shards).astype(np.int32),
            triples.relation[rows].astype(np.int32),
            np.ascontiguousarray((triples.tail[rows] // n_shards).swapaxes(0, 1), np.int32),
            random.integers(0, n_rows, size, np.int32),
        )


def mean_reciprocal_rank(scores: np.ndarray, test: Triples, known: list[Triples]) -> float:
    """Of true tails among all entities; other tails that are true as well do not count.

    scores: [test, entities]. Equal scores share their ranks.
    """
    scores = scores.copy()
    true = scores[np.arange(len(test)), test.tail]
    is_other = np.zeros(scores.shape, bool)
    n_keys = int(max(t.relation.max() for t in (test, *known))) + 1
    keys = test.head * n_keys + test.relation
    order = np.argsort(keys, kind="stable")
    for triples in (test, *known):
        of_triple = triples.head * n_keys + triples.relation
        first = np.searchsorted(keys[order], of_triple)
        last = np.searchsorted(keys[order], of_triple, side="right")
        for a, b, tail in zip(first.tolist(), last.tolist(), triples.tail.tolist(), strict=True):
            is_other[order[a:b], tail] = True
    scores[is_other] = -np.inf
    above = (scores > true[:, None]).sum(1)
    equal = (scores == true[:, None]).sum(1)
    return float(np.mean(1 / (1 + above + equal / 2)))
