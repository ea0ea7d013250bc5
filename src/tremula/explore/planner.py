"""The planner: which cuts, replicas, recomputation and memory make a model fit and run fastest."""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.errors import InvalidOption
from tremula.base.processes import available_bytes
from tremula.base.storage.cache_dir import cache_dir
from tremula.explore.candidates import Candidate, code_of, options_of, place
from tremula.explore.cut_points import ModelSegments, segments_of
from tremula.explore.estimates import Estimates
from tremula.explore.store import ResultStore, key_of
from tremula.explore.trial import Task, TrialOutcome, try_candidate
from tremula.explore.workers import (
    Stopped,
    WorkerKilled,
    WorkerLimits,
    default_workers,
    results_of,
)
from tremula.hardware import System, system_to_toml

if TYPE_CHECKING:
    from torch import nn

    from tremula.frontends.poptorch.options.options import Options

# Times the memory there is, by estimate: what may fit after all, once the estimate is better.
NEARLY_FITS = 1.5
# What is tried in turn, all by estimate: up to this share of memory, up to this many times the
# seconds of the best so far, and whether a number of stages may be tried twice. 0.995: a gain below
# the noise of estimates is not worth a trial; 0.9 and 2.0 are guesses that trials correct.
_TIERS = ((1.0, 0.995, True), (NEARLY_FITS, 0.9, True), (NEARLY_FITS, 2.0, False))
MEMORY_PROPORTIONS = (0.3, 0.15)
SHARE_OF_FREE = 0.9  # of the memory that is free, for trials: the rest is this process's
Progress = Callable[[float], None]


def _no_progress(_share: float) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class TrialRunner:
    """How candidates are compiled: the function, its processes, the clock and the free memory."""

    try_candidate: Callable[[Task, Candidate], TrialOutcome] = try_candidate
    results_of: Callable[..., Iterable[tuple[Candidate, TrialOutcome | Stopped]]] = results_of
    clock: Callable[[], float] = time.monotonic
    available_bytes: Callable[[], int] = available_bytes


@dataclass(frozen=True)
class Plan:
    """Everything that was tried, the best first; what fits is better than what does not."""

    outcomes: tuple[TrialOutcome, ...]
    segments: ModelSegments
    system: System

    @property
    def best(self) -> TrialOutcome:
        return self.outcomes[0]

    @property
    def options(self) -> "Options":
        """The best candidate's options, for `poptorch.trainingModel`."""
        return options_of(self.best.candidate)

    def place(self, model: "nn.Module") -> "nn.Module":
        """Put the best candidate's stages on their chips."""
        place(model, self.best.candidate)
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
    max_minutes: float = 5.0,
    n_workers: int | None = None,
    folder: str | Path | None = None,
    progress: Progress = _no_progress,
    runner: TrialRunner | None = None,
) -> Plan:
    """Find the fastest way to run a model on a system, by the cost model.

    `batch` is the number of samples between two weight updates, or of a call of an inference model;
    without it, the script's own, and four micro-batches for each chip at least, so that all
    candidates do the same work and pipelines can fill. No candidate is begun that would, as long as
    the longest took, end after `max_minutes`, and one that does so all the same is stopped; so is
    one that needs more than its share of the memory that is free. Results are saved in `folder` as
    they come, so an interrupted search continues where it was. `progress` is called with the
    share that is done; `runner` replaces the way candidates are compiled.
    """
    runner = runner or TrialRunner()
    search = _PlanSearch(task, n_chips, batch, n_workers, folder, progress, runner)
    return search.run(max_candidates, 60 * max_minutes)


class _PlanSearch:
    """Compiles what promises most, learns from it, and continues until nothing promises more."""

    def __init__(
        self,
        task: Task,
        n_chips: int | None,
        batch: int | None,
        n_workers: int | None,
        folder: str | Path | None,
        progress: Progress,
        runner: TrialRunner,
    ):
        self.task, self.progress, self.runner = task, progress, runner
        self.n_workers = n_workers or default_workers()
        self.n_chips = n_chips or task.system.n_ipus
        self.batch = batch or task.n_samples * max(_n_micro_batches(task), 4 * self.n_chips)
        if not 1 <= self.n_chips <= task.system.n_ipus:
            raise InvalidOption(
                f"a plan for {self.n_chips} chips on {task.system.name}, which has "
                f"{task.system.n_ipus}.",
                hint="ask for fewer chips, or for a larger system",
            )
        self.store = ResultStore(folder or cache_dir() / "plans")
        self.segments = segments_of(task.model, task.args, task.kwargs)
        self.estimates = Estimates(task, self.segments)
        self.outcomes: dict[Candidate, TrialOutcome] = {}
        self.under_way: list[Candidate] = []
        self.stopped: list[Candidate] = []  # for want of this computer's memory
        self.end, self.max_candidates = 0.0, 0
        self.n_bytes_each = 0  # that a trial may take here

    def run(self, max_candidates: int, max_seconds: float) -> Plan:
        began = self.runner.clock()
        self.end, self.max_candidates = began + max_seconds, max_candidates

        def report_progress() -> None:
            spent = (self.runner.clock() - began) / max_seconds
            self.progress(min(1.0, max(spent, len(self.outcomes) / max_candidates)))

        while self._keep_workers_busy(report_progress):
            pass
        self.progress(1.0)
        outcomes = sorted(self.outcomes.values(), key=_rank)
        return Plan(tuple(outcomes), self.segments, self.task.system)

    def _is_late(self) -> bool:
        """Whether a trial would, as long as the longest took, end too late."""
        longest = max((o.compile_seconds for o in self.outcomes.values()), default=0.0)
        return self.runner.clock() + longest > self.end

    # -- candidates --------------------------------------------------------------------------------

    def _next(self) -> Candidate | None:
        """What to compile now: with a number of stages that no other process is at.

        First what fits by estimate and promises to be faster than the best so far, then what may
        fit after all, then numbers of stages that were not tried. As long as nothing fits, what
        needs the least memory.
        """
        new = [c for c in dict.fromkeys(self._choices()) if self._is_open(c)]
        estimates = {candidate: self.estimates.of(candidate) for candidate in new}
        best = self._best()
        if best is None and not any(e.memory_share <= NEARLY_FITS for e in estimates.values()):
            return self._first(sorted(new, key=lambda c: estimates[c].memory_share))
        most = 1 / best.samples_per_s if best is not None else np.inf
        ranked = sorted(new, key=lambda c: estimates[c].seconds)
        tried = {candidate.n_stages for candidate in self.outcomes}
        for limit, gain, can_repeat in _TIERS:
            worth = [
                candidate
                for candidate in ranked
                if estimates[candidate].memory_share <= limit
                and estimates[candidate].seconds < gain * most
                and (can_repeat or candidate.n_stages not in tried)
            ]
            if worth:
                return self._first(worth)
        return self._first(self._merged())

    def _first(self, ranked: list[Candidate]) -> Candidate | None:
        busy = {candidate.n_stages for candidate in self.under_way}
        return next((c for c in ranked if c.n_stages not in busy), None)

    def _is_open(self, candidate: Candidate) -> bool:
        """Neither tried, nor too large to compile here, nor as large as one that was stopped.

        That follows from the number of stages and from sharding, hardly from other settings.
        """
        if candidate in self.outcomes or self.estimates.host_bytes(candidate) > self.n_bytes_each:
            return False
        return not any(
            stopped.n_stages == candidate.n_stages
            and stopped.shards_states <= candidate.shards_states
            for stopped in self.stopped
        )

    def _choices(self) -> Iterator[Candidate]:
        """Every way to run the model that is considered, with cuts as they look best now."""
        counts = [1 << k for k in range(self.n_chips.bit_length())]
        for n_stages in counts:
            if n_stages <= len(self.segments):
                for settings in self._settings(n_stages):
                    yield from self._cut(settings, n_stages)

    def _cut(self, settings: Candidate, n_stages: int) -> Iterator[Candidate]:
        """Stages of equal time, and of equal time as far as they fit by estimate."""
        if n_stages == 1:
            yield settings
            return
        for most in (None, 1.0):
            yield replace(settings, cuts=self.estimates.cuts(settings, n_stages, most=most))

    def _settings(self, n_stages: int) -> Iterator[Candidate]:
        """Everything but the cuts."""
        n_replicas = max(1, self.n_chips // n_stages)
        home = self.segments.home if n_stages > 1 else None
        n_pipeline = n_stages + (home is not None)
        least = 2 * n_pipeline - 1 if self.task.is_training else n_pipeline
        n_micro = max(self.batch // (self.task.n_samples * n_replicas), least)
        if not self.task.is_training:
            plain = Candidate((), n_replicas, 1, n_micro, recomputes=False, home=home)
            yield from (replace(plain, memory_proportion=p) for p in (None, *MEMORY_PROPORTIONS))
            return
        for recomputes in (False, True):
            plain = Candidate((), n_replicas, n_micro, recomputes=recomputes, home=home)
            yield from (replace(plain, memory_proportion=p) for p in (None, *MEMORY_PROPORTIONS))
            yield from self._with_states_elsewhere(plain)

    def _with_states_elsewhere(self, candidate: Candidate) -> Iterator[Candidate]:
        """Optimiser states sharded over replicas, and off the chip, where that is possible."""
        shards = candidate.n_replicas > 1
        elsewhere = [replace(candidate, shards_states=True)] if shards else []
        if self.task.system.dram_gbytes_per_s_per_machine > 0:
            away = replace(candidate, states_off_chip=True, shards_states=shards)
            least = self.segments.least_of_table
            elsewhere += [replace(away, least_off_chip=least)] if least else []
            elsewhere.append(away)
        for moved in elsewhere:
            yield moved
            yield replace(moved, memory_proportion=MEMORY_PROPORTIONS[-1])

    def _best(self) -> TrialOutcome | None:
        """The fastest that fits."""
        return min((o for o in self.outcomes.values() if o.fits), key=_rank, default=None)

    def _merged(self) -> list[Candidate]:
        """The fastest that fits, with its sums over replicas in one go."""
        best = self._best()
        if best is None or best.candidate.n_replicas == 1 or not self.task.is_training:
            return []
        merged = replace(best.candidate, merges_sums=True)
        return [merged] if merged not in self.outcomes else []

    # -- trials ------------------------------------------------------------------------------------

    def _keep_workers_busy(self, report_progress: Callable[[], None]) -> bool:
        """Try what is worth it, until nothing is; whether anything was tried."""
        n_before = len(self.outcomes)
        try:
            for candidate, outcome in self._tried(self._worth(), self.n_workers):
                self._finish(candidate, outcome)
                report_progress()
        except WorkerKilled:  # most often for want of memory: one at a time needs the least
            was_alone, self.n_workers = self.n_workers == 1, 1
            for candidate in tuple(self.under_way):
                self._give_up(candidate) if was_alone else self._try_alone(candidate)
            return True
        return len(self.outcomes) > n_before

    def _worth(self) -> Iterator[Candidate]:
        """What to compile, one after another; what is known already is only noted."""
        while len(self.outcomes) + len(self.under_way) < self.max_candidates:
            candidate = self._next()
            if candidate is None or self._is_late():
                return
            stored = self.store.find(self._key(candidate))
            if stored is None:
                self.under_way.append(candidate)
                yield candidate
            else:
                self._note(candidate, TrialOutcome.from_dict(stored))

    def _tried(self, candidates: Iterable[Candidate], n_workers: int) -> Iterable[tuple]:
        """With the outcome of each; what would take too much memory or time is stopped."""
        self.n_bytes_each = int(SHARE_OF_FREE * self.runner.available_bytes()) // n_workers
        limits = WorkerLimits(self.n_bytes_each, max(0.0, self.end - self.runner.clock()))
        try_candidate = self.runner.try_candidate
        return self.runner.results_of(
            lambda c: try_candidate(self.task, c), candidates, n_workers, limits
        )

    def _try_alone(self, candidate: Candidate) -> None:
        try:
            for _, outcome in self._tried([candidate], 1):
                self._finish(candidate, outcome)
        except WorkerKilled:
            self._give_up(candidate)

    def _finish(self, candidate: Candidate, outcome: TrialOutcome | Stopped) -> None:
        """What was stopped is not stored: more memory and time may be free another time."""
        if candidate in self.under_way:
            self.under_way.remove(candidate)
        if isinstance(outcome, Stopped):
            self.stopped += [] if outcome.was_late else [candidate]
            self._note(candidate, TrialOutcome(candidate, error=outcome.why))
            return
        self.store.keep(self._key(candidate), outcome.as_dict())
        self._note(candidate, outcome)

    def _give_up(self, candidate: Candidate) -> None:
        why = "its process was killed: compiling it needs more memory than is free"
        self._finish(candidate, Stopped(why))

    def _note(self, candidate: Candidate, outcome: TrialOutcome) -> None:
        self.outcomes[candidate] = outcome
        self.estimates.learn(outcome)

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
            "" if task.options is None else _plain(task.options),
            str(task.optimizer), task.is_training, system_to_toml(task.system), task.n_samples,
        )  # fmt: skip
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _n_micro_batches(task: Task) -> int:
    """Of a call, as the script has it."""
    if task.options is None:
        return 1
    n = task.options.replication_factor * task.options.Training.gradient_accumulation
    return n if task.is_training else n * task.options.device_iterations


def _plain(options: "Options") -> list[tuple[str, str]]:
    """Every option as text; what a call returns is chosen when a model is made, if not before."""
    from tremula.frontends.poptorch.enums import OutputMode  # lazy: slow to import

    options = options.clone()
    if options.defaultOutputMode():
        options.unfreeze()
        options.outputMode(OutputMode.Final)
    return sorted((name, str(value)) for name, value in options.toDict().items())


def _rank(outcome: TrialOutcome) -> tuple[bool, bool, float, str]:
    """What fits first, then by samples a second; what does not by how little is missing."""
    if outcome.error:
        return True, True, 0.0, repr(outcome.candidate)
    size = max(outcome.n_bytes) if outcome.n_bytes else 0
    order = -outcome.samples_per_s if outcome.fits else float(size)
    return False, not outcome.fits, order, repr(outcome.candidate)
