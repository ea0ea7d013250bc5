"""The two codelets: a worker that walks its chain, and the question whether chains agree."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

import math
from typing import Any

import numpy as np

from tremula import poplar as tr
from tremula.codelets.python.random import random_normal, random_uniform
from tremula.garden.applications.parallel_chains.model import N_COEFFICIENTS

N_SUMS = 2 * N_COEFFICIENTS  # of a chain: sums of coefficients, and of their squares
N_STATE = N_COEFFICIENTS + 1  # of a chain: coefficients, the logarithm of their posterior


def log_posterior(at: Any, x: Any, y: Any, deviation: Any) -> Any:  # noqa: ANN401 - float32 vectors
    total = tr.float32(0)
    for k in range(N_COEFFICIENTS):
        total -= at[k] * at[k] / (2 * deviation * deviation)
    for i in range(len(y)):
        logit = tr.float32(0)
        for k in range(N_COEFFICIENTS):
            logit += at[k] * x[i * N_COEFFICIENTS + k]
        # log(1 + exp z) = max(z, 0) + log(1 + exp -|z|), which cannot overflow
        total += y[i] * logit - max(logit, tr.float32(0)) - math.log1p(math.exp(-abs(logit)))
    return total


class ChainWalk(tr.MultiVertex):
    """Metropolis' steps: a random one is taken if it is likelier, or else with that chance."""

    x: tr.Input[tr.Vector[tr.float32]]
    y: tr.Input[tr.Vector[tr.float32]]
    state: tr.InOut[tr.Vector[tr.float32]]  # workers × (coefficients, logarithm)
    sums: tr.InOut[tr.Vector[tr.float32]]  # workers × (sums, sums of squares)
    n_taken: tr.InOut[tr.Vector[tr.int32]]  # by each worker
    n_steps: tr.int32
    step: tr.float32
    deviation: tr.float32  # of the prior

    def compute(self: Any, worker_id: int) -> None:
        first, first_sum = worker_id * N_STATE, worker_id * N_SUMS
        proposed = np.zeros(N_COEFFICIENTS, tr.float32)
        for _ in range(self.n_steps):
            for k in range(N_COEFFICIENTS):
                proposed[k] = self.state[first + k] + self.step * random_normal()
            likelihood = log_posterior(proposed, self.x, self.y, self.deviation)
            here = self.state[first + N_COEFFICIENTS]
            if math.log(random_uniform() + tr.float32(1e-12)) < likelihood - here:
                for k in range(N_COEFFICIENTS):
                    self.state[first + k] = proposed[k]
                self.state[first + N_COEFFICIENTS] = likelihood
                self.n_taken[worker_id] += 1
            for k in range(N_COEFFICIENTS):
                value = self.state[first + k]
                self.sums[first_sum + k] += value
                self.sums[first_sum + N_COEFFICIENTS + k] += value * value


class Agree(tr.Vertex):
    """Gelman and Rubin's ratio, the largest of all coefficients: 1 when chains cannot be told."""

    sums: tr.Input[tr.Vector[tr.float32]]  # of all chains
    n_rounds: tr.InOut[tr.int32]
    ratio: tr.Output[tr.float32]
    goes_on: tr.Output[bool]
    limit: tr.float32
    n_steps: tr.int32  # of a round
    max_rounds: tr.int32

    def compute(self: Any) -> None:
        self.n_rounds += 1
        n = tr.float32(self.n_rounds * self.n_steps)
        n_chains = len(self.sums) // N_SUMS
        largest = tr.float32(0)
        for k in range(N_COEFFICIENTS):
            mean, within = tr.float32(0), tr.float32(0)
            for c in range(n_chains):
                own = self.sums[c * N_SUMS + k] / n
                mean += own / n_chains
                within += (self.sums[c * N_SUMS + N_COEFFICIENTS + k] / n - own * own) / n_chains
            between = tr.float32(0)
            for c in range(n_chains):
                away = self.sums[c * N_SUMS + k] / n - mean
                between += away * away / (n_chains - 1)
            largest = max(largest, math.sqrt(1 + between / within))
        self.ratio = largest
        self.goes_on = largest > self.limit and self.n_rounds < self.max_rounds
