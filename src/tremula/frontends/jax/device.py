"""The devices of the platform "ipu": memory of this computer, described as modelled chips.

JAX's own class of devices is compiled and closed. Devices of a second client for the host are the
IPUs: arrays lie in host memory, so that everything JAX does with arrays works, and the class gets
the properties that programs for the IPU read. Devices of other clients keep theirs.
"""

from collections.abc import Callable
from enum import Enum
from functools import cache
from typing import Any

from jaxlib import _jax, xla_client  # pyright: ignore[reportAttributeAccessIssue]

from tremula.base.libraries.patching import install
from tremula.frontends.jax.options import n_devices_of_option, n_tiles_of_option
from tremula.hardware.known_chips import chip
from tremula.ir.settings import host_settings

Device = Any  # of jaxlib, which is compiled
Client = Any
PLATFORM = "ipu"
_clients: list[Client] = []


class IpuTargetType(Enum):
    """What a device is: a chip or a model of one."""

    IPU = 0
    IPU_MODEL = 1


class _OfOurClients(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance) is _jax.Device and is_ours(instance)


class IpuDevice(metaclass=_OfOurClients):
    """What `jax.devices("ipu")` lists: a chip of the machine that `tremula.configure` chose."""

    id: int
    platform: str
    device_kind: str
    target_type: IpuTargetType
    num_tiles: int
    num_worker_contexts: int
    is_ipu_model: bool


def is_ipu_model(device: object) -> bool:
    """Whether a device is a modelled chip: all IPUs are."""
    return isinstance(device, IpuDevice)


def is_ours(device: Device) -> bool:
    """Whether a device of JAX is an IPU."""
    client = device.client
    return any(client is ours for ours in _clients)


@cache
def client_of(n_devices: int) -> Client:
    """The client of the platform, with some IPUs."""
    client = xla_client.make_cpu_client(num_devices=n_devices)
    _clients.append(client)
    _describe_devices()
    return client


def make_client() -> Client:
    """What JAX calls when it starts its platforms."""
    return client_of(n_devices_of_option())


@cache
def _describe_devices() -> None:
    """Give JAX's class of devices what programs for the IPU read."""
    for name, value in {
        "platform": lambda _: PLATFORM,
        "device_kind": lambda _: "modelled IPU",
        "target_type": lambda _: IpuTargetType.IPU_MODEL,
        "is_ipu_model": lambda _: True,
        "num_tiles": lambda _: n_tiles_of_option() or chip(host_settings().chip).n_tiles,
        "num_worker_contexts": lambda _: chip(host_settings().chip).n_workers,
    }.items():
        install(_jax.Device, name, property(_for_ours(name, value)))
    for name, value in {
        "__repr__": lambda device: f"IpuDevice(id={device.id})",
        "__str__": lambda device: f"{PLATFORM}:{device.id}",
        "__call__": lambda device: device,  # `array.device()`, as JAX 0.3 has it
    }.items():
        bound = _for_ours(name, lambda device, value=value: lambda: value(device))
        install(_jax.Device, name, lambda device, bound=bound: bound(device)())


def _for_ours(name: str, value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Of an IPU the value, of other devices what the class had."""
    original = getattr(_jax.Device, name, None)

    def read(device: Device) -> object:
        if is_ours(device):
            return value(device)
        if original is None:
            raise AttributeError(f"a device of the platform {device.platform!r} has no {name!r}.")
        return original.__get__(device)

    return read
