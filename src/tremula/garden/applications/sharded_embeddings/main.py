"""Trains embeddings of a rule-made knowledge graph on four chips, each with a shard of entities."""

from functools import partial

import numpy as np
import torch

from tremula.garden.application import Findings, Settings, modelled_report
from tremula.garden.applications.sharded_embeddings.data import (
    N_RELATIONS,
    batches,
    mean_reciprocal_rank,
    rule_graph,
)
from tremula.garden.applications.sharded_embeddings.training import ShardedTraining, small_chips
from tremula.garden.models.knowledge_graphs.model import Score, ScorerSizes

N_SHARDS, N_OF_BUCKET, N_NEGATIVES = 4, 8, 4
N_ITERATIONS = 10  # steps a call
N_TRIPLES = N_SHARDS**2 * N_OF_BUCKET  # a step, over all chips
# Complex numbers, or real ones for TransE and DistMult: a row has 16 numbers of either kind.
SIZES: dict[Score, int] = {"RotatE": 8, "TransE": 16, "ComplEx": 8, "DistMult": 16}
adam = partial(torch.optim.Adam, lr=0.05)


def run(settings: Settings) -> Findings:
    n_entities, n_calls = (400, 40) if settings.tiny else (2000, 300)
    results, curves = {}, {}
    for score in ("RotatE",) if settings.tiny else SIZES:
        before, curve, imbalance = trained(score, n_entities, n_calls, settings)
        results[f"mrr_{score.lower()}"] = curve[-1]
        results[f"mrr_{score.lower()}_before"] = before
        results["exchange_imbalance"] = imbalance
        curves[f"{score}: mean reciprocal rank"] = curve
    train, _ = rule_graph(n_entities)
    on_whole_chips = ShardedTraining(shape_of("RotatE", n_entities), adam, runs=False)
    report = on_whole_chips.report(batches(train, N_SHARDS, N_OF_BUCKET, N_NEGATIVES))
    return Findings(
        results=results,
        modelled=modelled_report(report, settings, n_items=N_TRIPLES, unit="triples/s"),
        curves=curves,
    )


def shape_of(score: Score, n_entities: int) -> ScorerSizes:
    return ScorerSizes(
        score=score,
        n_entities=n_entities,
        n_relations=N_RELATIONS,
        size=SIZES[score],
        n_shards=N_SHARDS,
    )


def trained(
    score: Score, n_entities: int, n_calls: int, settings: Settings
) -> tuple[float, list[float], float]:
    """Mean reciprocal ranks of the test's tails, before training and ten times on the way.

    Then how much more the busiest chip sends than the idlest, relatively.
    """
    train, test = rule_graph(n_entities)
    training = ShardedTraining(shape_of(score, n_entities), adam, N_ITERATIONS)
    source = batches(train, N_SHARDS, N_OF_BUCKET, N_NEGATIVES)
    settings.show(
        f"{score}: {n_entities} entities in {N_SHARDS} shards, {len(train):,} triples,"
        f" {N_TRIPLES} a step, as many of each pair of shards"
    )
    before = mean_reciprocal_rank(training.scores(test), test, [train])
    curve = []
    with small_chips():
        for part in np.array_split(np.arange(n_calls), 10):
            losses = [training.step(source) for _ in part]
            curve.append(mean_reciprocal_rank(training.scores(test), test, [train]))
            settings.show(
                f"  {(part[-1] + 1) * N_ITERATIONS:5} steps: loss {losses[-1]:.3f},"
                f" mean reciprocal rank {curve[-1]:.3f}"
            )
    sent = training.bytes_sent()
    settings.show(f"  each chip sends {sent.min():,} to {sent.max():,} bytes a call")
    training.model.destroy()
    return before, curve, float(sent.max() / sent.min() - 1)
