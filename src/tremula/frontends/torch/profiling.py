"""Named stretches of host time, shown by PyTorch's profiler."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch

Instrumented = TypeVar("Instrumented")


class Channel:
    """A name under which methods and parts of programs are traced."""

    def __init__(self, name: str):
        self.name = name

    @contextmanager
    def tracepoint(self, name: str) -> Iterator[None]:
        """Trace what happens inside `with channel.tracepoint(name)`."""
        with torch.profiler.record_function(f"{self.name}::{name}"):
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
