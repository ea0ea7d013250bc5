"""PopTorch's options as the plain settings of a compiled step."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tremula.frontends.poptorch.enums import MeanReductionStrategy, ReductionType
from tremula.frontends.poptorch.executor.placement import machine_of, place_step, uses_ipu_model
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.run.generators import new_seed
from tremula.ir.run.replica_groups import Grouping
from tremula.ir.run.session import Repetition
from tremula.ir.settings import HostSettings

if TYPE_CHECKING:  # the tile side loads slowly, and only those who use it pay
    from tremula.ir.run.tile_program import TileSettings


def step_settings(
    options: Options, host: HostSettings, groupings: Mapping[str, Grouping], *, is_training: bool
) -> StepSettings:
    """Everything a script chose that changes how its step is compiled and run."""
    return StepSettings(
        repetition=_repetition(options),
        host=host,
        tiles=_tile_settings(options, host.chip),
        seed=options.random_seed % 2**63 if options.exists("random_seed") else new_seed(),
        runs_on_tiles=uses_ipu_model(options) or host.tiles == "run",
        checks_floats=options._Popart.options.get("enableFloatingPointChecks", False),
        groupings=groupings,
        anchors=tuple(anchored.long_name for anchored in options.anchored_tensors.values()),
        source_excludes=tuple(options.source_location_excludes),
        place=lambda step: place_step(step, options, is_training=is_training),
        warn=LOGGER.warning,
    )


def _repetition(options: Options) -> Repetition:
    n_micro = options.Training.gradient_accumulation * options.replication_factor
    n_all = n_micro * options.Distributed.numProcesses
    kind = ReductionType(options.Training.accumulation_and_replication_reduction_type)
    strategy = options.Training.meanAccumulationAndReplicationReductionStrategy
    is_mean, is_accumulated = kind is ReductionType.Mean, options.Training.gradient_accumulation > 1
    return Repetition(
        options.device_iterations,
        options.Training.gradient_accumulation,
        options.replication_factor,
        1.0 / n_all if is_mean else 1.0,
        options.Distributed.numProcesses,
        is_mean and is_accumulated and strategy == MeanReductionStrategy.Running,
    )


def _tile_settings(options: Options, chip: str) -> "TileSettings":
    from tremula.ir.lowering.tiles import LoweringOptions  # loads slowly
    from tremula.ir.run.tile_program import TileSettings

    choices = options._Popart.options
    chip, n_tiles = machine_of(options, chip)
    is_cached = choices.get("enableEngineCaching", False) and "cachePath" in choices
    return TileSettings(
        chip,
        n_tiles,
        LoweringOptions(
            partials_type=choices.get("partialsTypeMatMuls"),
            available_memory=dict(options.available_memory_proportion),
            rounds_stochastically=bool(choices.get("enableStochasticRounding", False)),
            locations=options.TensorLocations.chosen,
            n_io_tiles=_n_io_tiles(options),
            prefetch_depth=_prefetch_depth(choices),
            has_synthetic_data=choices.get("syntheticDataMode", 0) != 0,
            outline_threshold=_outline_threshold(choices),
            merges_all_reduces=bool(choices.get(f"{_MERGE}AllReduceCollectives", False)),
            merges_reduce_scatters=bool(choices.get(f"{_MERGE}ReduceScatterCollectives", False)),
        ),
        _engine_options(options),
        recomputes_stages=choices.get("autoRecomputation") != 0,  # a pipeline does by default
        recomputation=_RECOMPUTATION.get(choices.get("autoRecomputation", 0)),
        cache_folder=choices["cachePath"] if is_cached else None,
        shows_progress=options.show_compilation_progress_bar,
        not_modelled=tuple(_not_modelled(options)),
        warn=LOGGER.warning,
    )


def _outline_threshold(choices: Mapping[str, Any]) -> float | None:
    """How much a function must save to be one; None where the script wants none."""
    is_on = choices.get("enableOutlining", True)
    return float(choices.get("outlineThreshold", 1.0)) if is_on else None


_MERGE = "replicatedCollectivesSettings.merge"
# By the number of popart.RecomputationType; stages of a pipeline are computed again by default.
_RECOMPUTATION = {1: "popart", 2: "norms", 4: "everything"}


def _n_io_tiles(options: Options) -> int:
    locations = options.TensorLocations
    return locations("numIOTiles") if locations.exists("numIOTiles") else 0


def _prefetch_depth(choices: Mapping[str, Any]) -> int:
    """How many transfers the host is ahead; PopART's default is 1."""
    if not choices.get("enablePrefetchDatastreams", True):
        return 0
    names = (
        "defaultPrefetchBufferingDepth",
        "defaultBufferingDepth",
    )  # the newer name
    return max(int(choices.get(name, 1)) for name in names)


def _engine_options(options: Options) -> dict[str, object]:
    """What the script gave; reports are written by the model, not by its engine."""
    given = options._Popart.options.get("engineOptions", {})
    checks = options._Popart.options.get("enableFloatingPointChecks", False)
    kept = {name: value for name, value in given.items() if not name.startswith("autoReport.")}
    return {**kept, "debug.floatPointOpException": checks}


# -- settings that change a real machine's memory or time, but not yet the tile program ------------


def _not_modelled(options: Options) -> list[str]:
    """What a script asked for that the tile program does without.

    Results are the same either way; memory and cycles of a report are not.
    """
    result = []
    locations = vars(options.TensorLocations.chosen).values()
    uses_io = any(one.uses_io_tiles or one.stores_on_io_tiles for one in locations)
    if uses_io and not _n_io_tiles(options):
        result.append("useIOTilesToLoad and useIOTilesToStore (no tiles are set aside: numIOTiles)")
    return result
