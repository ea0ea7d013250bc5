"""A thread that compiles leaves other threads alone: their random numbers, and their modules.

PyTorch's compiler saves the state of the process's generators when it begins and restores it when
it ends: whatever another thread drew in between would be drawn again. And while it traces, it
replaces the methods of `nn.Module`, for every thread: a model that runs meanwhile would be traced.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext
from torch._guards import tracing as tracing_context
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import _symbolic_trace as tracing
from torch.fx.experimental.proxy_tensor import make_fx

from tremula.base.libraries.patching import replaced, wrapped
from tremula.base.processes import fork_safe

_TRACER = fork_safe(threading.RLock())


@contextmanager
def isolate_compiling_thread() -> Iterator[None]:
    """Inside, this thread sets no generator and traces no call but its own."""
    with (
        replaced(torch.random, "set_rng_state", _set_nothing),
        replaced(torch.cuda, "set_rng_state", _set_nothing),
        wrapped(tracing._Patcher, "patch_method", _for_one_thread),
    ):
        yield


def traced(function: Callable[..., Any], *args: Any, **options: Any) -> fx.GraphModule:  # noqa: ANN401
    """PyTorch's `make_fx` of a function; the tracer's state is of the process, so one at a time."""
    with _TRACER, isolate_compiling_thread(), _one_mode_for_metadata(options):
        return make_fx(function, **options)(*args)


def _one_mode_for_metadata(options: Mapping[str, object]) -> AbstractContextManager[object]:
    """Inside, descriptions of real values are fake tensors of one mode.

    Without it the tracer makes a mode for each value, which takes longer than all the rest.
    """
    if options.get("tracing_mode", "real") != "real":
        return nullcontext()
    return tracing_context(TracingContext(FakeTensorMode(allow_fallback_kernels=True)))


def _set_nothing(*_args: object, **_kwargs: object) -> None:
    """In place of set_rng_state: the state that the compiler saved may be out of date."""


def _for_one_thread(patch_method: Callable[..., None]) -> Callable[..., None]:
    """How PyTorch's tracer replaces a method, but only for calls of the thread that traces."""

    def patch(
        self: tracing._Patcher, cls: type, name: str, new_fn: Callable, deduplicate: bool = True
    ) -> None:
        me, original = threading.get_ident(), getattr(cls, name)

        @wraps(new_fn)
        def chosen(*args, **kwargs) -> Any:  # noqa: ANN401
            return (new_fn if threading.get_ident() == me else original)(*args, **kwargs)

        patch_method(self, cls, name, chosen, deduplicate)

    return patch
