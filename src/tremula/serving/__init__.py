"""Serving: a compiled inference program behind HTTP, in the V2 inference protocol."""

from importlib import import_module
from inspect import isroutine
from typing import TYPE_CHECKING

from tremula.base.names.argument_types import explains_arguments

if TYPE_CHECKING:
    from tremula.serving.client import InferenceClient as InferenceClient
    from tremula.serving.http import Limits as Limits
    from tremula.serving.load import load_test as load_test
    from tremula.serving.program import ServedProgram as ServedProgram
    from tremula.serving.program import program_from_call as program_from_call
    from tremula.serving.server import ServeSettings as ServeSettings
    from tremula.serving.server import serving as serving
    from tremula.serving.sources import program_of_file as program_of_file
    from tremula.serving.sources import program_of_poptorch as program_of_poptorch

# Where a public name is found; loaded on first use, since some need packages of tremula[serve].
_HOME = {
    "InferenceClient": "client",
    "Limits": "http",
    "ServeSettings": "server",
    "ServedProgram": "program",
    "load_test": "load",
    "program_from_call": "program",
    "program_of_file": "sources",
    "program_of_poptorch": "sources",
    "serving": "server",
}
__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'tremula.serving' has no attribute {name!r}")
    value = getattr(import_module(f"tremula.serving.{_HOME[name]}"), name)
    return explains_arguments(value) if isroutine(value) else value
