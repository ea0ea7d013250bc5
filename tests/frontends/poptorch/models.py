"""Helpers of tests: functions as models, run eagerly, compiled on the host, and on tiles."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

import poptorch
from tests.ir.steps import Function
from tremula.ir.settings import configured


class Model(Function):
    """A function as a model."""


def flat(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for item in value for tensor in flat(item)]


def on_host(model: Callable, *inputs: Tensor, options: poptorch.Options | None = None) -> object:
    """What a compiled inference model gives on this computer."""
    module = model if isinstance(model, nn.Module) else Model(model)
    with configured(host="eager", device="cpu", tiles="lazy"):
        return poptorch.inferenceModel(module, options)(*inputs)


def on_tiles(model: Callable, *inputs: Tensor) -> object:
    """The outputs of a model, computed vertex by vertex."""
    module = model if isinstance(model, nn.Module) else Model(model)
    with configured(tiles="run"):
        return poptorch.inferenceModel(module, quiet())(*inputs)


def quiet() -> poptorch.Options:
    return poptorch.Options().showCompilationProgressBar(False)


def assert_same_everywhere(model: Callable, *inputs: Tensor, tiles: bool = True) -> None:
    """Eager PyTorch, the compiled model and the tile program agree."""
    module = model if isinstance(model, nn.Module) else Model(model)
    wanted = flat(module(*(x.clone() for x in inputs)))
    ways = (on_host, on_tiles) if tiles else (on_host,)
    for way in ways:
        result = flat(way(module, *(x.clone() for x in inputs)))
        assert len(result) == len(wanted)
        for number, (got, right) in enumerate(zip(result, wanted, strict=True)):
            torch.testing.assert_close(
                got,
                right.detach().to(got.dtype),
                rtol=1e-4,
                atol=1e-5,
                msg=lambda text, n=number, w=way: f"{w.__name__}, result {n}: {text}",
            )
