"""Codelets of the CTC loss: paths counted forwards and backwards through time, in logarithms.

A label sequence a b … is extended to ∅ a ∅ b … ∅, its *places*; a path stays at its place, moves to
the next, or skips a blank between two different labels. Probabilities are logarithms in float32;
a finite number, LOG_ZERO, stands for the logarithm of zero, so that differences stay defined.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false
# pyright: reportReturnType=false
from math import exp, fabs, inf, log1p
from typing import Any

import numpy as np

from tremula.base.types import Type, float32, uint32
from tremula.codelets import Input, MultiVertex, Output, Vector, Vertex
from tremula.codelets.flops import flops_per_element
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import family

LOG_ZERO = -1e30
IMPOSSIBLE = -1e29  # below this there is no path

# Worker slots. A sum of two logarithms: 4 to compare and subtract, exp 3, log 6, and 2 more
# (the functions' costs are published; the loops around them are counted).
LOG_ADD_SLOTS = 15
PLACE_SLOTS = 2 * LOG_ADD_SLOTS + 12  # of a step: label, probability, three predecessors, store
START_SLOTS, LAUNCH_CYCLES = 20, 11
# Flops of a sum of two logarithms (see `log_add`), and of a place: two sums, label, probability.
LOG_ADD_FLOPS = 5
PLACE_FLOPS = 2 * LOG_ADD_FLOPS + 2


def log_add(a: float, b: float) -> float:
    """log(exp(a) + exp(b))."""
    return max(a, b) + float32(log1p(exp(-fabs(a - b))))


def class_at(labels: np.ndarray, place: int, blank: int, n_classes: int) -> int:
    """The class of a place of the extended label sequence; never beyond the last class."""
    return min(int(labels[place // 2]), n_classes - 1) if place % 2 == 1 else blank


def can_skip(labels: np.ndarray, place: int) -> bool:
    """Whether a path may come to a place from two places before it."""
    return place % 2 == 1 and place > 1 and labels[place // 2] != labels[place // 2 - 1]


@family
def ctc_alpha_codelet(element: Type) -> type:
    """Logarithms of the probability of being at each place after each step of a part of time."""

    class CTCAlpha(Vertex):
        name = f"popnn::CTCAlpha<{element}>"
        provenance = "derived"
        probabilities: Input[Vector[element]]  # logarithms, [n_steps, n_classes]
        labels: Input[Vector[uint32]]
        data_length: Input[uint32]
        label_length: Input[uint32]
        before: Input[Vector[float32]]  # the step before this part
        alpha: Output[Vector[float32]]  # [n_steps, n_places]
        first_step: uint32
        n_classes: uint32
        blank: uint32

        def compute(self: Any) -> None:
            alpha, labels, before = self.alpha, self.labels, self.before
            n, n_classes, blank = len(self.before), int(self.n_classes), int(self.blank)
            n_used = min(2 * int(self.label_length) + 1, n)
            n_steps = len(self.alpha) // n
            n_valid = int(self.data_length) - int(self.first_step)
            zero = float32(LOG_ZERO)
            for t in range(n_steps):
                for s in range(n):
                    last = before[s] if t == 0 else alpha[(t - 1) * n + s]
                    if t < n_valid and s < n_used:
                        one, two = zero, zero
                        if s > 0:
                            one = before[s - 1] if t == 0 else alpha[(t - 1) * n + s - 1]
                        if can_skip(labels, s):
                            two = before[s - 2] if t == 0 else alpha[(t - 1) * n + s - 2]
                        at = t * n_classes + class_at(labels, s, blank, n_classes)
                        here = max(float32(self.probabilities[at]), zero)
                        last = log_add(log_add(last, one), two) + here
                    alpha[t * n + s] = last

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + v.sizes["alpha"] * PLACE_SLOTS

        flops = flops_per_element("alpha", PLACE_FLOPS)

    return CTCAlpha


@family
def ctc_beta_codelet(element: Type) -> type:
    """Logarithms of the probability of being at each place and reaching the end from there."""

    class CTCBeta(Vertex):
        name = f"popnn::CTCBeta<{element}>"
        provenance = "derived"
        probabilities: Input[Vector[element]]
        labels: Input[Vector[uint32]]
        data_length: Input[uint32]
        label_length: Input[uint32]
        after: Input[Vector[float32]]  # the step after this part
        beta: Output[Vector[float32]]
        first_step: uint32
        n_classes: uint32
        blank: uint32

        def compute(self: Any) -> None:
            beta, labels, after = self.beta, self.labels, self.after
            n, n_classes, blank = len(self.after), int(self.n_classes), int(self.blank)
            n_used = min(2 * int(self.label_length) + 1, n)
            n_steps = len(self.beta) // n
            n_valid = int(self.data_length) - int(self.first_step)
            zero = float32(LOG_ZERO)
            for back in range(n_steps):
                t = n_steps - 1 - back
                is_end, is_edge = t == n_valid - 1, t == n_steps - 1
                for s in range(n):
                    total = zero
                    if t < n_valid and s < n_used:
                        for step in range(3):
                            to = s + step
                            if to < n_used and (step < 2 or can_skip(labels, to)):
                                end = float32(0) if to == n_used - 1 else zero
                                later = zero
                                if not is_end:
                                    later = after[to] if is_edge else beta[(t + 1) * n + to]
                                total = log_add(total, end if is_end else later)
                        at = t * n_classes + class_at(labels, s, blank, n_classes)
                        total += max(float32(self.probabilities[at]), zero)
                    beta[t * n + s] = total

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return START_SLOTS + v.sizes["beta"] * PLACE_SLOTS

        flops = flops_per_element("beta", PLACE_FLOPS)

    return CTCBeta


@family
def ctc_loss_codelet() -> type:
    """The loss of one sequence: minus the logarithm of the probability of all its paths."""

    class CTCLossVertex(Vertex):
        name = "popnn::CTCLoss"
        provenance = "derived"
        alpha: Input[Vector[float32]]  # the last step
        label_length: Input[uint32]
        loss: Output[float32]

        def compute(self: Any) -> None:
            last = min(2 * int(self.label_length), len(self.alpha) - 1)
            total = self.alpha[last]
            if last > 0:
                total = log_add(total, self.alpha[last - 1])
            self.loss = -total if total > float32(IMPOSSIBLE) else float32(inf)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.full(v.n_rows, START_SLOTS + LOG_ADD_SLOTS + 8)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.full(v.n_rows, LOG_ADD_FLOPS + 1)

    return CTCLossVertex


@family
def ctc_gradient_codelet(element: Type, out: Type) -> type:
    """Minus the probability that a path is in each class at each step; workers share the steps."""

    class CTCGradient(MultiVertex):
        name = f"popnn::CTCGradient<{element},{out}>"
        provenance = "derived"
        probabilities: Input[Vector[element]]
        labels: Input[Vector[uint32]]
        data_length: Input[uint32]
        label_length: Input[uint32]
        alpha: Input[Vector[float32]]
        beta: Input[Vector[float32]]
        loss: Input[float32]
        gradient: Output[Vector[out]]
        first_step: uint32
        n_classes: uint32
        blank: uint32

        def compute(self: Any, worker_id: int) -> None:
            gradient, labels = self.gradient, self.labels
            n_classes, blank, loss = int(self.n_classes), int(self.blank), self.loss
            n_steps = len(self.gradient) // n_classes
            n = len(self.alpha) // n_steps
            n_used = min(2 * int(self.label_length) + 1, n)
            n_valid = int(self.data_length) - int(self.first_step)
            begin = n_steps * worker_id // self.n_workers
            end = n_steps * (worker_id + 1) // self.n_workers
            for t in range(begin, end):
                for c in range(n_classes):
                    total = float32(0)
                    if t < n_valid and loss < float32(-IMPOSSIBLE):
                        here = max(
                            float32(self.probabilities[t * n_classes + c]), float32(LOG_ZERO)
                        )
                        for s in range(n_used):
                            if class_at(labels, s, blank, n_classes) == c:
                                both = self.alpha[t * n + s] + self.beta[t * n + s]
                                total -= float32(exp(both - here + loss))
                    gradient[t * n_classes + c] = out(total)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n_classes = v.state["n_classes"].astype(np.int64)
            n_steps = v.sizes["gradient"] // n_classes
            n_places = v.sizes["alpha"] // np.maximum(n_steps, 1)
            # Each class looks at every place (3 slots), and each place belongs to one class.
            per_step = n_classes * (12 + 3 * n_places) + n_places * 12
            worker = START_SLOTS + -(-n_steps // chip.n_workers) * per_step
            return LAUNCH_CYCLES + chip.n_workers * worker

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            # A comparison per class; three sums, an exponential and a sum per place.
            return v.sizes["gradient"] + 5 * v.sizes["alpha"]

    return CTCGradient
