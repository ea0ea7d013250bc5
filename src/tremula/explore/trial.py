"""A trial: one candidate compiled for real, forecast on the modelled clock, and summed up."""

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from tremula.base.errors import PoplarError
from tremula.base.storage.strict_json import JsonObject
from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.memory import TileMemoryTable
from tremula.compiler.report.report import ProgramReport, make_report
from tremula.explore.candidates import Candidate, options_of, place
from tremula.explore.workers import is_out_of_memory
from tremula.frontends.poptorch.blocks import removeBlocks
from tremula.frontends.poptorch.enums import ConnectionType
from tremula.frontends.poptorch.exceptions import Error
from tremula.frontends.poptorch.executor.entry import (
    PoplarExecutor,
    inferenceModel,
    trainingModel,
)
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.hardware import System
from tremula.ir.run import tile_program  # noqa: F401 - forked workers find it loaded
from tremula.poplar.target import machine_changed
from tremula.runtime.clock import Clock
from tremula.runtime.forecast import ForecastWalk


@dataclass
class Task:
    """What is to be planned: a model, arguments of one micro-batch, and the machine."""

    model: nn.Module
    args: tuple[object, ...]
    system: System
    kwargs: Mapping[str, object] = field(default_factory=dict)
    options: Options | None = None
    optimizer: torch.optim.Optimizer | None = None
    is_training: bool = True

    @property
    def n_samples(self) -> int:
        """Of a micro-batch: rows of its first tensor."""
        leaves = tree_leaves((self.args, dict(self.kwargs)))
        sizes = [t.shape[0] for t in leaves if isinstance(t, Tensor) and t.ndim]
        return sizes[0] if sizes else 1


@dataclass(frozen=True)
class TrialOutcome:
    """What a candidate takes; lists have an entry per chip of a replica."""

    candidate: Candidate
    fits: bool = False
    seconds: float = 0.0  # of one call
    n_samples: int = 0  # of one call, of all replicas
    joules: float = 0.0
    n_bytes: tuple[int, ...] = ()  # on the fullest tile
    available_bytes: int = 0
    busy_share: tuple[float, ...] = ()
    compute_cycles: tuple[int, ...] = ()
    bottleneck: str = ""  # the busiest link
    error: str = ""  # why it could not be compiled
    compile_seconds: float = 0.0  # that the trial took here

    @property
    def samples_per_s(self) -> float:
        return self.n_samples / self.seconds if self.seconds else 0.0

    @property
    def joules_per_sample(self) -> float:
        return self.joules / self.n_samples if self.n_samples else 0.0

    @property
    def bubble_share(self) -> float:
        """The part of the time that the chips of a replica wait, on average."""
        return 1 - float(np.mean(self.busy_share)) if self.busy_share else 0.0

    def as_dict(self) -> JsonObject:
        return {**asdict(self), "candidate": self.candidate.as_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> "TrialOutcome":
        candidate = dict(record["candidate"])
        candidate["cuts"] = tuple(candidate["cuts"])
        lists = {k: tuple(v) for k, v in record.items() if isinstance(v, list)}
        return cls(**{**record, **lists, "candidate": Candidate(**candidate)})


Arrange = Callable[[nn.Module], None]


def try_candidate(task: Task, candidate: Candidate, arrange: Arrange | None = None) -> TrialOutcome:
    """Compile and forecast a candidate; what cannot be compiled is an outcome, too.

    `arrange` begins blocks where it chooses instead of at the candidate's cuts.
    """
    began = time.monotonic()
    try:
        executable = compile_candidate(task, candidate, arrange)
    except (PoplarError, AssertionError, Error) as error:
        if is_out_of_memory(error):  # of this computer
            raise
        return TrialOutcome(candidate, error=str(error).splitlines()[0])
    report = foretold(executable)
    n_chips = executable.target.n_ipus
    total = max(1, report.total_cycles)
    busy = report.phases_of_chip.sum(axis=1)
    fullest = _needed_bytes(report.memory).reshape(n_chips, -1).max(axis=1)
    n_calls = candidate.n_replicas * candidate.accumulation * candidate.device_iterations
    return TrialOutcome(
        candidate,
        fits=not bool(report.memory.is_full.any()),
        seconds=report.total_seconds,
        n_samples=task.n_samples * n_calls,
        joules=report.energy.total,
        n_bytes=tuple(fullest.tolist()),
        available_bytes=int(report.memory.available_bytes),
        busy_share=tuple((busy / total).tolist()),
        compute_cycles=tuple(report.phases_of_chip[:, 0].tolist()),
        bottleneck=report.links.bottleneck,
        compile_seconds=time.monotonic() - began,
    )


def _needed_bytes(memory: TileMemoryTable) -> np.ndarray:
    """int64[n_tiles]: more than there are where a tile is full, if only in one of its regions."""
    too_much = memory.placement.overflowed
    needed = np.where(too_much > 0, memory.available_bytes + too_much, 0)
    return np.maximum(memory.including_gaps, needed)


def foretold(executable: Executable) -> ProgramReport:
    """The report of one run; steps whose cycles depend on data count as zero cycles."""
    clock = Clock(executable)
    with clock.run(0, is_foretold=True):
        ForecastWalk(executable, clock, passes_branches=True).run(executable.entries[0])
    return make_report(executable, clock.execution())


def compile_candidate(
    task: Task, candidate: Candidate, arrange: Arrange | None = None
) -> Executable:
    """The tile program of a candidate, whether it fits or not."""
    options = options_of(candidate, task.options)
    options.connectionType(ConnectionType.Never)  # any number of chips
    options.showCompilationProgressBar(False)
    engine_options = options.Popart.get("engineOptions")
    options.Popart.set("engineOptions", {**engine_options, "debug.allowOutOfMemory": "true"})
    removeBlocks(task.model)
    if arrange is None:
        place(task.model, candidate)
    else:
        arrange(task.model)
    try:
        with machine_changed(None, {}, task.system), _quietly():
            made = _poptorch_model(task, options)
            try:
                made.compile(*_repeated(task.args, candidate), **_repeated(task.kwargs, candidate))
                return made.tile_program().executable
            finally:
                made.destroy()
    finally:
        removeBlocks(task.model)


@contextmanager
def _quietly() -> Iterator[None]:
    """What a model warns of, it warns of once, when the user runs it."""
    level = LOGGER.level
    LOGGER.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        LOGGER.setLevel(level)


def _poptorch_model(task: Task, options: Options) -> PoplarExecutor:
    if task.is_training:
        return trainingModel(task.model, options, task.optimizer)
    return inferenceModel(task.model, options)


def _repeated(value: object, candidate: Candidate) -> Any:  # noqa: ANN401 - any structure of tensors
    """Arguments of a whole call: the micro-batch as often as the candidate needs it."""
    n = candidate.n_replicas * candidate.accumulation * candidate.device_iterations
    return tree_map_only(Tensor, lambda t: torch.cat([t] * n) if t.ndim and n > 1 else t, value)
