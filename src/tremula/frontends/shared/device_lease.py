"""Devices of a partition for models: taken when a model attaches, given back when it leaves.

Without a partition in the environment nothing is held, and nothing is loaded.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the tile side loads slowly, and models on this computer need none of it
    from tremula.ir.run.tile_program import TileProgram
    from tremula.poplar.partition import DeviceLoad
    from tremula.poplar.target import Device

_VARIABLES = ("IPUOF_CONFIG_PATH", "IPUOF_VIPU_API_PARTITION_ID")


class HeldDevice:
    """A device of a partition that a model holds."""

    def __init__(self, device: "Device"):
        self._device, self._n_calls = device, 0
        self._of_call: DeviceLoad | None = None

    @contextmanager
    def running(self, tiles: "TileProgram | None") -> Iterator[None]:
        """Around a call of the model: the device is busy, and faults of the machine are raised."""
        lease = self._device.lease
        assert lease is not None, "devices of partitions are held by leases"
        with lease.running():
            yield
        self._n_calls += 1
        if self._of_call is None:
            self._of_call = load_of_call(tiles)
        if self._of_call is not None:
            lease.report(self, self._of_call.times(self._n_calls))

    def release(self) -> None:
        self._device.detach()


def load_of_call(tiles: "TileProgram | None") -> "DeviceLoad | None":
    """What a call takes by the model's tile program; None until something has compiled that."""
    if tiles is None or tiles.stored is None:
        return None
    from tremula.base.errors import PoplarError
    from tremula.runtime.device_load import forecast_load

    try:
        return forecast_load(tiles.stored.executable)
    except PoplarError:  # its path depends on data: no forecast
        return None


def hold(n_ipus: int, id: int | None = None) -> HeldDevice | None:
    """Take a device of the partition that the environment names; None if it names none."""
    if not any(map(os.environ.get, _VARIABLES)):
        return None
    from tremula.poplar.target import DeviceManager

    manager = DeviceManager()
    if id is None:
        return HeldDevice(manager.acquire_available_device(n_ipus))
    device = manager.get_device(id)
    if not device.attach():
        raise manager.held_by_others([device])
    return HeldDevice(device)
