"""Functions of the script that run before and after each compilation of a model."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle

_before: OrderedDict[int, Callable[[], object]] = OrderedDict()
_after: OrderedDict[int, Callable[[], object]] = OrderedDict()


def registerPreCompileHook(hook: Callable[[], object]) -> RemovableHandle:  # noqa: N802
    """Call `hook()` before each recording of a model; `remove()` of the handle ends that."""
    return _registered(hook, _before, "Pre-compile hook")


def registerPostCompileHook(hook: Callable[[], object]) -> RemovableHandle:  # noqa: N802
    """Call `hook()` after each recording of a model; `remove()` of the handle ends that."""
    return _registered(hook, _after, "Post-compile hook")


def _registered(hook: Callable, hooks: OrderedDict, what: str) -> RemovableHandle:
    if not callable(hook):
        raise RuntimeError(f"{what} must be callable, got {hook!r}")  # noqa: TRY004
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@contextmanager
def compile_hooks() -> Iterator[None]:
    """Runs both kinds around the block, in the order they were registered."""
    for hook in list(_before.values()):
        hook()
    try:
        yield
    finally:
        for hook in list(_after.values()):
            hook()
