"""Loops, branches and slices that are decided while the program runs."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.capture.bodies import record_cond, record_loop
from tremula.ir.ops import composite as dynamic_ops  # noqa: F401  registers tremula::dynamic_*
from tremula.ir.recording import Recording, active


def for_loop(count: int, body: Callable[..., Any], inputs: list[Tensor]) -> list[Tensor]:
    """Run body(*inputs) `count` times on the device; results are the inputs of the next round.

    Inputs are passed by value. Inference only. Always returns a list.
    """
    _check_list("poptorch.for_loop", "inputs", inputs)
    recording = _inference("poptorch.for_loop()")
    if recording is not None:
        return list(record_loop(recording, int(count), body, inputs))
    state = [tensor.clone() for tensor in inputs]
    for _ in range(int(count)):
        state = _as_list(body(*state))
    return state


def cond(
    condition: Tensor,
    then_body: Callable[..., Any],
    then_inps: list[Tensor],
    else_body: Callable[..., Any],
    else_inps: list[Tensor],
) -> list[Tensor]:
    """Run one of two functions on the device, by a condition computed there.

    Both give the same number of tensors, of the same shapes and types; they may use tensors of
    the model around them. Inference only. Always returns a list.
    """
    _check_list("poptorch.cond", "then_inps", then_inps)
    _check_list("poptorch.cond", "else_inps", else_inps)
    recording = _inference("poptorch.cond()")
    if recording is not None:
        return list(record_cond(recording, condition, then_body, then_inps, else_body, else_inps))
    return _as_list(then_body(*then_inps) if bool(condition) else else_body(*else_inps))


def dynamic_slice(tensor: Tensor, dim: int, start: Tensor, size: int, step: int = 1) -> Tensor:
    """tensor[start : start + size : step] along a dimension, from a start computed on the device.

    Beyond the end it wraps around to the beginning.
    """
    _check_input("dynamic_slice", tensor, dim, start)
    _check_int("Size", size)
    _check_int("Step", step)
    _check_range("dynamic_slice", tensor, dim, start, size)
    if step < 1:
        raise createPoptorchError(f"Step of dynamic_slice must be above 0, got {step}.")
    taken = torch.ops.tremula.dynamic_slice(tensor, start, dim, size)
    if step == 1:
        return taken
    return taken[(slice(None),) * (dim % tensor.dim()) + (slice(None, None, step),)]


def dynamic_update(input: Tensor, src: Tensor, dim: int, start: Tensor, size: int) -> Tensor:
    """A copy of `input` with [start : start + size] along a dimension replaced by `src`."""
    _check_input("dynamic_update", input, dim, start)
    if not isinstance(src, Tensor):
        raise createPoptorchError(
            f"Src argument to dynamic_update must be a torch.tensor. {type(src)} is not supported."
        )
    _check_int("Size", size)
    if input.dim() != src.dim():
        raise createPoptorchError(
            f"input and src tensors must have same dimensionality. ({input.dim()}) vs ({src.dim()})"
        )
    if src.dtype != input.dtype:
        raise createPoptorchError(
            f"input and src tensor must have same dtype. ({input.dtype} vs {src.dtype})"
        )
    _check_range("dynamic_update", input, dim, start, size)
    wanted = list(input.shape)
    wanted[dim] = size
    if list(src.shape) != wanted:
        raise createPoptorchError(
            f"Src argument to dynamic_update must have shape {wanted}, got {list(src.shape)}."
        )
    return torch.ops.tremula.dynamic_update(input, src, start, dim)


def _inference(what: str) -> Recording | None:
    recording = active()
    if recording is not None and recording.training:
        raise createPoptorchError(f"{what} is only supported in inference.")
    return recording


def _check_list(where: str, name: str, value: object) -> None:
    """Inputs must be a plain list of tensors: how to flatten anything else would be a guess."""
    if not isinstance(value, list):
        text = f"{where} takes a list of tensors as {name}. (Object is not list)"
        raise ValueError(text)  # noqa: TRY004 (PopTorch's own class)
    for index, item in enumerate(value):
        if not isinstance(item, Tensor):
            raise ValueError(  # noqa: TRY004 (PopTorch's own class)
                f"{where} takes a list of tensors as {name}. (Object contained in list at index"
                f" {index} is not torch.tensor)"
            )


def _as_list(value: Tensor | Iterable[Tensor]) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


# -- arguments of slices: first their types, in PopTorch's order, then whether they fit ------------


def _check_input(where: str, tensor: object, dim: object, start: object) -> None:
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            f"{where} must take a torch.tensor input. {type(tensor)} is not supported."
        )
    _check_int("Dimension", dim)
    if not isinstance(start, Tensor):
        raise createPoptorchError(
            f"Slice start argument to {where} must be a torch.tensor. {type(start)} is not"
            " supported."
        )


def _check_int(what: str, value: object) -> None:
    if not isinstance(value, int):
        raise createPoptorchError(f"{what} must be an integer.")


def _check_range(where: str, tensor: Tensor, dim: int, start: Tensor, size: int) -> None:
    if not -tensor.dim() <= dim < tensor.dim():
        raise createPoptorchError(
            f"Dimension of {where} must be one of the {tensor.dim()} that the tensor has,"
            f" got {dim}."
        )
    if start.is_floating_point() or start.numel() != 1:
        raise createPoptorchError(
            f"Slice start argument to {where} must be one whole number,"
            f" got {start.dtype}{list(start.shape)}."
        )
    if not 0 < size <= tensor.shape[dim]:
        raise createPoptorchError(
            f"Size of {where} must be between 1 and {tensor.shape[dim]}, got {size}."
        )
