"""Printing tensors while a program runs, switched by the variable MODEL_LOG_LEVEL."""

import os
from typing import Literal

import popxl
from popxl import ops

Level = Literal["TRACE", "DEBUG", "INFO", "WARN"]
LEVELS = {"TRACE": 0, "DEBUG": 1, "INFO": 2, "WARN": 3}


def _is_on(level: str) -> bool:
    chosen = os.environ.get("MODEL_LOG_LEVEL", "INFO")
    for name in (level, chosen):
        if name not in LEVELS:
            raise ValueError(f"A level is one of {', '.join(LEVELS)}, got {name!r}")
    return LEVELS[chosen] <= LEVELS[level]


def print_tensor(
    t: popxl.Tensor, *args: object, level: Level = "DEBUG", **kwargs: object
) -> popxl.Tensor:
    """`ops.print_tensor` if the level is on, else the tensor as it is."""
    return ops.print_tensor(t, *args, **kwargs) if _is_on(level) else t


def print_text(text: str, num: popxl.Tensor | None = None, level: Level = "DEBUG") -> None:
    """Print a text, and a tensor with it, when the program runs, if the level is on."""
    if _is_on(level):
        ops.print_tensor(popxl.constant(()) if num is None else num, text)
