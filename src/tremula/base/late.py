"""The one place where a layer calls a lower one: by name, and only on request."""

from importlib import import_module
from types import ModuleType


def vision(module: str) -> ModuleType:
    """A module of tremula.vision. An engine needs it when options ask it to leave a report."""
    return import_module(f"tremula.vision.{module}")
