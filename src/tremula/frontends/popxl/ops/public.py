"""`popxl.ops`: every operation by name."""

from collections.abc import Callable
from typing import Any

from tremula.base.errors import suggest
from tremula.frontends.popxl.core.registry import FUNCTIONS
from tremula.frontends.popxl.ops import (  # noqa: F401  fill the table
    collectives,
    control,
    elementwise,
    float8,
    images,
    indexing,
    norms,
    products,
    random,
    reductions,
    shapes,
    transfers,
    var_updates,
)

FUNCTIONS["clamp"] = FUNCTIONS["clip"]


def rename(t: Any, output_name: str | None = None) -> Any:
    """A copy under another name."""
    return FUNCTIONS["identity"](t, output_name)


FUNCTIONS["rename"] = rename


# Helpers that other operations are made of.
_HIDDEN = {"constant", "sum_of"}
NAMES = sorted(name for name in FUNCTIONS if not name.startswith("_") and name not in _HIDDEN)


def function_of(name: str) -> Callable[..., Any]:
    """A public operation, or an error that names similar ones."""
    if name not in FUNCTIONS:
        raise AttributeError(f"popxl.ops has no operation {name!r}: {suggest(name, FUNCTIONS)}")
    return FUNCTIONS[name]
