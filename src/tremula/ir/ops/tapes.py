"""Tapes: empty tensors that carry what an operation kept on the host for its backward pass."""

from typing import Any

from torch import Tensor

_KEPT = "kept"  # an attribute, so what is kept lives as long as its tape does


def new_tape(like: Tensor, value: object = None) -> Tensor:
    """An empty tensor like another in type and device, with something attached."""
    tape = like.new_empty(0)
    if value is not None:
        setattr(tape, _KEPT, value)
    return tape


def kept_on(tape: Tensor) -> Any:  # noqa: ANN401 - whatever the forward pass kept
    return getattr(tape, _KEPT)
