"""Codelets of CTC inference: a beam of the likeliest prefixes, step by step, and its traces.

A prefix is known by its last class and two hashes. Every step each prefix stays (a blank, or its
last class again) or grows by a class; equal prefixes are merged, and the best are kept.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false
# pyright: reportReturnType=false, reportCallIssue=false, reportIndexIssue=false
from math import inf
from typing import Any

import numpy as np

from tremula.base.types import Type, float32, uint32
from tremula.codelets import InOut, Input, Output, Vector, Vertex
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import family
from tremula.poplibs.popnn.ctc.codelets import (
    IMPOSSIBLE,
    LOG_ADD_FLOPS,
    LOG_ADD_SLOTS,
    LOG_ZERO,
    START_SLOTS,
    log_add,
)

NO_CLASS = 0xFFFFFFFF  # the last class of the empty prefix; the class a step added if none
# Hashes are polynomials modulo these primes; products stay below 2**62.
_PRIMES = (2147483647, 2147483629)
_BASES = (1000003, 998244353)
FIRST_PRIME, SECOND_PRIME = _PRIMES
FIRST_BASE, SECOND_BASE = _BASES
# A beam's words are the last class and two hashes of each prefix, [3, width]; its scores are the
# logarithms of its paths that end with a blank and of those that do not, [2, width]. Both are there
# for this step and for the next, and again for one candidate.
PREFIX_WORDS = 3
BEAM_WORDS = 2 * PREFIX_WORDS  # of each prefix of a beam: those of this step and of the next


def grown_first(value: int, added: int) -> int:
    """The first hash of a prefix with one more class."""
    return (value * FIRST_BASE + added + 1) % FIRST_PRIME


def grown_second(value: int, added: int) -> int:
    return (value * SECOND_BASE + added + 1) % SECOND_PRIME


def find_prefix(words: np.ndarray, width: int, first: int, second: int, last: int) -> int:
    """The index in the beam of a prefix, or -1."""
    for j in range(width):
        is_same = int(words[j]) == last and int(words[width + j]) == first
        if is_same and int(words[2 * width + j]) == second:
            return j
    return -1


def place_for(scores: np.ndarray, width: int, total: float) -> int:
    """Where in the next beam a prefix of this probability belongs; `width` if nowhere."""
    at = width
    while at > 0 and total > log_add(scores[2 * width + at - 1], scores[3 * width + at - 1]):
        at -= 1
    return at


def offer(
    words: np.ndarray, scores: np.ndarray, parent: np.ndarray, added: np.ndarray, row: int,
    from_place: int, grows_by: int,
) -> None:  # fmt: skip
    """Put the candidate into the next beam, if it is good enough; the worst is dropped."""
    width = len(words) // BEAM_WORDS
    total = log_add(scores[4 * width], scores[4 * width + 1])
    at = place_for(scores, width, total)
    if total < float32(IMPOSSIBLE) or at == width:
        return
    for back in range(width - 1 - at):
        j = width - 1 - back
        for k in range(PREFIX_WORDS, BEAM_WORDS):
            words[k * width + j] = words[k * width + j - 1]
        for k in range(2, 4):
            scores[k * width + j] = scores[k * width + j - 1]
        parent[row + j] = parent[row + j - 1]
        added[row + j] = added[row + j - 1]
    for k in range(3):
        words[(PREFIX_WORDS + k) * width + at] = words[BEAM_WORDS * width + k]
    for k in range(2):
        scores[(2 + k) * width + at] = scores[4 * width + k]
    parent[row + at] = uint32(from_place)
    added[row + at] = uint32(grows_by)


def grown_to(words: np.ndarray, scores: np.ndarray, width: int, j: int) -> float:
    """The score with which a shorter prefix in the beam grows to prefix j; LOG_ZERO if none."""
    last, first, second = int(words[j]), int(words[width + j]), int(words[2 * width + j])
    for k in range(width):
        is_first = grown_first(int(words[width + k]), last) == first
        if is_first and grown_second(int(words[2 * width + k]), last) == second:
            # Between two equal classes there must be a blank.
            both = log_add(scores[k], scores[width + k])
            return scores[k] if int(words[k]) == last else both
    return float32(LOG_ZERO)


def stay(
    words: np.ndarray, scores: np.ndarray, probabilities: np.ndarray, at: int, blank: int, j: int
) -> None:
    """Make a candidate of prefix j as it is: a blank, or its last class again."""
    width, zero = len(words) // BEAM_WORDS, float32(LOG_ZERO)
    here = max(float32(probabilities[at + blank]), zero)
    scores[4 * width] = log_add(scores[j], scores[width + j]) + here
    scores[4 * width + 1] = zero
    if int(words[j]) != NO_CLASS:
        again = max(float32(probabilities[at + int(words[j])]), zero)
        paths = log_add(scores[width + j], grown_to(words, scores, width, j))
        scores[4 * width + 1] = paths + again
    for k in range(3):
        words[BEAM_WORDS * width + k] = words[k * width + j]


def grow(
    words: np.ndarray, scores: np.ndarray, probabilities: np.ndarray, at: int, j: int, c: int
) -> bool:
    """Make a candidate of prefix j with one more class; False if too unlikely, or already there."""
    width, zero = len(words) // BEAM_WORDS, float32(LOG_ZERO)
    paths = scores[j] if int(words[j]) == c else log_add(scores[j], scores[width + j])
    score = paths + max(float32(probabilities[at + c]), zero)
    if score < float32(IMPOSSIBLE) or place_for(scores, width, score) == width:
        return False
    first = grown_first(int(words[width + j]), c)
    second = grown_second(int(words[2 * width + j]), c)
    scores[4 * width] = zero
    scores[4 * width + 1] = score
    words[BEAM_WORDS * width] = uint32(c)
    words[BEAM_WORDS * width + 1] = uint32(first)
    words[BEAM_WORDS * width + 2] = uint32(second)
    return find_prefix(words, width, first, second, c) < 0


def clear_next(words: np.ndarray, scores: np.ndarray, width: int) -> None:
    for j in range(2 * width):
        scores[2 * width + j] = float32(LOG_ZERO)
    for j in range(3 * width):
        words[PREFIX_WORDS * width + j] = uint32(NO_CLASS)


def take_next(words: np.ndarray, scores: np.ndarray, width: int) -> None:
    """The next beam becomes this one."""
    for j in range(3 * width):
        words[j] = words[PREFIX_WORDS * width + j]
    for j in range(2 * width):
        scores[j] = scores[2 * width + j]


def _beam_flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    """Two sums and two comparisons of each candidate, one of each of half the beam's moves."""
    width, n_classes = v.sizes["words"] // BEAM_WORDS, v.state["n_classes"].astype(np.int64)
    candidates = width * n_classes * (2 * LOG_ADD_FLOPS + 2)
    moves = width * (width // 2) * (LOG_ADD_FLOPS + 1)
    return v.sizes["parent"] // np.maximum(width, 1) * (candidates + moves)


@family
def beam_step_codelet(element: Type) -> type:
    """The beam of one sequence through a part of time."""

    class CTCBeamSteps(Vertex):
        name = f"popnn::CTCBeamSteps<{element}>"
        provenance = "derived"
        probabilities: Input[Vector[element]]  # logarithms, [n_steps, n_classes]
        data_length: Input[uint32]
        words: InOut[Vector[uint32]]
        scores: InOut[Vector[float32]]
        parent: Output[Vector[uint32]]  # [n_steps, width]: where each prefix was a step before
        added: Output[Vector[uint32]]  # and the class it grew by
        first_step: uint32
        n_classes: uint32
        blank: uint32

        def compute(self: Any) -> None:
            words, scores, parent, added = self.words, self.scores, self.parent, self.added
            width, n_classes = len(self.words) // BEAM_WORDS, int(self.n_classes)
            blank = int(self.blank)
            n_valid = int(self.data_length) - int(self.first_step)
            for t in range(len(self.parent) // width):
                row, at = t * width, t * n_classes
                for j in range(width):
                    parent[row + j] = uint32(j)
                    added[row + j] = uint32(NO_CLASS)
                if t >= n_valid:
                    continue
                clear_next(words, scores, width)
                for j in range(width):
                    stay(words, scores, self.probabilities, at, blank, j)
                    offer(words, scores, parent, added, row, j, NO_CLASS)
                for j in range(width):
                    for c in range(n_classes):
                        if c != blank and grow(words, scores, self.probabilities, at, j, c):
                            offer(words, scores, parent, added, row, j, c)
                take_next(words, scores, width)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            width = v.sizes["words"] // BEAM_WORDS
            n_steps = v.sizes["parent"] // np.maximum(width, 1)
            n_classes = v.state["n_classes"].astype(np.int64)
            # Each candidate: its score, and a look at the worst that is kept. Each prefix, and as
            # many grown ones: a search through the beam. Each that is kept: its place is found
            # from the end, and half of the beam, 7 words each, moves down.
            candidates = width * n_classes * (2 * LOG_ADD_SLOTS + 20)
            searches = width * width * 2 * 12
            moves = width * (width // 2) * (LOG_ADD_SLOTS + 14)
            return START_SLOTS + n_steps * (candidates + searches + moves + 14 * width)

        flops = staticmethod(_beam_flops)

    return CTCBeamSteps


@family
def beam_trace_codelet() -> type:
    """The labels of one of the best prefixes: back through the steps that made it."""

    class CTCBeamTrace(Vertex):
        name = "popnn::CTCBeamTrace"
        provenance = "derived"
        parent: Input[Vector[uint32]]  # [n_steps, width]
        added: Input[Vector[uint32]]
        scores: Input[Vector[float32]]
        probability: Output[float32]
        n_labels: Output[uint32]
        labels: Output[Vector[uint32]]  # [n_steps]
        path: uint32  # 0 is the best
        blank: uint32

        def compute(self: Any) -> None:
            width, n_steps = len(self.scores) // 4, len(self.labels)
            at, n = int(self.path), 0
            total = log_add(self.scores[at], self.scores[width + at])
            self.probability = total if total > float32(IMPOSSIBLE) else float32(-inf)
            for back in range(n_steps):
                here = (n_steps - 1 - back) * width + at
                if self.added[here] != uint32(NO_CLASS):
                    n += 1
                    self.labels[n_steps - n] = self.added[here]
                at = int(self.parent[here])
            for i in range(n):
                self.labels[i] = self.labels[n_steps - n + i]
            for i in range(n, n_steps):
                self.labels[i] = self.blank
            self.n_labels = uint32(n)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + LOG_ADD_SLOTS + v.sizes["labels"] * 14

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.full(v.n_rows, LOG_ADD_FLOPS + 1)

    return CTCBeamTrace
