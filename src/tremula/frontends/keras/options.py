"""Options of a model's execution: accumulation, replicas, callbacks."""

import os
import pathlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import keras

from tremula.frontends.keras.pipelines.pipeline import (
    KerasPipeline,
    PipelineOptions,
    n_replicas,
    pipeline_of,
)
from tremula.frontends.keras.pipelines.stages import Path

if TYPE_CHECKING:
    from tremula.compiler.report.report import ProgramReport

TRAIN, TEST, PREDICT = "train", "test", "predict"  # kinds of steps
SUM, MEAN, RUNNING_MEAN = "sum", "mean", "running_mean"
REDUCTIONS = (SUM, MEAN, RUNNING_MEAN)
LAST = "LAST"  # metrics of the last replica; otherwise of all samples


class ReportingProgram(Protocol):
    """A compiled program that can report on itself."""

    def report(self) -> "ProgramReport": ...
    def save_report(self, folder: str | os.PathLike[str]) -> pathlib.Path: ...


@dataclass
class ModelOptions:
    """Saved with a model built in `IPUStrategy.scope()`."""

    n_accumulation: int = 1
    reduction: str = SUM
    n_chips: int = 1  # of this process
    n_processes: int = 1  # that train together
    has_common_weights: bool = False  # whether all processes began with those of the first
    pipelining: PipelineOptions | None = None  # arguments of set_pipelining_options
    assigned_stages: dict[Path, int] = field(default_factory=dict)
    metric_reduction: str = "NONE"  # of replicas
    prefetch_depth: int | None = None  # of the queue of batches; None: as IPUConfig says
    asynchronous_callbacks: bool = False
    programs: dict[tuple, Any] = field(default_factory=dict)  # compiled, by what they are for
    last: "ReportingProgram | None" = None  # the program that ran last
    step_logs: list[object] = field(default_factory=list)  # of the execution that ran last
    log_stride: int = 1  # steps between two of them

    def pipeline(self, model: keras.Model) -> KerasPipeline | None:
        """The stages of the model, if it has any."""
        return pipeline_of(model, self.pipelining, self.assigned_stages)

    def n_replicas(self, model: keras.Model) -> int:
        """Copies of the model that train together: what the chips hold."""
        return n_replicas(self.pipeline(model), self.n_chips)


_NAME = "_tremula_options"


def options_of(model: object) -> ModelOptions | None:
    """The options of a model, or None if it is a plain Keras model."""
    return model.__dict__.get(_NAME)


def bind(model: object, options: ModelOptions) -> None:
    """Make a model one that compiles; `__dict__`, since Keras tracks what is set by attribute."""
    model.__dict__[_NAME] = options
