"""`jax.jit(f, backend="ipu")`, as programs for the IPU's JAX spelt it, inside a block."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax

from tremula.base.context_values import set_inside
from tremula.base.libraries.patching import replaced_for_all
from tremula.frontends.jax.device import client_of
from tremula.frontends.jax.function import jit, pmap


@contextmanager
def ipu_backend(n_devices: int = 1) -> Iterator[None]:
    """Inside, `jit`, `pmap` and `devices` of the module `jax` know the backend "ipu".

        with tremula.jax.ipu_backend():
            import my_program     # jax.jit(f, backend="ipu"), jax.devices("ipu")

    Everything else, other backends included, stays as it is. The functions are replaced for all
    threads: what a program has imported from `jax` inside the block it may use after it.
    """
    with (
        set_inside(_n_devices, n_devices),
        replaced_for_all(jax, "jit", _jit),
        replaced_for_all(jax, "pmap", _pmap),
        replaced_for_all(jax, "devices", _devices),
    ):
        yield


def _by_backend(original: Callable, ours: Callable) -> Callable:
    """A function that takes `backend=`: ours for "ipu", else the original."""

    @functools.wraps(original)
    def chosen(function: Callable | None = None, *args: object, **kwargs: object) -> Any:  # noqa: ANN401
        if kwargs.get("backend") == "ipu":
            kwargs = {name: value for name, value in kwargs.items() if name != "backend"}
            if function is None:
                return functools.partial(chosen, *args, backend="ipu", **kwargs)
            return ours(function, *args, **kwargs)
        return original(function, *args, **kwargs) if function is not None else original(**kwargs)

    return chosen


_n_devices: ContextVar[int] = ContextVar("n_ipu_devices", default=1)
_plain_devices = jax.devices
_jit, _pmap = _by_backend(jax.jit, jit), _by_backend(jax.pmap, pmap)


@functools.wraps(_plain_devices)
def _devices(backend: str | None = None) -> list[Any]:
    if backend == "ipu":
        return client_of(_n_devices.get()).devices()
    return _plain_devices(backend)
