"""The one place where a layer calls a lower one: by name, and only on request."""

from importlib import import_module
from types import ModuleType


def vision(module: str) -> ModuleType:
    """A module of tremula.vision: an engine needs it to leave a report, or to give one to pva."""
    return import_module(f"tremula.vision.{module}")
