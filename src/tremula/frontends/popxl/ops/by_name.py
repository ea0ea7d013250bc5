"""Every operation as an attribute of this module, for tables that redirect to it."""

from collections.abc import Callable
from typing import Any

from tremula.frontends.popxl.ops.public import function_of


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith("__"):
        raise AttributeError(name)
    return function_of(name)
