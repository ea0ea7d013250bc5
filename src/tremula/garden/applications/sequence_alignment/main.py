"""Aligns two relatives globally by a wavefront, then many pairs by X-drop, related and not."""

import numpy as np

from tremula.garden.application import Findings, Settings, modelled_engine
from tremula.garden.applications.sequence_alignment.sequences import (
    mutated,
    of_length,
    random_sequence,
)
from tremula.garden.applications.sequence_alignment.wavefront import (
    aligned,
    score_of,
    wavefront_engine,
)
from tremula.garden.applications.sequence_alignment.x_drop import x_drop_engine

Pair = tuple[np.ndarray, np.ndarray]


def run(settings: Settings) -> Findings:
    random = np.random.default_rng(9)
    n, block, n_tiles = (384, 8, 8) if settings.tiny else (17_664, 48, 1472)
    first = random_sequence(random, n)
    second = of_length(random, mutated(random, first, 0.2), n)
    settings.show(f"two sequences of {n:,} letters, a fifth mutated, on {n_tiles} tiles")
    wave = wavefront_engine(n, n, n_tiles, block).load()
    score, above, below = aligned(wave, first, second)
    settings.show(f"  score {score}: {above[:60]}\n             {below[:60]}")
    picture = wave.read_tensor("came_from").swapaxes(0, 1).reshape(n, n).astype(float)

    n_pairs, length, n_tiles = (240, 200, 16) if settings.tiny else (17_664, 2000, 1472)
    pairs, is_related = some_pairs(random, n_pairs, length)
    engine = x_drop_engine(pairs, 20, n_tiles).load()
    engine.run()
    results = engine.read_tensor("results")
    result = results[:, 0] > length // 4
    share = results[:, 3].sum() / sum(len(a) * len(b) for a, b in pairs)
    modelled = modelled_engine(engine, settings, n_items=n_pairs, unit="pairs/s")
    settings.show(f"  X-drop: {n_pairs:,} pairs, {share:.1%} of all cells looked at")
    return Findings(
        results={
            "wavefront_score": float(score),
            "score_of_alignment_less_score": float(score_of(above, below) - score),
            "relatives_told_apart": float((result == is_related).mean()),
            "share_of_cells": float(share),
        },
        modelled=modelled,
        picture=picture,
    )


def some_pairs(
    random: np.random.Generator, n_pairs: int, length: int
) -> tuple[list[Pair], np.ndarray]:
    """Every second pair is related: up to a fifth of its letters mutated."""
    is_related = np.arange(n_pairs) % 2 == 0
    pairs = []
    for related in is_related.tolist():
        first = random_sequence(random, int(random.integers(length // 2, length)))
        second = mutated(random, first, random.uniform(0.02, 0.2))
        pairs.append((first, second if related else random_sequence(random, len(first))))
    return pairs, is_related
