"""Markers: identities that tell the compiler something, tremula::*."""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tremula.base.print_format import PrintTensorFmt, format_tensor

Context = Any  # what autograd keeps between a call and its gradient
_library = torch.library.Library("tremula", "FRAGMENT")

# Each marker: its extra arguments. All take a tensor and give a new tensor with its value; the
# gradient passes through. Marks that must also be in the backward graph say so.
_MARKERS = {
    "checkpoint": "",  # poptorch.recomputationCheckpoint
    "nop": "",  # poptorch.nop: stays in the program, does nothing
    "set_available_memory": ", float proportion",
    "print_tensor": ", str title, str form, bool gradient",
    "overlap": ", str mode, bool output",
    "loss_mark": ", str reduction",  # the value a loss function marked, before it is reduced
    "fetched": "",  # comes back from streaming memory
    "gradient": ", int parameter",  # where gradients of micro-batches and replicas are reduced
}
MARKERS = frozenset(f"tremula::{name}" for name in _MARKERS)


def _gradient_of(name: str) -> Callable:
    def backward(context: Context, gradient: Tensor) -> tuple:
        arguments = context.arguments
        if name == "print_tensor" and arguments[-1]:
            title, form, _ = arguments
            gradient = torch.ops.tremula.print_tensor(gradient, f"{title}_gradient", form, False)
        return (gradient, *(None for _ in arguments))

    return backward


def _keep_arguments(ctx: Context, inputs: tuple, output: Tensor) -> None:  # noqa: ARG001
    ctx.arguments = inputs[1:]


def _define_markers() -> None:
    for name, arguments in _MARKERS.items():
        qualified = f"tremula::{name}"
        _library.define(f"{name}(Tensor x{arguments}) -> Tensor")
        if name == "print_tensor":
            _define_print(qualified)
        else:
            _library.impl(name, _clone, "CompositeExplicitAutograd")
        torch.library.register_autograd(
            qualified, _gradient_of(name), setup_context=_keep_arguments, lib=_library
        )


def _define_print(qualified: str) -> None:
    for device in ("CPU", "CUDA"):
        _library.impl("print_tensor", _print, device)
    torch.library.register_fake(qualified, _clone, lib=_library)


def _print(x: Tensor, title: str, form: str, _gradient: bool) -> Tensor:
    """To standard error, as the tile program prints."""
    fmt = PrintTensorFmt(**json.loads(form)) if form else PrintTensorFmt()
    values = x.detach().cpu()
    values = values.float() if values.dtype is torch.bfloat16 else values
    print(format_tensor(title, values.numpy(), fmt), file=sys.stderr, flush=True)  # noqa: T201
    return x.clone()


def _clone(x: Tensor, *_arguments: object) -> Tensor:
    return x.clone()


_define_markers()

GRADIENT_MARK = torch.ops.tremula.gradient.default
