"""Devices of a partition for models: leased when a model attaches, returned when it detaches.

Without a partition in the environment nothing is leased, and nothing is imported.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importing the tile compiler is slow, and models on this computer do not need it
    from tremula.ir.run.tile_program import TileProgram
    from tremula.poplar.partition import DeviceLoad
    from tremula.poplar.target import Device

_VARIABLES = ("IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_PARTITION_ID")


class LeasedDevice:
    """The device of a partition that a model uses; without a partition, no device."""

    def __init__(self) -> None:
        self._device: Device | None = None
        self._n_calls = 0
        self._load_of_call: DeviceLoad | None = None

    def acquire(self, n_ipus: int, id: int | None = None) -> None:
        """Lease a device of the partition that the environment names, unless one is leased."""
        if self._device is None and any(map(os.environ.get, _VARIABLES)):
            self._device, self._n_calls, self._load_of_call = _acquired(n_ipus, id), 0, None

    def running(self, tiles: "TileProgram | None") -> AbstractContextManager[None]:
        """Around a call of the model: the device is busy, and faults of the machine are raised."""
        return nullcontext() if self._device is None else self._reported_call(self._device, tiles)

    @contextmanager
    def _reported_call(self, device: "Device", tiles: "TileProgram | None") -> Iterator[None]:
        lease = device.lease
        assert lease is not None, "devices of partitions have leases"
        with lease.running():
            yield
        self._n_calls += 1
        if self._load_of_call is None:
            self._load_of_call = load_of_call(tiles)
        if self._load_of_call is not None:
            lease.report(self, self._load_of_call.times(self._n_calls))

    def release(self) -> None:
        """Return the device, if one is leased."""
        if self._device is not None:
            self._device.detach()
            self._device = None


def _acquired(n_ipus: int, id: int | None) -> "Device":
    from tremula.poplar.target import DeviceManager

    manager = DeviceManager()
    if id is None:
        return manager.acquire_available_device(n_ipus)
    device = manager.get_device(id)
    if not device.attach():
        raise manager.held_by_others([device])
    return device


def load_of_call(tiles: "TileProgram | None") -> "DeviceLoad | None":
    """The load of one call by the model's tile program; None until that is compiled."""
    if tiles is None or tiles.stored is None:
        return None
    from tremula.base.errors import PoplarError
    from tremula.runtime.device_load import forecast_load

    try:
        return forecast_load(tiles.stored.executable)
    except PoplarError:  # cycles depend on data: no forecast
        return None
