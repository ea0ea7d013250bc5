"""poptorch._poplar_executor: the wrapped model."""

from importlib import import_module


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module 'poptorch._poplar_executor' has no attribute {name!r}")
    return getattr(import_module("tremula.frontends.poptorch.executor.entry"), name)
