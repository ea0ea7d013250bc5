"""Targets and devices: which machine a graph is built for. No hardware is ever needed."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType

import numpy as np

from tremula.base.errors import (
    GraphReplicationError,
    InvalidMachineModel,
    SystemRuntimeError,
)
from tremula.base.source import user_source
from tremula.base.types import Type, as_type
from tremula.base.version import VERSION
from tremula.hardware import Chip, System, chip, single
from tremula.hardware import system as named_system
from tremula.poplar.partition import Lease, Partition, partition_of_environment


class TargetType(Enum):
    """What kind of machine a target is."""

    IPU = "IPU"
    IPU_MODEL = "IPU_MODEL"
    CPU = "CPU"


@dataclass(frozen=True, slots=True)
class Target:
    """The machine as a graph sees it: its IPUs, and the tiles of each."""

    chip: Chip
    n_ipus: int = 1
    tiles_per_ipu: int = 0  # 0: all the chip has
    type: TargetType = TargetType.IPU_MODEL
    system: System | None = None

    def __post_init__(self) -> None:
        tiles = self.tiles_per_ipu or self.chip.n_tiles
        are_whole = all(isinstance(n, int | np.integer) for n in (tiles, self.n_ipus))
        if not are_whole or not 1 <= tiles <= self.chip.n_tiles or self.n_ipus < 1:
            raise InvalidMachineModel(
                f"a target of {self.n_ipus!r} IPUs with {tiles!r} tiles each is impossible: "
                f"{self.chip.name} has {self.chip.n_tiles} tiles.",
                hint=f"use 1 IPU or more, and 1 to {self.chip.n_tiles} tiles",
            )
        object.__setattr__(self, "tiles_per_ipu", tiles)
        if self.system is None:
            object.__setattr__(self, "system", single(self.chip, self.n_ipus))

    @property
    def n_tiles(self) -> int:
        """Tiles of all its chips."""
        return self.n_ipus * self.tiles_per_ipu

    @property
    def n_worker_contexts(self) -> int:
        """Workers of a tile."""
        return self.chip.n_workers

    @property
    def n_bytes_per_tile(self) -> int:
        """Memory of a tile."""
        return self.chip.n_bytes_per_tile

    @property
    def exchange_bytes_per_cycle(self) -> float:
        """What a tile can receive in a cycle."""
        return float(self.chip.exchange_bytes_per_cycle)

    @property
    def tile_clock_hz(self) -> float:
        """The clock of the tiles."""
        return self.chip.clock_hz

    @property
    def data_path_width_bits(self) -> int:
        """Bits of a load or store."""
        return self.chip.data_path_bytes * 8

    @property
    def arch(self) -> str:
        """The architecture's name, `ipu2` say."""
        return self.chip.arch

    def type_size(self, type: Type | str) -> int:
        """Bytes of an element on the device."""
        return as_type(type).n_bytes

    def vector_width(self, type: Type | str) -> int:
        """Elements in one data path: 2 floats, 4 halves."""
        return max(1, self.chip.data_path_bytes // as_type(type).n_bytes)

    def with_replicas(self, n_replicas: int) -> "Target":
        """The part of this target one replica sees."""
        if n_replicas < 1 or self.n_ipus % n_replicas:
            raise GraphReplicationError(
                f"{self.n_ipus} IPUs cannot hold {n_replicas} replicas.",
                source=user_source(),
                hint="use a factor that divides the number of IPUs",
            )
        return replace(self, n_ipus=self.n_ipus // n_replicas)

    def virtual(self, tiles_per_ipu: int) -> "Target":
        """A target of some of its tiles."""
        return replace(self, tiles_per_ipu=tiles_per_ipu)


@dataclass(slots=True)
class _Hold:
    """Whether a device is attached; on a partition, by which lease."""

    is_attached: bool = False
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """What an engine loads a program on. Modelled; on a partition others may hold it.

    `first_ipu` counts from the first chip of the machine or partition.
    """

    target: Target
    id: int = 0
    partition: Partition | None = field(default=None, repr=False, compare=False)
    first_ipu: int | None = None
    _hold: _Hold = field(default_factory=_Hold, repr=False, compare=False)

    def attach(self) -> bool:
        """Take it; false if another program holds a chip of it, as on partitions it may."""
        if self.partition is not None and self._hold.lease is None:
            self._hold.lease = self.partition.lease(self._first_ipu, self.target.n_ipus)
            if self._hold.lease is None:
                return False
        self._hold.is_attached = True
        return True

    def detach(self) -> None:
        """Give it back."""
        if self._hold.lease is not None:
            self._hold.lease.release()
        self._hold.is_attached, self._hold.lease = False, None

    @property
    def is_attached(self) -> bool:
        """Was it attached, and not given back?"""
        return self._hold.is_attached

    @property
    def lease(self) -> Lease | None:
        """What holds it on a partition; None without one. Raises if nothing holds it there."""
        if self.partition is not None and self._hold.lease is None:
            raise SystemRuntimeError(
                f"device {self.id} of partition {self.partition.name!r} is not attached.",
                hint="load a program once device.attach() has returned True",
            )
        return self._hold.lease

    def reset(self) -> None:
        """Nothing to reset: `engine.load` starts from the initial values."""

    @property
    def _first_ipu(self) -> int:
        return self.id * self.target.n_ipus if self.first_ipu is None else self.first_ipu

    @property
    def attributes(self) -> dict[str, str]:
        """What is known of the machine, as text."""
        target = self.target
        return {
            "IPU version": target.arch,
            "IPU name": target.chip.name,
            "Number of IPUs": str(target.n_ipus),
            "Tiles per IPU": str(target.tiles_per_ipu),
            "Clock": f"{target.tile_clock_hz / 1e6:.0f} MHz",
        }

    @property
    def driver_version(self) -> str:
        """There is no driver: the version of Tremula."""
        return VERSION

    @property
    def driver_ids(self) -> list[int]:
        """The numbers of its IPUs in the machine."""
        return [self._first_ipu + i for i in range(self.target.n_ipus)]

    @property
    def supports_remote_buffers(self) -> bool:
        """Every machine does: without streaming memory they are kept on the host."""
        return True

    @property
    def has_gateway(self) -> bool:
        """Does the machine have its own streaming memory?"""
        system = self.target.system
        return system is not None and bool(system.dram_gbytes_per_s_per_machine)

    def create_virtual_device(self, tiles_per_ipu: int) -> "Device":
        """A view of this device that uses fewer tiles per IPU."""
        target = self.target.virtual(tiles_per_ipu)
        return Device(target, self.id, self.partition, self.first_ipu, self._hold)

    @staticmethod
    def create_cpu_device() -> "Device":
        """One tile, one worker: for quick tests of codelets."""
        one = chip("gc200").replace(name="CPU", n_tiles=1, n_workers=1)
        return Device(Target(one, 1, 1, TargetType.CPU))

    @staticmethod
    def create_simulator_device(
        target: Target,
        options: Mapping[str, object] | None = None,  # noqa: ARG004 (Poplar's)
    ) -> "Device":
        """A device of a target: all of them are modelled."""
        return Device(target)


class _Machine:
    """What `machine_changed` sets; usually nothing."""

    chip: Chip | None = None
    changes: Mapping[str, int | float] = MappingProxyType({})
    system: System | None = None


@contextmanager
def machine_changed(
    chip: Chip | None, changes: Mapping[str, int | float], system: System | None = None
) -> Iterator[None]:
    """Models made in the block use another chip or system, or other constants: for what-if.

    With `n_tiles` among the changes, a model uses that many, whatever it requested.
    """
    before = _Machine.chip, _Machine.changes, _Machine.system
    chip = chip or (system.chip if system is not None else None)
    _Machine.chip, _Machine.changes, _Machine.system = chip, MappingProxyType(dict(changes)), system
    try:
        yield
    finally:
        _Machine.chip, _Machine.changes, _Machine.system = before


def _changed(chip: Chip) -> Chip:
    chip = _Machine.chip or chip
    return chip.replace(**_Machine.changes) if _Machine.changes else chip  # pyright: ignore[reportArgumentType]


@dataclass
class IPUModel:
    """A machine to build for. Set fields, then `create_device()`.

    `IPUModel("bow")`, `IPUModel("ipu2", n_ipus=2)`, `IPUModel(my_chip, tiles_per_ipu=4)`, or the
    first chips of a system, `IPUModel(system("pod64"), n_ipus=16)`.
    """

    version: str | Chip = "ipu2"
    n_ipus: int = 1
    tiles_per_ipu: int = 0
    system: System | None = None
    changes: dict[str, object] = field(default_factory=dict)

    def __init__(
        self,
        version: str | Chip | System = "ipu2",
        n_ipus: int = 1,
        tiles_per_ipu: int = 0,
        **changes: object,
    ):
        self.system = version if isinstance(version, System) else None
        self.version = version.chip if isinstance(version, System) else version
        self.n_ipus, self.tiles_per_ipu, self.changes = n_ipus, tiles_per_ipu, changes

    @property
    def chip(self) -> Chip:
        """The chip that is modelled."""
        base = chip(self.version)
        base = base.replace(**self.changes) if self.changes else base  # pyright: ignore[reportArgumentType]
        return _changed(base)

    def create_target(self) -> Target:
        """A target to build a graph for."""
        n_tiles = 0 if "n_tiles" in _Machine.changes else self.tiles_per_ipu
        system = _Machine.system or self.system
        if system is None:
            return Target(self.chip, self.n_ipus, n_tiles)
        if self.n_ipus > system.n_ipus:
            raise InvalidMachineModel(
                f"{system.name} has {system.n_ipus} IPUs, not {self.n_ipus}.",
                hint="ask for fewer, or use a larger system",
            )
        chip = self.chip
        system = system if chip == system.chip else system.replace(chip=chip)
        return Target(chip, self.n_ipus, n_tiles, system=system)

    def create_device(self) -> Device:
        """A device to build a graph for and to run on."""
        return Device(self.create_target())


class DeviceManager:
    """Finds devices. All of them are modelled: those of the partition that the environment names,

    or of a machine, a Pod16 unless one is given.
    """

    def __init__(self, system: System | None = None):
        self.partition = partition_of_environment() if system is None else None
        lent = self.partition.system if self.partition is not None else None
        self.system = system or lent or named_system("pod16")

    @staticmethod
    def create_device_manager() -> "DeviceManager":
        """Poplar's way to make one."""
        return DeviceManager()

    def get_devices(
        self, type: TargetType = TargetType.IPU_MODEL, n_ipus: int | None = None
    ) -> list[Device]:
        """Devices of a size, none if the machine is too small; of all sizes if none is given.

        Sizes are 1, 2, 4, … IPUs; devices are numbered in this order, single IPUs first. A
        partition that is not reconfigurable is one device.
        """
        if n_ipus is None:
            return [d for n in self._sizes() for d in self.get_devices(type, n)]
        if n_ipus < 1 or (self._is_whole and n_ipus != self.system.n_ipus):
            return []
        chip, system = _changed(self.system.chip), self.system
        system = system if chip == system.chip else replace(system, chip=chip)
        smaller = sum(system.n_ipus // n for n in self._sizes() if n < n_ipus)
        if n_ipus > system.n_ipus:
            return []
        target = Target(chip, n_ipus, 0, type, system)
        return [
            Device(target, smaller + i, self.partition, i * n_ipus)
            for i in range(system.n_ipus // n_ipus)
        ]

    def get_device(self, id: int, type: TargetType = TargetType.IPU_MODEL) -> Device:
        """The device of a number, as get_devices lists them."""
        devices = self.get_devices(type)
        if not 0 <= id < len(devices):
            raise InvalidMachineModel(
                f"device {id} does not exist: {self.system.name} has {len(devices)}.",
                hint=f"use 0 to {len(devices) - 1}",
            )
        return devices[id]

    @property
    def n_devices(self) -> int:
        """How many devices get_devices lists."""
        return len(self.get_devices())

    def get_child_device_ids(self, id: int, n_ipus: int = 1) -> list[int]:
        """Numbers of the devices of a smaller size that a device consists of."""
        parent = self.get_device(id)
        size = parent.target.n_ipus
        place = id - self.get_devices(n_ipus=size)[0].id
        children = self.get_devices(n_ipus=n_ipus)
        n = size // n_ipus if n_ipus > 0 else 0
        return [child.id for child in children[place * n : (place + 1) * n]]

    def acquire_available_device(self, n_ipus: int = 1) -> Device:
        """The first device of a size that can be attached, attached."""
        devices = self.get_devices(n_ipus=n_ipus)
        if not devices:
            raise InvalidMachineModel(
                f"{self.system.name} has {self.system.n_ipus} IPUs, not {n_ipus}.",
                hint="ask for fewer, or use IPUModel(n_ipus=…)"
                if not self._is_whole
                else "the partition is one device; `tremula vipu create partition "
                "--reconfigurable` makes one of all sizes",
            )
        for device in devices:
            if device.attach():
                return device
        raise self.held_by_others(devices)

    def held_by_others(self, devices: list[Device]) -> SystemRuntimeError:
        """The error if none of these devices could be attached."""
        assert self.partition is not None, "devices without a partition are never held by others"
        return SystemRuntimeError(
            f"other programs hold all {len(devices)} devices of {devices[0].target.n_ipus} IPUs of "
            f"partition {self.partition.name!r} that would do.",
            hint="wait for them, or create another partition; `tremula system monitor` shows who "
            "they are",
        )

    @property
    def _is_whole(self) -> bool:
        return self.partition is not None and not self.partition.is_reconfigurable

    def _sizes(self) -> list[int]:
        if self._is_whole:
            return [self.system.n_ipus]
        return [1 << k for k in range(self.system.n_ipus.bit_length())]
