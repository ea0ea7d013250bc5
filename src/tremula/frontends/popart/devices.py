"""Devices: this computer, and chips that are modelled on it."""

import itertools
import random
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from tremula.base.errors import suggest
from tremula.frontends.popart.enums import (
    DeviceConnectionType,
    DeviceSelectionCriterion,
    DeviceType,
    SyncPattern,
)
from tremula.frontends.popart.exceptions import popart_errors, popart_exception
from tremula.frontends.shared.device_lease import LeasedDevice
from tremula.ir.settings import host_settings
from tremula.poplar.target import IPUModel

if TYPE_CHECKING:  # importing the tile compiler is slow
    from tremula.ir.run.tile_program import TileProgram

MAX_IPUS = 1024  # more than any machine had
# The chip that a value of `ipuVersion` means.
_CHIPS = {"ipu1": "ipu1", "ipu2": "ipu2", "ipu21": "ipu21"}
_SIM_TILES = 4  # of a simulator, by default
_OPTIONS = """
    numIPUs tilesPerIPU ipuVersion compileIPUCode numWorkerContexts syncPattern topology
    memoryBytes virtualGraph hostCallbacks
""".split()


class DeviceInfo:
    """A device: what computes, and how many chips and tiles it has."""

    def __init__(
        self,
        type: DeviceType,
        n_ipus: int = 1,
        tiles_per_ipu: int = 0,
        *,
        chip: str = "",
        id: int = 0,
        connection: DeviceConnectionType = DeviceConnectionType.Always,
    ):
        if not 1 <= n_ipus <= MAX_IPUS:
            raise popart_exception(f"A device has 1 to {MAX_IPUS} IPUs, got numIPUs = {n_ipus}")
        self._type, self._n_ipus, self._id, self._connection = type, n_ipus, id, connection
        self.chip = chip or host_settings().chip
        self._tiles = tiles_per_ipu
        self._lease = LeasedDevice()
        self._is_attached = connection is DeviceConnectionType.Always

    @property
    def type(self) -> DeviceType:
        """What computes."""
        return self._type

    @property
    def connectionType(self) -> DeviceConnectionType:
        """When the device is attached."""
        return self._connection

    @property
    def id(self) -> int:
        """The number of the device."""
        return self._id

    @property
    def numIpus(self) -> int:
        """How many chips."""
        return self._n_ipus

    @property
    def tilesPerIPU(self) -> int:
        """How many tiles a chip has."""
        return self._tiles or IPUModel(self.chip, 1).create_device().target.tiles_per_ipu

    @property
    def tilesPerIpu(self) -> int:
        """Another spelling of `tilesPerIPU`."""
        return self.tilesPerIPU

    @property
    def n_tiles(self) -> int:
        """The requested tiles of a chip; 0: all."""
        return self._tiles

    @property
    def numWorkerContexts(self) -> int:
        """How many workers a tile has."""
        return 6

    @property
    def version(self) -> str:
        """The kind of chip."""
        return self.chip

    @property
    def ipuVersion(self) -> str:
        """The kind of chip."""
        return self.chip

    @property
    def driverIds(self) -> list[int]:
        """Numbers of the chips."""
        return list(range(self._n_ipus))

    @property
    def isAttached(self) -> bool:
        """Whether a program uses the device."""
        return self._is_attached

    def attach(self) -> bool:
        """Take the device."""
        if self._connection is DeviceConnectionType.Never:
            raise popart_exception("An offline device cannot be attached: it only compiles")
        if self._type is DeviceType.Ipu:
            with popart_errors():
                self._lease.acquire(self._n_ipus)
        self._is_attached = True
        return True

    def running(self, tiles: "TileProgram | None") -> AbstractContextManager[None]:
        """Around a step of a session."""
        return self._lease.running(tiles)

    def tryAttachUntilTimeout(self) -> bool:
        """Take the device at once; a device in use is not waited for."""
        return self.attach()

    def detach(self) -> None:
        """Return the device."""
        self._is_attached = False
        self._lease.release()

    def __enter__(self) -> "DeviceInfo":
        return self

    def __exit__(self, *_error: object) -> None:
        self.detach()

    def __repr__(self) -> str:
        tiles = f", {self._tiles} tiles each" if self._tiles else ""
        return f"DeviceInfo({self._type.name}, {self._n_ipus} × {self.chip}{tiles}, id {self._id})"


def _attached(device: DeviceInfo) -> DeviceInfo:
    """The device, attached at once unless its connection type says otherwise."""
    if device.connectionType is DeviceConnectionType.Always:
        device.attach()
    return device


class DeviceManager:
    """Makes devices. Each is always available: chips are modelled, CPU and IPU run on the host."""

    _ids = itertools.count()

    def createCpuDevice(self) -> DeviceInfo:
        """This computer."""
        return DeviceInfo(DeviceType.Cpu)

    def createIpuModelDevice(self, options: Mapping[str, object] | None = None) -> DeviceInfo:
        """Chips that compute every vertex: `{"numIPUs": 2, "tilesPerIPU": 16}`."""
        return self._modelled(DeviceType.IpuModel, options)

    def createSimDevice(self, options: Mapping[str, object] | None = None) -> DeviceInfo:
        """Another name for an IPU model; it has four tiles unless `options` say otherwise."""
        return self._modelled(DeviceType.Sim, {"tilesPerIPU": _SIM_TILES, **(options or {})})

    def createOfflineIPUDevice(self, opts: Mapping[str, object] | None = None) -> DeviceInfo:
        """Chips to compile for, which run nothing."""
        result = self._modelled(DeviceType.OfflineIpu, opts)
        result._connection, result._is_attached = DeviceConnectionType.Never, False
        return result

    def createOfflineIpuFromDeviceInfo(self, deviceInfo: DeviceInfo) -> DeviceInfo:
        """Chips like those of another device, to compile for."""
        options = {"numIPUs": deviceInfo.numIpus, "tilesPerIPU": deviceInfo.n_tiles}
        result = self.createOfflineIPUDevice(options)
        result.chip = deviceInfo.chip
        return result

    def createOfflineIpuFromSystemString(self, system: str, numIpus: int) -> DeviceInfo:
        """Chips of a kind, as in `ipuVersion`, to compile for."""
        return self.createOfflineIPUDevice({"ipuVersion": system, "numIPUs": numIpus})

    def acquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,  # noqa: ARG002
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo:
        """Chips of a machine: the host computes, and the tile program is costed."""
        return self._acquired(numIpus, tilesPerIpu, connectionType, selectionCriterion)

    def tryAcquireAvailableDevice(
        self,
        numIpus: int = 1,
        tilesPerIpu: int = 0,
        pattern: SyncPattern = SyncPattern.Full,  # noqa: ARG002
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        selectionCriterion: DeviceSelectionCriterion = DeviceSelectionCriterion.First,
    ) -> DeviceInfo | None:
        """Like `acquireAvailableDevice`; there is always a device, so never None."""
        return self._acquired(numIpus, tilesPerIpu, connectionType, selectionCriterion)

    def _acquired(
        self,
        n_ipus: int,
        n_tiles: int,
        connection: DeviceConnectionType,
        criterion: DeviceSelectionCriterion,
    ) -> DeviceInfo:
        """Scripts may replace the public methods by functions that call each other."""
        is_random = criterion is DeviceSelectionCriterion.Random
        id = random.randrange(MAX_IPUS) if is_random else next(self._ids)
        return _attached(DeviceInfo(DeviceType.Ipu, n_ipus, n_tiles, id=id, connection=connection))

    def acquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,  # noqa: ARG002
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo:
        """The chip with a number."""
        return _attached(DeviceInfo(DeviceType.Ipu, 1, id=id, connection=connectionType))

    def tryAcquireDeviceById(
        self,
        id: int,
        pattern: SyncPattern = SyncPattern.Full,  # noqa: ARG002
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
    ) -> DeviceInfo | None:
        """Like `acquireDeviceById`; there is always a device, so never None."""
        return _attached(DeviceInfo(DeviceType.Ipu, 1, id=id, connection=connectionType))

    def enumerateDevices(
        self,
        pattern: SyncPattern = SyncPattern.Full,  # noqa: ARG002
        numIpus: int = 1,
        deviceType: DeviceType = DeviceType.Ipu,
        connectionType: DeviceConnectionType = DeviceConnectionType.Always,
        tilesPerIPU: int = 0,
    ) -> list[DeviceInfo]:
        """Devices of a kind that are available: one."""
        return [DeviceInfo(deviceType, numIpus, tilesPerIPU, connection=connectionType)]

    def setOnDemandAttachTimeout(self, attachTimeout: int) -> None:
        """Has no effect: a device in use is not waited for."""

    def _modelled(self, kind: DeviceType, options: Mapping[str, object] | None) -> DeviceInfo:
        chosen = dict(options or {})
        for name in chosen:
            if name not in _OPTIONS:
                raise popart_exception(f"Unknown device option {name!r}: {suggest(name, _OPTIONS)}")
        version = str(chosen.get("ipuVersion", ""))
        if version and version not in _CHIPS:
            raise popart_exception(f"ipuVersion {version!r}: {suggest(version, _CHIPS)}")
        return DeviceInfo(
            kind,
            _whole(chosen, "numIPUs", 1),
            _whole(chosen, "tilesPerIPU", 0),
            chip=_CHIPS.get(version, ""),
            id=next(self._ids),
        )


def _whole(options: Mapping[str, object], name: str, default: int) -> int:
    value = options.get(name, default)
    if not isinstance(value, int | str):
        raise popart_exception(f"{name} is a whole number, got {value!r}")
    return int(value)
