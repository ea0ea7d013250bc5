"""`jax.jit(f, backend="ipu")`, as programs for the IPU's JAX spelt it, inside a block."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

import jax

from tremula.frontends.jax.function import jit, pmap
from tremula.hardware.known_chips import chip
from tremula.ir.settings import host_settings


class IpuTargetType(Enum):
    """What stands behind a device."""

    IPU = 0
    IPU_MODEL = 1


@dataclass(frozen=True)
class IpuDevice:
    """What `jax.devices("ipu")` lists: a chip of the machine that `tremula.configure` chose."""

    id: int
    platform: str = "ipu"
    device_kind: str = "modelled IPU"
    target_type: IpuTargetType = IpuTargetType.IPU_MODEL

    @property
    def num_tiles(self) -> int:
        return chip(host_settings().chip).n_tiles

    @property
    def num_worker_contexts(self) -> int:
        return chip(host_settings().chip).n_workers


def is_ipu_model(device: object) -> bool:
    """Whether a device is a modelled chip: all are."""
    return isinstance(device, IpuDevice)


@contextmanager
def ipu_backend(n_devices: int = 1) -> Iterator[None]:
    """Inside, `jit`, `pmap` and `devices` of the module `jax` know the backend "ipu".

        with tremula.jax.ipu_backend():
            import my_program     # jax.jit(f, backend="ipu"), jax.devices("ipu")

    Everything else, other backends included, stays as it is.
    """
    originals = {name: getattr(jax, name) for name in ("jit", "pmap", "devices")}

    def devices(backend: str | None = None) -> list[Any]:
        if backend == "ipu":
            return [IpuDevice(i) for i in range(n_devices)]
        return originals["devices"](backend)

    replaced = {
        "jit": _by_backend(originals["jit"], jit),
        "pmap": _by_backend(originals["pmap"], pmap),
        "devices": devices,
    }
    for name, value in replaced.items():
        setattr(jax, name, value)
    try:
        yield
    finally:
        for name, value in originals.items():
            setattr(jax, name, value)


def _by_backend(original: Callable, ours: Callable) -> Callable:
    """A function that takes `backend=`: ours for "ipu", else the original."""

    @functools.wraps(original)
    def chosen(function: Callable | None = None, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        if kwargs.get("backend") == "ipu":
            kwargs = {name: value for name, value in kwargs.items() if name != "backend"}
            if function is None:
                return functools.partial(chosen, *args, backend="ipu", **kwargs)
            return ours(function, *args, **kwargs)
        return original(function, *args, **kwargs) if function is not None else original(**kwargs)

    return chosen
