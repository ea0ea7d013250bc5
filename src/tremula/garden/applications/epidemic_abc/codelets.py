"""The two codelets: a worker that draws, simulates, compares and keeps; and the end of a round."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false

import math
from typing import Any

from tremula import poplar as tr
from tremula.codelets.python.random import random_normal, random_uniform
from tremula.garden.applications.epidemic_abc.model import N_OBSERVED, PARAMETERS

N_PARAMETERS = len(PARAMETERS)
N_KEPT = N_PARAMETERS + 1  # of a sample: its parameters and its sum of squares
EMPTY = -1.0  # the sum of squares of a slot without a sample


def moving(mean: Any, there: object) -> Any:  # noqa: ANN401 - float32
    """How many people move: a normal number, rounded down, of those who are there."""
    drawn = math.floor(mean + math.sqrt(mean) * random_normal())
    return min(max(drawn, tr.float32(0)), there)


class SimulateAndCompare(tr.MultiVertex):
    """Each worker tries sets of parameters and keeps those that are near enough.

    It stops after `n_samples`, or when its slots are full: a fair sample either way.
    """

    observed: tr.Input[tr.Vector[tr.float32]]  # days × (A, R, D), each in units of its largest
    scale: tr.Input[tr.Vector[tr.float32]]  # the largest of A, R, D
    low: tr.Input[tr.Vector[tr.float32]]
    high: tr.Input[tr.Vector[tr.float32]]
    limit: tr.Input[tr.Vector[tr.float32]]  # the largest sum of squares
    kept: tr.Output[tr.Vector[tr.float32]]  # workers × slots × (parameters, sum of squares)
    n_kept: tr.Output[tr.Vector[tr.int32]]  # by each worker
    tried: tr.InOut[tr.Vector[tr.int32]]  # workers × (samples, days) over all rounds
    n_samples: tr.int32
    n_slots: tr.int32
    people: tr.float32
    confirmed: tr.float32

    def compute(self: Any, worker_id: int) -> None:
        n_kept, n_tried = 0, 0
        while n_tried < self.n_samples and n_kept < self.n_slots:
            at = (worker_id * self.n_slots + n_kept) * N_KEPT
            for p in range(N_PARAMETERS):
                width = self.high[p] - self.low[p]
                self.kept[at + p] = self.low[p] + width * random_uniform()
            alpha0, alpha, n = self.kept[at], self.kept[at + 1], self.kept[at + 2]
            beta, gamma, delta = self.kept[at + 3], self.kept[at + 4], self.kept[at + 5]
            eta, kappa = self.kept[at + 6], self.kept[at + 7]
            a, r, d = self.confirmed, tr.float32(0), tr.float32(0)
            i = tr.float32(math.floor(kappa * a))
            s = self.people - a - i
            total, day = tr.float32(0), 0
            while day * N_OBSERVED < len(self.observed) and total <= self.limit[0]:
                rate = alpha0 + alpha / (1 + math.pow(a + r + d, n))
                infected = moving(rate * i * (s / self.people), s)
                tested = moving(gamma * i, i)
                recovered = moving(beta * a, a)
                dead = moving(delta * a, a - recovered)
                unseen = moving(beta * eta * i, i - tested)
                s -= infected
                i += infected - tested - unseen
                a += tested - recovered - dead
                r += recovered
                d += dead
                of_a = a / self.scale[0] - self.observed[day * N_OBSERVED]
                of_r = r / self.scale[1] - self.observed[day * N_OBSERVED + 1]
                of_d = d / self.scale[2] - self.observed[day * N_OBSERVED + 2]
                total += of_a * of_a + of_r * of_r + of_d * of_d
                day += 1
            self.tried[2 * worker_id + 1] += day
            n_tried += 1
            if total <= self.limit[0]:
                self.kept[at + N_PARAMETERS] = total
                n_kept += 1
        for slot in range(n_kept, self.n_slots):
            self.kept[(worker_id * self.n_slots + slot) * N_KEPT + N_PARAMETERS] = EMPTY
        self.n_kept[worker_id] = n_kept
        self.tried[2 * worker_id] += n_tried


class Decide(tr.Vertex):
    """Is there anything new, and must there be another round?"""

    n_new: tr.Input[tr.int32]
    bounds: tr.Input[tr.Vector[tr.int32]]  # samples wanted, rounds allowed
    n_found: tr.InOut[tr.int32]
    n_rounds: tr.InOut[tr.int32]
    is_new: tr.Output[bool]
    goes_on: tr.Output[bool]

    def compute(self: Any) -> None:
        self.n_found += self.n_new
        self.n_rounds += 1
        self.is_new = self.n_new > 0
        self.goes_on = self.n_found < self.bounds[0] and self.n_rounds < self.bounds[1]
