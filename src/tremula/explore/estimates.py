"""What a candidate would take, before it is compiled: from flops and bytes, set right by trials.

Guesses only decide what is compiled first and what is not worth it. Each outcome that comes in
replaces them: times of segments by the times of stages, bytes by the bytes of full tiles.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from tremula.explore.candidates import Candidate
from tremula.explore.cut_points import ModelSegments, cheapest_cuts
from tremula.explore.trial import Task, TrialOutcome
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.hardware import System

Floats = np.ndarray

# Guesses, until something is compiled. They matter as far as candidates differ in them.
SHARE_OF_PEAK = 0.3  # that products reach in whole models
BACKWARD_TO_FORWARD = 2.0  # a product has two gradients of its size
# From trials of GPT-2 small, ResNet-50 and BERT-Large over four chips.
BYTES_PER_BYTE = 1.05  # gaps and uneven tiles, to the bytes of tensors
CODE_OF_A_KIND = 8_000  # bytes of a tile, for operations of a name and shapes, and their gradients
SAVED_OF_MADE = 0.5  # values that wait for the backward pass, of all that are computed
COPIES_OF_TABLES = 3  # values of an update, which is computed in float
COPIES_IN_PRODUCTS = 3  # where a table is an output layer, too: rearranged, and its gradients
USED_OF_PROPORTION = 0.1  # of the memory that products may use for themselves
DEFAULT_PROPORTION = 0.6  # Poplar's
SLOWER_WITH = {None: 1.0, 0.3: 1.02, 0.15: 1.06}  # products with less memory
# Bytes of this computer for each element of the largest weight whose states are sharded. A guess
# from one model: GPT-2's table of 38.6 million once took more than 14 GiB to compile so, and was
# stopped at 6.8 GiB last.
HOST_BYTES_PER_SHARDED = 400
_SWEEPS = 8  # over all outcomes, to fit times of segments


@dataclass(frozen=True, slots=True)
class CandidateEstimate:
    """Seconds of a sample, and bytes of the fullest tile to those there are."""

    seconds: float
    memory_share: float


class Estimates:
    """What is known of a model's segments on a system so far."""

    def __init__(self, task: Task, segments: ModelSegments):
        self.task, self.segments, self.system = task, segments, task.system
        self.n_bytes_of_state, self.n_bytes_of_gradient = _bytes_of_training(task)
        self.n_kinds = _unions(segments.kinds)
        self.outcomes: list[TrialOutcome] = []
        self.seconds = self._guessed_seconds()
        self.used_of_proportion = USED_OF_PROPORTION

    # -- learning ----------------------------------------------------------------------------------

    def learn(self, outcome: TrialOutcome) -> None:
        if outcome.error or not outcome.seconds:
            return
        self._learn_proportion(outcome)
        self.outcomes.append(outcome)
        self.seconds = self._guessed_seconds()
        for _ in range(_SWEEPS):
            for known in self.outcomes:
                self._fit(known)

    def _fit(self, outcome: TrialOutcome) -> None:
        """Scale the segments of each stage so that they add up to what it took."""
        candidate = outcome.candidate
        busy = np.array(outcome.busy_share) * outcome.seconds
        once = np.array([self._update_seconds(candidate, s) for s in range(candidate.n_stages)])
        took = np.maximum(busy - once, busy / 2) / _n_micro_batches(candidate)
        expected = self._stage_seconds(candidate)
        for stage, (begin, end) in enumerate(pairwise(self._bounds(candidate.cuts))):
            self.seconds[begin:end] *= took[stage] / expected[stage]

    def _learn_proportion(self, outcome: TrialOutcome) -> None:
        """What products make of their memory: from two outcomes that differ in that alone."""
        for other in self.outcomes:
            own, theirs = (_proportion(o.candidate) for o in (outcome, other))
            alike = replace(other.candidate, memory_proportion=outcome.candidate.memory_proportion)
            if alike == outcome.candidate and own != theirs:
                n_bytes = max(outcome.n_bytes) - max(other.n_bytes)
                used = n_bytes / outcome.available_bytes / (own - theirs)
                self.used_of_proportion = max(0.0, used)

    def _guessed_seconds(self) -> Floats:
        """Of each segment, one micro-batch: forward, and backward if it trains."""
        chip = self.system.chip
        rate = chip.flops_per_cycle_half_float * chip.n_tiles * chip.clock_hz * SHARE_OF_PEAK
        flops = self.segments.n_flops + 1e-6 * self.segments.n_flops.sum() + 1.0
        return flops * (1 + BACKWARD_TO_FORWARD * self.task.is_training) / rate

    # -- time --------------------------------------------------------------------------------------

    def of(self, candidate: Candidate) -> CandidateEstimate:
        share = float(np.max(self._shares(candidate)))
        known = self._like(candidate)
        scale = _median([o.seconds / self._call_seconds(o.candidate) for o in known])
        seconds = self._call_seconds(candidate) * scale
        n_samples = self.task.n_samples * candidate.n_replicas * _n_micro_batches(candidate)
        return CandidateEstimate(seconds / n_samples, share)

    def _call_seconds(self, candidate: Candidate) -> float:
        n_more = candidate.n_pipeline_stages - 1
        n_iterations = _n_micro_batches(candidate) + (1 + self.task.is_training) * n_more
        stages = range(candidate.n_stages)
        update = max(self._update_seconds(candidate, stage) for stage in stages)
        return n_iterations * float(self._stage_seconds(candidate).max()) + update

    def _stage_seconds(self, candidate: Candidate) -> Floats:
        bounds = self._bounds(candidate.cuts)
        parts = np.add.reduceat(self.seconds, bounds[:-1])
        return parts * self._again(candidate) * SLOWER_WITH[candidate.memory_proportion]

    def _again(self, candidate: Candidate) -> Floats:
        """How much longer stages take that compute their forward pass twice: all but the last."""
        factors = np.ones(candidate.n_stages)
        if self.task.is_training and candidate.recomputes:
            factors[: max(1, candidate.n_pipeline_stages - 1)] += 1 / (1 + BACKWARD_TO_FORWARD)
        return factors

    def _update_seconds(self, candidate: Candidate, stage: int) -> float:
        """Sums over replicas, and states that come and go: once for each call."""
        if not self.task.is_training:
            return 0.0
        begin, end = self._bounds(candidate.cuts)[stage : stage + 2]
        n_weights = float(self.segments.n_weight_bytes[begin:end].sum())
        seconds, r = 0.0, candidate.n_replicas
        if r > 1:
            n_sent = 2 * (r - 1) / r * n_weights * self.n_bytes_of_gradient
            seconds += n_sent / (1e9 * _link_rate(self.system))
        return seconds + self._streaming_seconds(candidate, begin, end)

    def _streaming_seconds(self, candidate: Candidate, begin: int, end: int) -> float:
        """States to the chip and back: through its own link, and memory that its machine shares."""
        n_moved = 2 * self.n_bytes_of_state * self._away(candidate)
        if not n_moved.any():
            return 0.0
        r, system = candidate.n_replicas, self.system
        own = n_moved[begin:end].sum() / (r if candidate.shards_states else 1)
        n_machines = -(-candidate.n_chips // system.n_ipus_per_machine)
        shared = n_moved.sum() * (1 if candidate.shards_states else r) / n_machines
        rates = system.chip.host_link_gbytes_per_s, system.dram_gbytes_per_s_per_machine
        return float(max(own / rates[0], shared / rates[1] if own else 0.0)) / 1e9

    def _away(self, candidate: Candidate) -> Floats:
        """[n_segments]: bytes of weights whose states are off the chip."""
        if not candidate.states_off_chip:
            return np.zeros(len(self.segments))
        tables_alone = candidate.least_off_chip is not None
        return self.segments.n_table_bytes if tables_alone else self.segments.n_weight_bytes

    # -- memory ------------------------------------------------------------------------------------

    def _shares(self, candidate: Candidate) -> Floats:
        """Of each stage, set right by trials that are like it."""
        begins, ends = np.array(list(pairwise(self._bounds(candidate.cuts)))).T
        tables = self._share_tables(candidate)
        return tables[np.arange(candidate.n_stages), begins, ends]

    def _share_tables(self, candidate: Candidate) -> Floats:
        """[stage, begin, end]: the share of a chip's memory that segments need as a stage."""
        tables = self._guessed_shares(candidate)
        known = self._like(candidate)
        if not known:
            return tables
        if known[0].candidate.n_stages == candidate.n_stages:  # code, mostly: settings leave it
            real, guessed = self._real_and_guessed(known[0])
            return tables + (real - guessed)[:, None, None]
        pairs = [self._real_and_guessed(outcome) for outcome in known]
        return tables * _median([float((real / guessed).max()) for real, guessed in pairs])

    def _real_and_guessed(self, outcome: TrialOutcome) -> tuple[Floats, Floats]:
        """Shares of memory, of each stage."""
        candidate = outcome.candidate
        begins, ends = np.array(list(pairwise(self._bounds(candidate.cuts)))).T
        guessed = self._guessed_shares(candidate)[np.arange(candidate.n_stages), begins, ends]
        return np.array(outcome.n_bytes) / outcome.available_bytes, guessed

    def _guessed_shares(self, candidate: Candidate) -> Floats:
        """Weights, gradients, states, what waits for the backward pass, products, and code."""
        stages = np.arange(candidate.n_stages)[:, None, None]
        n_bytes = self._held_bytes(candidate) + self._waiting_bytes(candidate, stages)
        of_products = self.used_of_proportion * _proportion(candidate)
        chip = self.system.chip
        of_code = CODE_OF_A_KIND * self.n_kinds / chip.n_bytes_per_tile
        return n_bytes * BYTES_PER_BYTE / chip.n_bytes_total + of_products + of_code

    def _held_bytes(self, candidate: Candidate) -> Floats:
        weights = self.segments.n_weight_bytes
        if not self.task.is_training:
            return _sums(weights)
        shared = candidate.n_replicas if candidate.shards_states else 1
        states = (weights - self._away(candidate)) * self.n_bytes_of_state / shared
        n_copies = COPIES_OF_TABLES + COPIES_IN_PRODUCTS * (self.segments.home is not None)
        passing = n_copies * self.segments.n_table_bytes
        return _sums((1 + self.n_bytes_of_gradient) * weights + states + passing)

    def _waiting_bytes(self, candidate: Candidate, stages: Floats) -> Floats:
        """Values for the backward pass, of all micro-batches under way; the largest at least."""
        made, entering_bytes = self.segments.n_bytes_made, self.segments.n_bytes_in
        if not self.task.is_training:
            return _maxima(made)
        n_under_way = 2 * (candidate.n_pipeline_stages - 1 - stages) + 1
        if not candidate.recomputes:
            saved = SAVED_OF_MADE * made
            if candidate.home is None or not candidate.cuts:
                return n_under_way * _sums(saved)
            first = np.where(np.arange(len(made)) == 0, saved, 0)  # of it, most is the last stage's
            return n_under_way * _sums(saved - first) + _sums(first)
        entering = np.broadcast_to(
            entering_bytes[:, None], (len(entering_bytes), len(entering_bytes) + 1)
        )
        entering = np.concatenate((entering, np.zeros((1, len(entering_bytes) + 1))))
        return n_under_way * entering + _sums(entering_bytes) + _maxima(made)

    def host_bytes(self, candidate: Candidate) -> float:
        """Memory of this computer that compiling it takes at least, as far as that is known."""
        if not candidate.shards_states:
            return 0.0
        return HOST_BYTES_PER_SHARDED * max(w.numel() for w in self.task.model.parameters())

    # -- cuts --------------------------------------------------------------------------------------

    def cuts(self, like: Candidate, n_stages: int, *, most: float | None) -> tuple[str, ...]:
        """Where to cut so that the slowest stage is as fast as can be, and none needs more memory.

        `like` has the other settings. `most` is the share of memory, None if it does not matter;
        where nothing needs so little, the fullest stage is as small as can be.
        """
        names = self.segments.names
        cut = replace(like, cuts=names[: n_stages - 1])
        costs = _sums(self.seconds) * self._again(cut)[:, None, None]
        if most is not None:
            shares = self._share_tables(cut)
            costs = np.where(shares <= most, costs, shares * self.seconds.sum() * len(names))
        return tuple(names[row - 1] for row in cheapest_cuts(costs))

    def _like(self, candidate: Candidate) -> list[TrialOutcome]:
        """Outcomes, the most similar first: those with as many stages, if there are any."""
        fields = (
            "n_stages", "recomputes", "memory_proportion", "states_off_chip", "shards_states",
            "least_off_chip", "cuts",
        )  # fmt: skip

        def n_equal(outcome: TrialOutcome) -> list[bool]:
            return [getattr(outcome.candidate, f) == getattr(candidate, f) for f in fields]

        same = [o for o in self.outcomes if o.candidate.n_stages == candidate.n_stages]
        return sorted(same or self.outcomes, key=lambda o: -sum(n_equal(o)))

    def _bounds(self, cuts: Sequence[str]) -> list[int]:
        rows = [self.segments.names.index(name) + 1 for name in cuts]
        return [0, *rows, len(self.segments)]


def _proportion(candidate: Candidate) -> float:
    return candidate.memory_proportion or DEFAULT_PROPORTION


def _n_micro_batches(candidate: Candidate) -> int:
    """Of one replica, in a call."""
    return candidate.accumulation * candidate.device_iterations


def _sums(column: np.ndarray) -> Floats:
    """[begin, end]: the sum of rows begin … end - 1."""
    up_to = np.concatenate(([0.0], np.cumsum(column)))
    return up_to[None, :] - up_to[:, None]


def _maxima(column: np.ndarray) -> Floats:
    """[begin, end]: the largest of rows begin … end - 1."""
    n = len(column)
    result = np.zeros((n + 1, n + 1))
    for begin in range(n):
        result[begin, begin + 1 :] = np.maximum.accumulate(column[begin:])
    return result


def _unions(kinds: np.ndarray) -> Floats:
    """[begin, end]: kinds that any of the rows begin … end - 1 has."""
    n = len(kinds)
    result = np.zeros((n + 1, n + 1))
    for begin in range(n):
        result[begin, begin + 1 :] = np.logical_or.accumulate(kinds[begin:]).sum(axis=1)
    return result


def _median(values: list[float]) -> float:
    return float(np.median(values)) if values else 1.0


def _bytes_of_training(task: Task) -> tuple[float, float]:
    """Bytes of an optimiser's states, and of a gradient, for each byte of a weight."""
    if not task.is_training or task.optimizer is None:
        return 0.0, 1.0
    weights = dict(task.model.named_parameters())
    rule = rule_from(task.optimizer, weights.items())
    n_states = sum(
        slot.dtype.itemsize * weights[rule.names[slot.param]].numel()
        for slot in rule.slots
        if not slot.is_step
    )
    n_weights = sum(w.numel() * w.element_size() for w in weights.values())
    n_elements = sum(w.numel() for w in weights.values())
    n_gradients = n_elements * rule.accum_dtype.itemsize
    return n_states / max(1, n_weights), n_gradients / max(1, n_weights)


def _link_rate(system: System) -> float:
    """GB/s of a typical link between chips."""
    rates = system.links.gbytes_per_s
    return float(np.median(rates)) if len(rates) else system.chip.host_link_gbytes_per_s
