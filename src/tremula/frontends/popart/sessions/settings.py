"""Options and the device of a session as the settings of its compiled step."""

import os
from collections.abc import Mapping
from dataclasses import replace

from tremula.frontends.popart.devices import DeviceInfo
from tremula.frontends.popart.enums import DeviceType
from tremula.frontends.popart.logging import getLogger
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popart.step_settings import tile_settings
from tremula.ir.group_values import GroupValues
from tremula.ir.locations import Phases
from tremula.ir.placement import PlacementRules
from tremula.ir.repetition import Repetition
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.settings import HostSettings, host_settings

_ON_TILES = (DeviceType.IpuModel, DeviceType.Sim)
_CACHE_VARIABLES = ("POPART_CACHE_DIR", "POPXL_CACHE_DIR")


def step_settings(
    options: SessionOptions,
    device: DeviceInfo,
    repetition: Repetition,
    groupings: Mapping[str, GroupValues],
    seed: int,
) -> StepSettings:
    """Everything that changes how a step is compiled and run."""
    host = _host(device)
    return StepSettings(
        repetition=repetition,
        host=host,
        tiles=tile_settings(
            options,
            device.chip,
            device.n_tiles,
            cache_folder=cache_folder(options),
            warn=getLogger("session").warn,
        ),
        seed=seed % 2**63,
        runs_on_tiles=device.type in _ON_TILES or host.tiles == "run",
        checks_floats=bool(options.enableFloatingPointChecks),
        strides_group_norms=bool(options.groupNormStridedChannelGrouping),
        groupings=groupings,
        # Nothing warns: what a capture warns of is for authors of PyTorch code.
        placement=PlacementRules(stride=1, phases=Phases(leaves_after_forward=True)),
    )


def _host(device: DeviceInfo) -> HostSettings:
    settings = host_settings()
    return replace(settings, device="cpu") if device.type is DeviceType.Cpu else settings


def cache_folder(options: SessionOptions) -> str | None:
    """Where compiled programs are saved: by an option, or by a variable of the environment."""
    if options.enableEngineCaching:
        return options.cachePath
    folders = (os.environ.get(name) for name in _CACHE_VARIABLES)
    return next((folder for folder in folders if folder), None)
