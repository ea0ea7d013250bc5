"""Session options as the plain settings of a compiled step, for PopART and PopTorch alike.

    popart.SessionOptions ──────────────────────────────┐
    poptorch.Options ─► session_options() ─► SessionOptions ─► Repetition, TileSettings

What only one of the two has (a memory proportion for each chip, a cache folder from the
environment) is an argument.
"""

from collections.abc import Callable, Mapping

from tremula.frontends.popart.enums import (
    MeanReductionStrategy,
    RecomputationType,
    ReductionType,
    SyntheticDataMode,
)
from tremula.frontends.popart.options.options import SessionOptions
from tremula.ir.locations import Locations
from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.repetition import Repetition
from tremula.ir.run.tile_settings import TileSettings


def repetition(
    options: SessionOptions, n_iterations: int, *, is_training: bool = True, n_processes: int = 1
) -> Repetition:
    """How often a step runs, and how gradients combine."""
    n_accumulation = options.n_accumulation if is_training else 1
    is_mean = options.accumulationAndReplicationReductionType is ReductionType.Mean
    strategy = options.meanAccumulationAndReplicationReductionStrategy
    return Repetition(
        n_iterations,
        n_accumulation,
        options.n_replicas,
        1.0 / (n_accumulation * options.getGlobalReplicationFactor()) if is_mean else 1.0,
        n_processes,
        is_mean and n_accumulation > 1 and strategy is MeanReductionStrategy.Running,
    )


def tile_settings(
    options: SessionOptions,
    chip: str,
    n_tiles: int,
    *,
    cache_folder: str | None,
    warn: Callable[[str], None],
    available_memory: Mapping[int, float] | None = None,
    recomputation: str | None = None,
    shows_progress: bool = False,
) -> TileSettings:
    """How the tile program is compiled.

    `recomputation` is the pass that chooses what the backward pass computes again; PopART chooses
    on its own graph and passes None.
    """
    return TileSettings(
        chip,
        n_tiles,
        _lowering_options(options, dict(available_memory or {})),
        _engine_options(options),
        recomputes_stages=options.autoRecomputation is not RecomputationType.NoRecompute,
        recomputation=recomputation,
        cache_folder=cache_folder,
        shows_progress=shows_progress,
        not_modelled=tuple(_not_modelled(options)),
        warn=warn,
    )


def _lowering_options(
    options: SessionOptions, available_memory: dict[int, float]
) -> LoweringOptions:
    merged = options.replicatedCollectivesSettings
    return LoweringOptions(
        partials_type=options.partialsTypeMatMuls or None,
        dithers_convolutions=options.convolutionOptions.get("enableConvDithering") in {"true", "1"},
        available_memory=available_memory,
        rounds_stochastically=bool(options.enableStochasticRounding),
        locations=locations(options),
        n_io_tiles=int(options.numIOTiles),
        prefetch_depth=_prefetch_depth(options),
        has_synthetic_data=options.syntheticDataMode is not SyntheticDataMode.Off,
        outline_threshold=float(options.outlineThreshold) if options.enableOutlining else None,
        merges_all_reduces=bool(merged.mergeAllReduceCollectives),
        merges_reduce_scatters=bool(merged.mergeReduceScatterCollectives),
    )


def locations(options: SessionOptions) -> Locations:
    """Where weights, optimiser states, accumulators and activations are stored."""
    return Locations(
        weight=options.weightTensorLocationSettings.resolved,
        state=options.optimizerStateTensorLocationSettings.resolved,
        accumulator=options.accumulatorTensorLocationSettings.resolved,
        activation=options.activationTensorLocationSettings.resolved,
    )


def _prefetch_depth(options: SessionOptions) -> int:
    """How many transfers the host is ahead of the device."""
    if not options.enablePrefetchDatastreams:
        return 0
    return max(int(options.defaultPrefetchBufferingDepth), int(options.defaultBufferingDepth))


def _engine_options(options: SessionOptions) -> dict[str, object]:
    """The script's engine options without those of reports, which the front end writes."""
    chosen = {
        name: value
        for name, value in options.engineOptions.items()
        if not name.startswith("autoReport.")
    }
    return {**chosen, "debug.floatPointOpException": bool(options.enableFloatingPointChecks)}


def _not_modelled(options: SessionOptions) -> list[str]:
    """What a script requested that changes a real machine's memory or time, but not ours.

    Results are the same either way; memory and cycles of a report are not.
    """
    result = []
    kinds = vars(locations(options)).values()
    uses_io_tiles = any(kind.uses_io_tiles or kind.stores_on_io_tiles for kind in kinds)
    if uses_io_tiles and not options.numIOTiles:
        result.append("useIOTilesToLoad and TileSet.IO (no tiles are set aside: numIOTiles)")
    if options.batchSerializationSettings.factor > 1:
        result.append("batchSerializationSettings")
    return result
