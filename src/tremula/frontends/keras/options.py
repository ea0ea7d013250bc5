"""What a model was told about its execution: accumulation, replicas, callbacks."""

from dataclasses import dataclass, field
from typing import Any

TRAIN, TEST, PREDICT = "train", "test", "predict"  # kinds of steps
SUM, MEAN, RUNNING_MEAN = "sum", "mean", "running_mean"
REDUCTIONS = (SUM, MEAN, RUNNING_MEAN)


@dataclass
class ModelOptions:
    """Kept with a model built in `IPUStrategy.scope()`."""

    n_accumulation: int = 1
    reduction: str = SUM
    n_replicas: int = 1
    asynchronous_callbacks: bool = False
    programs: dict[Any, Any] = field(default_factory=dict)
    last: Any = None  # the program that ran last
    step_logs: list[Any] = field(default_factory=list)  # of the execution that ran last


_NAME = "_tremula_options"


def options_of(model: object) -> ModelOptions | None:
    """The options of a model, or None if it is a plain Keras model."""
    return model.__dict__.get(_NAME)


def bind(model: object, options: ModelOptions) -> None:
    """Make a model one that compiles; `__dict__`, since Keras tracks what is set by attribute."""
    model.__dict__[_NAME] = options
