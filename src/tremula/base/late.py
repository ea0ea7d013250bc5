"""The one place where a layer calls one below it: by name, and only when somebody asked for it."""

from importlib import import_module
from types import ModuleType


def vision(module: str) -> ModuleType:
    """A module of tremula.vision. An engine needs it when options ask it to leave a report."""
    return import_module(f"tremula.vision.{module}")
