"""Alignment on tiles against plain references: whole matrices, and X-drop cell by cell."""

import numpy as np
import pytest

import tremula as tr
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


def global_scores(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Needleman and Wunsch's whole matrix: match 1, mismatch and gap -1."""
    scores = np.zeros((len(first) + 1, len(second) + 1), int)
    scores[:, 0], scores[0] = -np.arange(len(first) + 1), -np.arange(len(second) + 1)
    for i in range(1, len(first) + 1):
        for j in range(1, len(second) + 1):
            same = 1 if first[i - 1] == second[j - 1] else -1
            scores[i, j] = max(
                scores[i - 1, j - 1] + same, scores[i - 1, j] - 1, scores[i, j - 1] - 1
            )
    return scores


def x_drop_by_rule(first: np.ndarray, second: np.ndarray, x: int) -> tuple[int, int]:
    """The best score and the cells looked at, with a dictionary for each antidiagonal."""
    last, before, best, n_cells = {0: 0}, {}, 0, 0
    for diagonal in range(1, len(first) + len(second) + 1):
        if not last:
            break
        now = {}
        limit, low, high = best - x, min(last), max(last) + 1
        for i in range(max(low, diagonal - len(second)), min(high, diagonal, len(first)) + 1):
            j, result = diagonal - i, [last[k] - 1 for k in (i - 1, i) if k in last]
            n_cells += 1
            if i > 0 and j > 0 and i - 1 in before:
                result.append(before[i - 1] + (1 if first[i - 1] == second[j - 1] else -1))
            if result and max(result) >= limit:
                now[i] = max(result)
                best = max(best, now[i])
        last, before = now, last
    return best, n_cells


@pytest.mark.parametrize("block", [4, 12])
def test_the_wavefront_is_needleman_and_wunsch(block):
    """The score is that of the whole matrix, and the alignment that is traced back has it."""
    random = np.random.default_rng(block)
    first = random_sequence(random, 24)
    second = of_length(random, mutated(random, first, 0.4), 36)
    engine = wavefront_engine(24, 36, 2, block).load()
    for _ in range(2):  # a second run starts afresh
        score, above, below = aligned(engine, first, second)
        assert score == global_scores(first, second)[-1, -1]
        assert score_of(above, below) == score
    assert bytes(above.replace("-", ""), "ascii") == first.tobytes()
    assert bytes(below.replace("-", ""), "ascii") == second.tobytes()


def test_a_known_alignment():
    """GATTACA and GCATGCG, padded by equal letters: the textbook's score 0, and four more."""
    letters = [np.frombuffer(text, np.uint8) for text in (b"GATTACATTTTT", b"GCATGCGTTTTT")]
    engine = wavefront_engine(12, 12, 1, 3).load()
    score, _, _ = aligned(engine, *letters)
    assert score == global_scores(*letters)[-1, -1] == 5


def pairs_of(seed: int, n: int = 14) -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(seed)
    pairs = []
    for i in range(n):
        first = random_sequence(random, int(random.integers(1, 40)))
        related = mutated(random, first, 0.3)
        second = related if i % 2 and len(related) else random_sequence(random, 17)
        pairs.append((first, second))
    return pairs


@pytest.mark.parametrize("x", [0, 3, 8])
def test_x_drop_follows_its_rule(x):
    """Scores and the number of cells looked at are those of the rule, related or not."""
    pairs = pairs_of(x)
    engine = x_drop_engine(pairs, x, 2).load()
    engine.run()
    results = engine.read_tensor("results")
    expected = [x_drop_by_rule(*pair, x) for pair in pairs]
    assert results[:, [0, 3]].tolist() == [list(result) for result in expected]


def test_a_large_x_drops_nothing():
    """Then the best score is the best of the whole matrix, and it ends where the result says."""
    pairs = pairs_of(5)
    engine = x_drop_engine(pairs, 1000, 2).load()
    engine.run()
    for (score, rows, columns, _), pair in zip(engine.read_tensor("results"), pairs, strict=True):
        scores = global_scores(*pair)
        assert score == scores.max() == scores[rows, columns]


def test_bad_input_is_named():
    """Lengths that do not divide, a negative x, an empty sequence."""
    with pytest.raises(tr.errors.InvalidOption, match="10 letters cannot be cut into 6 strips"):
        wavefront_engine(8, 10, 1, 4)
    letters = np.zeros(3, np.uint8)
    with pytest.raises(tr.errors.InvalidOption, match="x = -1"):
        x_drop_engine([(letters, letters)], -1, 1)
    with pytest.raises(tr.errors.InvalidOption, match="not empty"):
        x_drop_engine([(letters, letters[:0])], 3, 1)
