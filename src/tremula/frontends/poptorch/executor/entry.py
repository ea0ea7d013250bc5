"""The functions that make and load models, and what else scripts ask the front end for."""

import atexit
import copy
from collections.abc import Callable

import torch
from torch import nn

from tremula.frontends.poptorch.enums import OutputMode
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.executor import saving
from tremula.frontends.poptorch.executor.attachment import poptorchAtExit
from tremula.frontends.poptorch.executor.compiled import (
    registerPostCompileHook,
    registerPreCompileHook,
)
from tremula.frontends.poptorch.executor.placement import check_inference_accumulation
from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor
from tremula.frontends.poptorch.executor.weights import _restoreWrapperIfNecessary
from tremula.frontends.poptorch.options.options import Options
from tremula.ir import recording

__all__ = [
    "PoplarExecutor",
    "_restoreWrapperIfNecessary",
    "getIpuTensorId",
    "inferenceModel",
    "ipuHardwareIsAvailable",
    "ipuHardwareVersion",
    "isRunningOnIpu",
    "load",
    "poptorchAtExit",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "trainingModel",
]


def _user_model(model: nn.Module | PoplarExecutor) -> nn.Module:
    model = model.model if isinstance(model, PoplarExecutor) else model
    if not isinstance(model, nn.Module):
        raise createPoptorchError(
            f"Invalid type: 'model' is of type {type(model)} (Expected torch.nn.Module)"
        )
    return model


def _own_options(options: Options | None, mode: OutputMode) -> Options:
    """A frozen copy in which an output mode is chosen; what the script holds is frozen as well."""
    if options is not None and not isinstance(options, Options):
        raise createPoptorchError(
            f"Invalid type: 'options' is of type {type(options)} (Expected poptorch.Options)"
        )
    chosen = Options() if options is None else options
    chosen.freeze()  # a change after this would have no effect
    result = chosen.clone()
    if result.defaultOutputMode():
        result.outputMode(mode)
    result.freeze()
    return result


def trainingModel(  # noqa: N802
    model: nn.Module | PoplarExecutor,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """A model whose calls train: forward, backward and weight update, all compiled."""
    model = _user_model(model)
    own = _own_options(options, OutputMode.Final)
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    return PoplarExecutor(model, own, training=True, optimizer=optimizer)


def inferenceModel(  # noqa: N802
    model: nn.Module | PoplarExecutor, options: Options | None = None
) -> PoplarExecutor:
    """A model whose calls compute forward only; it shares its weights with the module."""
    own = _own_options(options, OutputMode.All)
    check_inference_accumulation(own)
    return PoplarExecutor(copy.copy(_user_model(model)), own, training=False)


def load(filename: str, edit_opts_fn: Callable[[Options], object] | None = None) -> PoplarExecutor:
    """The model that `save(filename)` wrote, ready to run.

    The file holds the module and its optimiser as Python pickles: loading it can run code, so load
    only files you trust. `edit_opts_fn(options)` may change the options first.
    """
    saved = saving.load(filename)
    options = saved.options
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    if saved.training:
        model = trainingModel(saved.model, options, saved.optimizer)
    else:
        model = inferenceModel(saved.model, options)
    if saved.rng_state is not None:
        model.rng_state = saved.rng_state
    model.compile_stored(saved.args, saved.kwargs, saved.stored)
    return model


# -- the machine scripts run on: a model of one, never the real thing ------------------------------


def isRunningOnIpu() -> bool:  # noqa: N802
    """Whether this code runs as part of a model that is being compiled."""
    return recording.active() is not None


def ipuHardwareIsAvailable(num_ipus: int = 1) -> bool:  # noqa: N802, ARG001
    """Whether there is real hardware: no, models run on this computer."""
    return False


def ipuHardwareVersion() -> int:  # noqa: N802
    """The version of the real hardware: an error, as there is none."""
    raise AssertionError("ipuHardwareVersion() needs IPU hardware, and there is none here")


def getIpuTensorId(tensor: torch.Tensor) -> int:  # noqa: N802
    """A number that stands for a tensor of the model that is being compiled."""
    assert isinstance(tensor, torch.Tensor), f"expected a tensor, got {tensor!r}"
    assert isRunningOnIpu(), "getIpuTensorId only works inside forward, while a model is compiled"
    return id(tensor)


atexit.register(poptorchAtExit)
