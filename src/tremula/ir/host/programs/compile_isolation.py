"""A thread that compiles leaves other threads alone: their random numbers, and their modules.

PyTorch's compiler notes the state of its generators when it begins and sets them back to it when
it ends: whatever another thread drew in between would be drawn again. And while it traces, it
replaces the methods of `nn.Module`, for every thread: a model that runs meanwhile would be traced.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch
from torch.fx import _symbolic_trace as tracing

_MODULES = (torch.random, torch.cuda)
_lock = threading.Lock()
_compiling: set[int] = set()  # threads
_originals: list[Callable] = []  # while there are such threads
_patch_method = tracing._Patcher.patch_method


@contextmanager
def others_undisturbed() -> Iterator[None]:
    """Inside, this thread sets no generator and traces no call but its own."""
    me = threading.get_ident()
    with _lock:
        if not _compiling:
            _originals[:] = [module.set_rng_state for module in _MODULES]
            _put([_unless_compiling(original) for original in _originals], _patch_for_one_thread)
        _compiling.add(me)
    try:
        yield
    finally:
        with _lock:
            _compiling.discard(me)
            if not _compiling:
                _put(_originals, _patch_method)


def _put(functions: list[Callable], patch_method: Callable) -> None:
    for module, function in zip(_MODULES, functions, strict=True):
        module.set_rng_state = function  # pyright: ignore[reportAttributeAccessIssue]
    tracing._Patcher.patch_method = patch_method


def _unless_compiling(original: Callable) -> Callable:
    @wraps(original)
    def set_rng_state(*args, **kwargs) -> None:
        if threading.get_ident() not in _compiling:
            original(*args, **kwargs)

    return set_rng_state


def _patch_for_one_thread(
    self: tracing._Patcher, cls: type, name: str, new_fn: Callable, deduplicate: bool = True
) -> None:
    """What PyTorch's tracer does to a method, but a compiling thread does it to itself alone."""
    me, original = threading.get_ident(), getattr(cls, name)

    @wraps(new_fn)
    def chosen(*args, **kwargs) -> Any:  # noqa: ANN401
        return (new_fn if threading.get_ident() == me else original)(*args, **kwargs)

    _patch_method(self, cls, name, chosen if me in _compiling else new_fn, deduplicate)
