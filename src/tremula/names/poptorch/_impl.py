"""poptorch._impl: internal names that scripts import; those of models are loaded on first use."""

from importlib import import_module

from tremula.frontends.poptorch.exceptions import createPoptorchError

__all__ = ["createPoptorchError", "isDispatchTracing"]


def isDispatchTracing() -> bool:  # noqa: N802
    """Whether tensors of a fake device are recorded: no, ours are real."""
    return False


def __getattr__(name: str) -> object:
    if name.startswith("__"):
        raise AttributeError(f"module 'poptorch._impl' has no attribute {name!r}")
    return getattr(import_module("tremula.frontends.poptorch.executor.entry"), name)
