"""Named spans of host time, shown by the system trace and by PyTorch's profiler."""

import functools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from tremula.base.tracing import span

Instrumented = TypeVar("Instrumented")


class Channel:
    """A name under which methods and parts of programs are traced."""

    def __init__(self, name: str):
        self.name = name

    @contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Trace what happens inside `with channel.tracepoint(name)`."""
        with span(self.name, name), torch.profiler.record_function(f"{self.name}::{name}"):
            yield

    def instrument(self, obj: Instrumented, *methods: str) -> Instrumented:
        """Trace every call of these methods of an object or class, which is returned."""
        for method in methods:
            setattr(obj, method, self._traced(getattr(obj, method), method))
        return obj

    def _traced(self, function, name: str):  # noqa: ANN001, ANN202 (wrapped as it is)
        @functools.wraps(function)
        def traced(*args, **kwargs):  # noqa: ANN202
            with self.tracepoint(name):
                return function(*args, **kwargs)

        return traced


def timed_batches(channel: str, label: str, batches: Iterable[Any]) -> Iterator[Any]:
    """The batches themselves; the time spent waiting for each is a span of the trace."""
    iterator, end = iter(batches), object()
    while True:
        with span(channel, label):
            batch = next(iterator, end)
        if batch is end:
            return
        yield batch
