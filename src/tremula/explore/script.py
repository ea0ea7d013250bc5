"""What a PopTorch script is about to run: its first model, options, optimiser and arguments."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only

from tremula.base.errors import FileLoadError
from tremula.explore.trial import Task
from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor
from tremula.frontends.poptorch.inputs.arguments import micro_batch
from tremula.hardware import System
from tremula.vision.analysis.scripts import run_script


class _Caught(BaseException):
    """Ends the script where it would compile its first model."""

    def __init__(self, model: PoplarExecutor, args: tuple, kwargs: dict):
        super().__init__()
        self.model, self.args_of_call, self.kwargs_of_call = model, args, kwargs


def task_of_script(script: Path, arguments: Sequence[str], system: System) -> Task:
    """Run a script up to the first call of a PopTorch model, and take that for the task."""
    if not script.exists():
        raise FileLoadError(f"there is no {str(script)!r}.", hint="give a PopTorch script")
    try:
        with _catching():
            run_script(script, arguments)
    except _Caught as caught:
        return _task(caught, system)
    raise FileLoadError(
        f"{str(script)!r} ended without calling a PopTorch model.",
        hint="it must make a poptorch.trainingModel or inferenceModel and call it",
    )


@contextmanager
def _catching() -> Iterator[None]:
    originals = PoplarExecutor.__call__, PoplarExecutor.compile

    def caught(self: PoplarExecutor, *args: object, **kwargs: object) -> None:
        raise _Caught(self, args, kwargs)

    PoplarExecutor.__call__ = PoplarExecutor.compile = caught
    try:
        yield
    finally:
        PoplarExecutor.__call__, PoplarExecutor.compile = originals


def _task(caught: _Caught, system: System) -> Task:
    made = caught.model
    options, optimizer = made.options, made.current_optimizer
    made.destroy()

    def cut(value: object) -> Any:  # noqa: ANN401 - any structure of tensors
        return tree_map_only(Tensor, lambda t: micro_batch(t, options), value)

    return Task(
        made.model,
        cut(caught.args_of_call),
        system,
        cut(caught.kwargs_of_call),
        options,
        optimizer,
        made.is_training,
    )
