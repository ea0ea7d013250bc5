"""Sequences with a known history: ancestors, and copies with mutations."""

import numpy as np

LETTERS = np.frombuffer(b"ACGT", np.uint8)


def random_sequence(random: np.random.Generator, n: int) -> np.ndarray:
    return random.choice(LETTERS, n)


def mutated(random: np.random.Generator, letters: np.ndarray, rate: float) -> np.ndarray:
    """A copy in which each letter is replaced, left out or doubled, with a third of `rate` each."""
    draw = random.random(len(letters))
    copy = np.where(draw < rate / 3, random.choice(LETTERS, len(letters)), letters)
    n_times = np.ones(len(letters), np.int64)
    n_times[(draw >= rate / 3) & (draw < 2 * rate / 3)] = 0
    n_times[(draw >= 2 * rate / 3) & (draw < rate)] = 2
    return np.repeat(copy, n_times)


def of_length(random: np.random.Generator, letters: np.ndarray, n: int) -> np.ndarray:
    """The sequence cut to n letters, or continued at random."""
    missing = max(0, n - len(letters))
    return np.concatenate([letters, random_sequence(random, missing)])[:n]
