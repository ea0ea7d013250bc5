"""Options and devices as the plain settings of a compiled step."""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tremula.frontends.popart.devices import DeviceInfo
from tremula.frontends.popart.enums import (
    DeviceType,
    MeanReductionStrategy,
    RecomputationType,
    ReductionType,
    ReplicatedTensorSharding,
    SyntheticDataMode,
    TensorStorage,
    TileSet,
)
from tremula.frontends.popart.locations import TensorLocationSettings
from tremula.frontends.popart.logging import getLogger
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popart.sessions.placement import places_of_blocks
from tremula.ir.locations import Location, Locations
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.run.replica_groups import Grouping
from tremula.ir.run.session import Repetition
from tremula.ir.settings import HostSettings, host_settings

if TYPE_CHECKING:  # the tile side loads slowly, and only those who use it pay
    from tremula.ir.run.tile_program import TileSettings

_ON_TILES = (DeviceType.IpuModel, DeviceType.Sim)
_CACHE_VARIABLES = ("POPART_CACHE_DIR", "POPXL_CACHE_DIR")


def step_settings(
    options: SessionOptions,
    device: DeviceInfo,
    n_batches: int,
    groupings: Mapping[str, Grouping],
    seed: int,
    *,
    is_training: bool,
) -> StepSettings:
    """Everything that changes how a step is compiled and run."""
    host = _host(device)
    return StepSettings(
        repetition=repetition(options, n_batches, is_training=is_training),
        host=host,
        tiles=_tiles(options, device),
        seed=seed % 2**63,
        runs_on_tiles=device.type in _ON_TILES or host.tiles == "run",
        checks_floats=bool(options.enableFloatingPointChecks),
        groupings=groupings,
        place=places_of_blocks,  # what a capture warns about is for authors of PyTorch code
    )


def _host(device: DeviceInfo) -> HostSettings:
    settings = host_settings()
    return replace(settings, device="cpu") if device.type is DeviceType.Cpu else settings


def repetition(options: SessionOptions, n_batches: int, *, is_training: bool) -> Repetition:
    """How often a step runs, and how gradients combine."""
    n_accumulation = options.n_accumulation if is_training else 1
    kind = ReductionType(options.accumulationAndReplicationReductionType)
    strategy = MeanReductionStrategy(options.meanAccumulationAndReplicationReductionStrategy)
    is_mean = kind is ReductionType.Mean
    n_all = n_accumulation * options.getGlobalReplicationFactor()
    return Repetition(
        n_batches,
        n_accumulation,
        options.n_replicas,
        1.0 / n_all if is_mean else 1.0,
        1,
        is_mean and n_accumulation > 1 and strategy is MeanReductionStrategy.Running,
    )


def _tiles(options: SessionOptions, device: DeviceInfo) -> "TileSettings":
    from tremula.ir.lowering.tiles import LoweringOptions  # loads slowly
    from tremula.ir.run.tile_program import TileSettings

    merged = options.replicatedCollectivesSettings
    return TileSettings(
        device.chip,
        device.n_tiles,
        LoweringOptions(
            partials_type=options.partialsTypeMatMuls or None,
            rounds_stochastically=bool(options.enableStochasticRounding),
            locations=Locations(
                weight=_location(options.weightTensorLocationSettings),
                state=_location(options.optimizerStateTensorLocationSettings),
                accumulator=_location(options.accumulatorTensorLocationSettings),
                activation=_location(options.activationTensorLocationSettings),
            ),
            n_io_tiles=int(options.numIOTiles),
            prefetch_depth=_prefetch_depth(options),
            has_synthetic_data=options.syntheticDataMode != SyntheticDataMode.Off,
            outline_threshold=float(options.outlineThreshold) if options.enableOutlining else None,
            merges_all_reduces=merged.mergeAllReduceCollectives,
            merges_reduce_scatters=merged.mergeReduceScatterCollectives,
        ),
        _engine_options(options),
        recomputes_stages=options.autoRecomputation != RecomputationType.NoRecompute,
        cache_folder=_cache_folder(options),
        not_modelled=tuple(_not_modelled(options)),
        warn=getLogger("session").warn,
    )


def _engine_options(options: SessionOptions) -> dict[str, object]:
    """What the script gave; reports are written on request, not by the engine."""
    given = options.engineOptions.items()
    kept = {name: value for name, value in given if not name.startswith("autoReport.")}
    return {**kept, "debug.floatPointOpException": bool(options.enableFloatingPointChecks)}


def _cache_folder(options: SessionOptions) -> str | None:
    folders = (os.environ.get(name) for name in _CACHE_VARIABLES)
    result = next((folder for folder in folders if folder), None)
    return options.cachePath if options.enableEngineCaching else result


def _location(settings: TensorLocationSettings) -> Location:
    place = settings.location
    return Location(
        is_off_chip=place.storage == TensorStorage.OffChip,
        least_off_chip=settings.minElementsForOffChip,
        is_sharded=place.replicatedTensorSharding == ReplicatedTensorSharding.On,
        least_sharded=settings.minElementsForReplicatedTensorSharding,
        uses_io_tiles=place.loadTileSet == TileSet.IO,
        stores_on_io_tiles=place.storageTileSet == TileSet.IO,
    )


def _prefetch_depth(options: SessionOptions) -> int:
    """How many transfers the host is ahead."""
    if not options.enablePrefetchDatastreams:
        return 0
    return max(int(options.defaultPrefetchBufferingDepth), int(options.defaultBufferingDepth))


def _not_modelled(options: SessionOptions) -> list[str]:
    """What was asked for and changes neither memory nor cycles of the tile program."""
    result = []
    if options.batchSerializationSettings.factor > 1:
        result.append("batchSerializationSettings")
    return result
