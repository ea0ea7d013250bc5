"""The planner: which cuts, replicas, recomputation and memory make a model fit and run fastest."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.cache_dir import cache_dir
from tremula.base.errors import InvalidOption
from tremula.explore.candidates import Candidate, code_of, options_of, place
from tremula.explore.places import Segments, balanced_cuts, segments_of
from tremula.explore.store import Store, key_of
from tremula.explore.trial import Outcome, Task, try_candidate
from tremula.explore.workers import results_of
from tremula.hardware import System, system_to_toml

if TYPE_CHECKING:
    from torch import nn

    from tremula.frontends.poptorch.options.options import Options

NEARLY_FITS = 2.0  # times the memory there is: what asks for no more may fit with other settings
MEMORY_PROPORTIONS = (0.3, 0.15)
# Weights, their gradients and two states of an optimiser; weights alone in inference.
COPIES_IN_TRAINING, COPIES_IN_INFERENCE = 4, 1
Tell = Callable[[float], None]


@dataclass(frozen=True)
class Plan:
    """Everything that was tried, the best first; what fits is better than what does not."""

    outcomes: tuple[Outcome, ...]
    segments: Segments
    system: System

    @property
    def best(self) -> Outcome:
        return self.outcomes[0]

    @property
    def options(self) -> "Options":
        """The best candidate's options, for `poptorch.trainingModel`."""
        return options_of(self.best.candidate)

    def place(self, model: "nn.Module") -> "nn.Module":
        """Put the best candidate's stages on their chips."""
        place(model, self.best.candidate.cuts)
        return model

    def code(self, why: str = "") -> str:
        """The best candidate as a module to import."""
        return code_of(self.best.candidate, why)


def plan(
    task: Task,
    *,
    n_chips: int | None = None,
    batch: int | None = None,
    max_candidates: int = 16,
    n_workers: int | None = None,
    folder: str | Path | None = None,
    tell: Tell = lambda _: None,
) -> Plan:
    """Find the fastest way to run a model on a system, by the cost model.

    `batch` is the number of samples between two weight updates, or of a call of an inference model;
    without it, the script's own, and four micro-batches for each chip at least, so that all
    candidates do the same work and pipelines can fill. Results are kept in `folder` as they come,
    so an interrupted search goes on where it was.
    """
    return _Search(task, n_chips, batch, max_candidates, n_workers, folder, tell).run()


class _Search:
    """Rounds of candidates, each made from what the last one found."""

    def __init__(
        self,
        task: Task,
        n_chips: int | None,
        batch: int | None,
        max_candidates: int,
        n_workers: int | None,
        folder: str | Path | None,
        tell: Tell,
    ):
        self.task, self.n_workers, self.tell = task, n_workers, tell
        self.n_chips = n_chips or task.system.n_ipus
        self.batch = batch or task.n_samples * max(_n_micro_batches(task), 4 * self.n_chips)
        if not 1 <= self.n_chips <= task.system.n_ipus:
            raise InvalidOption(
                f"a plan for {self.n_chips} chips on {task.system.name}, which has "
                f"{task.system.n_ipus}.",
                hint="ask for fewer chips, or for a larger system",
            )
        self.max_candidates = max_candidates
        self.store = Store(folder or cache_dir() / "plans")
        self.segments = segments_of(task.model, task.args, task.kwargs)
        self.found: dict[Candidate, Outcome] = {}

    def run(self) -> Plan:
        self._try([c for n in self._stage_counts() for c in self._cut_for(n)])
        self._try(self._variants())
        for _ in range(2):
            self._try(self._rebalanced())
        self._try(self._merged())
        outcomes = sorted(self.found.values(), key=_rank)
        return Plan(tuple(outcomes), self.segments, self.task.system)

    # -- candidates --------------------------------------------------------------------------------

    def _stage_counts(self) -> list[int]:
        """1, 2, 4, … chips to a replica; those whose weights alone cannot fit are left out."""
        chip = self.task.system.chip
        copies = COPIES_IN_TRAINING if self.task.is_training else COPIES_IN_INFERENCE
        needed = int(self.segments.n_weight_bytes.sum()) * copies / chip.n_bytes_total
        counts = [1 << k for k in range(self.n_chips.bit_length())]
        counts = [n for n in counts if n <= len(self.segments)]
        enough = [n for n in counts if n * NEARLY_FITS >= needed]
        return enough or counts[-1:]

    def _cut_for(self, n_stages: int) -> list[Candidate]:
        """Stages of equal time and, if that gives other cuts, of equal weights."""
        flops = self.segments.n_flops + 1e-6 * self.segments.n_flops.sum()
        cuts = {self._names(balanced_cuts(flops, n_stages))}
        if n_stages > 1:
            cuts.add(self._names(balanced_cuts(self._memory_weights, n_stages)))
        return [self._candidate(names) for names in sorted(cuts)]

    @cached_property
    def _memory_weights(self) -> np.ndarray:
        copies = COPIES_IN_TRAINING if self.task.is_training else COPIES_IN_INFERENCE
        return self.segments.n_weight_bytes * copies + self.segments.n_bytes_in.astype(float)

    def _names(self, cuts: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.segments.names[row - 1] for row in cuts)

    def _candidate(self, cuts: tuple[str, ...]) -> Candidate:
        n_stages = len(cuts) + 1
        n_replicas = max(1, self.n_chips // n_stages)
        least = 2 * n_stages - 1 if self.task.is_training else n_stages
        n_micro = max(self.batch // (self.task.n_samples * n_replicas), least)
        if self.task.is_training:
            return Candidate(cuts, n_replicas, accumulation=n_micro)
        return Candidate(cuts, n_replicas, device_iterations=n_micro)

    def _variants(self) -> list[Candidate]:
        """Of what fits: without recomputation. Of what nearly does: with less memory."""
        found: list[Candidate] = []
        fits_somewhere = any(outcome.fits for outcome in self.found.values())
        for outcome in sorted(self.found.values(), key=_rank):
            candidate = outcome.candidate
            if outcome.fits and self.task.is_training and candidate.cuts:
                found.append(replace(candidate, recomputes=False))
            elif not outcome.fits and _is_near(outcome):
                found += [replace(candidate, memory_proportion=p) for p in MEMORY_PROPORTIONS]
                if self.task.is_training:
                    found += self._with_states_elsewhere(candidate, is_urgent=not fits_somewhere)
        return found

    def _with_states_elsewhere(self, candidate: Candidate, *, is_urgent: bool) -> list[Candidate]:
        """Optimiser states shared out over replicas and, if nothing fits yet, off the chip."""
        shards = candidate.n_replicas > 1
        found = [replace(candidate, shards_states=True)] if shards else []
        if is_urgent:
            off = replace(candidate, states_off_chip=True, shards_states=shards)
            found += [off, replace(off, memory_proportion=MEMORY_PROPORTIONS[-1])]
        return found

    def _best(self) -> Outcome | None:
        """The fastest that fits."""
        return min((o for o in self.found.values() if o.fits), key=_rank, default=None)

    def _merged(self) -> list[Candidate]:
        """The fastest that fits, with its sums over replicas in one go."""
        best = self._best()
        if best is None or best.candidate.n_replicas == 1 or not self.task.is_training:
            return []
        return [replace(best.candidate, merges_sums=True)]

    def _rebalanced(self) -> list[Candidate]:
        """The fastest that fits, cut again by the time its stages really took."""
        best = self._best()
        if best is None or not best.candidate.cuts:
            return []
        weights = self._measured_weights(best)
        cuts = self._names(balanced_cuts(weights, best.candidate.n_stages))
        return [replace(best.candidate, cuts=cuts)]

    def _measured_weights(self, outcome: Outcome) -> np.ndarray:
        """Flops of each segment, scaled so that those of a stage add up to what it took."""
        rows = [self.segments.names.index(name) + 1 for name in outcome.candidate.cuts]
        bounds = [0, *rows, len(self.segments)]
        weights = self.segments.n_flops + 1e-6 * self.segments.n_flops.sum()
        for stage, (begin, end) in enumerate(pairwise(bounds)):
            took = outcome.compute_cycles[stage]
            weights[begin:end] *= took / weights[begin:end].sum()
        return weights

    # -- trials ------------------------------------------------------------------------------------

    def _try(self, candidates: list[Candidate]) -> None:
        new = [c for c in dict.fromkeys(candidates) if c not in self.found]
        new = new[: max(0, self.max_candidates - len(self.found))]
        missing = []
        for candidate in new:
            kept = self.store.find(self._key(candidate))
            if kept is None:
                missing.append(candidate)
            else:
                self.found[candidate] = Outcome.from_dict(kept)
        n_before, n_all = len(self.found), len(self.found) + len(missing)
        self.tell(n_before / max(1, n_all))
        trials = results_of(lambda c: try_candidate(self.task, c), missing, self.n_workers)
        for candidate, outcome in trials:
            self.store.keep(self._key(candidate), outcome.as_dict())
            self.found[candidate] = outcome
            self.tell(len(self.found) / n_all)

    def _key(self, candidate: Candidate) -> str:
        return key_of(self._task_key, candidate.as_dict())

    @cached_property
    def _task_key(self) -> str:
        """The model's structure, its arguments' shapes, its options, and the machine."""
        task = self.task
        tensors = [(n, tuple(t.shape), str(t.dtype)) for n, t in task.model.state_dict().items()]
        segments = self.segments
        parts = (
            str(task.model), tensors, segments.n_flops.tolist(), segments.n_bytes_in.tolist(),
            "" if task.options is None else _plain(task.options.toDict()),
            str(task.optimizer), task.is_training, system_to_toml(task.system), task.n_samples,
        )  # fmt: skip
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _n_micro_batches(task: Task) -> int:
    """Of a call, as the script has it."""
    if task.options is None:
        return 1
    n = task.options.replication_factor * task.options.Training.gradient_accumulation
    return n if task.is_training else n * task.options.device_iterations


def _plain(options: Mapping[str, object]) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in options.items())


def _is_near(outcome: Outcome) -> bool:
    return bool(outcome.n_bytes) and max(outcome.n_bytes) <= NEARLY_FITS * outcome.available_bytes


def _rank(outcome: Outcome) -> tuple[bool, bool, float, str]:
    """What fits first, then by samples a second; what does not by how little is missing."""
    if outcome.error:
        return True, True, 0.0, repr(outcome.candidate)
    size = max(outcome.n_bytes) if outcome.n_bytes else 0
    order = -outcome.samples_per_s if outcome.fits else float(size)
    return False, not outcome.fits, order, repr(outcome.candidate)
