"""Values that belong to the running thread, so that threads which work at once do not meet.

A `ContextVar` is what a block sets and its end restores: the graph that is open, the line that
operations are attributed to. A `ContextSetting` is what a script chooses once: the main thread
chooses for all threads that do not choose themselves.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_UNSET = object()


@contextmanager
def set_inside(variable: ContextVar[T], value: T) -> Iterator[T]:
    """The variable has this value inside the block, for this thread."""
    before = variable.get()
    variable.set(value)
    try:
        yield value
    finally:
        variable.set(before)


@contextmanager
def pushed(stack: ContextVar[tuple[T, ...]], entry: T) -> Iterator[T]:
    """A stack has one more entry inside the block, for this thread."""
    with set_inside(stack, (*stack.get(), entry)):
        yield entry


class ContextSetting(Generic[T]):
    """A setting that each thread can choose; the main thread's choice is every other's default."""

    def __init__(self, name: str, default: T):
        self._default = self._of_main_thread = default
        self._of_context: ContextVar[Any] = ContextVar(name)

    def get(self) -> T:
        """This thread's choice, else the main thread's, else the default."""
        return self._of_context.get(self._of_main_thread)

    def set(self, value: T) -> None:
        """Choose, for this thread or, in the main thread, for all that have not chosen.

        Inside `set_inside` the choice ends with the block.
        """
        is_inside = self._of_context.get(_UNSET) is not _UNSET
        if threading.current_thread() is threading.main_thread() and not is_inside:
            self._of_main_thread = value
        else:
            self._of_context.set(value)

    def reset(self) -> None:
        """Choose the default again."""
        self.set(self._default)

    @contextmanager
    def set_inside(self, value: T) -> Iterator[T]:
        """The setting has this value inside the block, for this thread."""
        token = self._of_context.set(value)
        try:
            yield value
        finally:
            self._of_context.reset(token)
