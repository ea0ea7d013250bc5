"""Words of tones: spectrograms whose letters are lines of random length, each at its own pitch."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

BLANK, N_LETTERS = 0, 5
N_FRAMES, N_BINS = 32, 12
MOST = 5  # letters of a word


@dataclass(frozen=True)
class Words:
    """Spectrograms `float32[n, 32, 12]`, letters 1 … 5 `int64[n, 5]` padded with 0, lengths."""

    sounds: Tensor
    letters: Tensor
    lengths: Tensor


def words_of_tones(n: int, seed: int) -> Words:
    """Two to five letters, each two to six frames long, with silence before, between and after."""
    random = np.random.default_rng(seed)
    sounds = random.normal(0, 0.3, (n, N_FRAMES, N_BINS)).astype(np.float32)
    letters, lengths = np.zeros((n, MOST), np.int64), random.integers(2, MOST + 1, n)
    for word, length in enumerate(lengths):
        letters[word, :length] = random.integers(1, N_LETTERS + 1, length)
        begin = random.integers(0, 3)
        for letter in letters[word, :length]:
            end = begin + random.integers(2, 6)
            pitch = 2 * letter - 1
            sounds[word, begin:end, pitch - 1 : pitch + 2] += [0.5, 2.0, 0.5]
            begin = end + 1
    return Words(*(torch.from_numpy(part) for part in (sounds, letters, lengths)))


def edit_distance(one: list[int], other: list[int]) -> int:
    """Insertions, deletions and replacements that make one list the other."""
    row = list(range(len(other) + 1))
    for i, mine in enumerate(one, 1):
        before, row[0] = row[0], i
        for j, theirs in enumerate(other, 1):
            repeated = before + (mine != theirs)
            before = row[j]
            row[j] = min(repeated, row[j] + 1, row[j - 1] + 1)
    return row[-1]
