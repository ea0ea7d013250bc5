"""A thread that compiles leaves PyTorch's generators alone: calls draw from them meanwhile.

PyTorch's compiler notes the state of its generators when it begins and sets them back to it when
it ends. Whatever another thread drew in between would be drawn again.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps

import torch

_MODULES = (torch.random, torch.cuda)
_lock = threading.Lock()
_compiling: set[int] = set()  # threads
_originals: list[Callable] = []  # while there are such threads


@contextmanager
def generators_undisturbed() -> Iterator[None]:
    """Inside, this thread sets no generator; other threads do as ever."""
    me = threading.get_ident()
    with _lock:
        if not _compiling:
            _originals[:] = [module.set_rng_state for module in _MODULES]
            _put([_unless_compiling(original) for original in _originals])
        _compiling.add(me)
    try:
        yield
    finally:
        with _lock:
            _compiling.discard(me)
            if not _compiling:
                _put(_originals)


def _put(functions: list[Callable]) -> None:
    for module, function in zip(_MODULES, functions, strict=True):
        module.set_rng_state = function  # pyright: ignore[reportAttributeAccessIssue]


def _unless_compiling(original: Callable) -> Callable:
    @wraps(original)
    def set_rng_state(*args, **kwargs) -> None:
        if threading.get_ident() not in _compiling:
            original(*args, **kwargs)

    return set_rng_state
