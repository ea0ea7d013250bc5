"""Parts of the applications on sound: words of tones, and how far two words are apart."""

from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import poptorch
from tremula.garden.applications.conformer_ctc.main import error_rate
from tremula.garden.applications.conformer_ctc.model import LetterDecoder
from tremula.garden.applications.conformer_ctc.tones import (
    BLANK,
    N_FRAMES,
    N_LETTERS,
    edit_distance,
    words_of_tones,
)

WORDS = st.lists(st.integers(1, 3), max_size=5)


def plain_distance(one, other):
    @cache
    def of(i, j):
        if not i or not j:
            return i + j
        kept = of(i - 1, j - 1) + (one[i - 1] != other[j - 1])
        return min(kept, of(i - 1, j) + 1, of(i, j - 1) + 1)

    return of(len(one), len(other))


@given(WORDS, WORDS)
@settings(max_examples=60, deadline=None)
def test_edit_distance(one, other):
    """It is the least number of changes, by the recursion that defines it, and symmetric."""
    assert edit_distance(one, other) == plain_distance(one, other) == edit_distance(other, one)


def test_letters_are_where_their_tones_are():
    """Each letter sounds at its own pitch within the frames; nothing follows the last one."""
    words = words_of_tones(50, seed=0)
    loud = words.sounds[:, :, 1 : 2 * N_LETTERS : 2] > 1.2  # the pitch of each letter
    for heard, letters, length in zip(loud, words.letters, words.lengths, strict=True):
        assert set(letters[:length].tolist()) == set(
            (heard.any(0).nonzero() + 1).flatten().tolist()
        )
        assert (letters[length:] == 0).all()


class Certain(torch.nn.Module):
    """A recogniser that is sure: log probabilities of a path through letters and blanks."""

    def __init__(self, paths):
        super().__init__()
        sure = torch.full((len(paths), N_FRAMES, 1 + N_LETTERS), -20.0)
        for row, path in enumerate(paths):
            padded = path + [BLANK] * (N_FRAMES - len(path))
            sure[row, torch.arange(N_FRAMES), torch.tensor(padded)] = 0.0
        self.sure = torch.nn.Parameter(sure)

    def chances(self, sounds):
        return (self.sure + 0 * sounds.mean()).log_softmax(-1).transpose(0, 1)


def test_paths_are_read_without_blanks_and_repeats():
    """Letters that repeat are one unless a blank parts them; the error rate counts the rest."""
    paths = [[1, 1, 0, 1, 2, 2], [0, 3, 0, 0, 3, 3], [4]]
    reader = poptorch.inferenceModel(LetterDecoder(Certain(paths)))
    letters, lengths = reader(torch.zeros(3, N_FRAMES, 12))
    read = [row[:n].tolist() for row, n in zip(letters, lengths.tolist(), strict=True)]
    assert read == [[1, 1, 2], [3, 3], [4]]
    truth = words_of_tones(3, seed=1)
    truth.letters.zero_()
    truth.lengths.copy_(torch.tensor([3, 2, 2]))
    truth.letters[0, :3] = torch.tensor([1, 1, 2])
    truth.letters[1, :2] = torch.tensor([3, 5])  # one replaced
    truth.letters[2, :2] = torch.tensor([4, 1])  # one missing
    assert error_rate(letters, lengths, truth) == 2 / 7
