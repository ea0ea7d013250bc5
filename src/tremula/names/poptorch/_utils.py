"""poptorch._utils: internal helpers of models, loaded on first use."""

from importlib import import_module


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module 'poptorch._utils' has no attribute {name!r}")
    return getattr(import_module("tremula.frontends.poptorch.executor.entry"), name)
