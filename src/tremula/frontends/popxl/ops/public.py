"""`popxl.ops`: every operation by name."""

from collections.abc import Callable
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popxl.core.registry import FUNCTIONS
from tremula.frontends.popxl.ops import (  # noqa: F401  fill the table
    control,
    elementwise,
    products,
    reductions,
    shapes,
    transfers,
)


def function_of(name: str) -> Callable[..., Any]:
    """A public operation, or an error that names similar ones."""
    if name not in FUNCTIONS:
        raise AttributeError(f"popxl.ops has no operation {name!r}: {suggest(name, FUNCTIONS)}")
    return FUNCTIONS[name]
