"""PopTorch's options as the plain settings of a compiled step."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from tremula.frontends.popart.enums import RecomputationType
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popart.step_settings import repetition, tile_settings
from tremula.frontends.poptorch.executor.outputs import returned_by
from tremula.frontends.poptorch.executor.placement import (
    machine_of,
    placement_rules,
    uses_ipu_model,
)
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.group_values import GroupValues
from tremula.ir.run.compiled_step import StepSettings
from tremula.ir.run.generators import new_seed
from tremula.ir.settings import HostSettings

if TYPE_CHECKING:  # importing the tile compiler is slow
    from tremula.ir.run.tile_program import TileSettings

# The pass that chooses what the backward pass computes again, where there is no pipeline.
_RECOMPUTATION = {
    RecomputationType.Standard: "popart",
    RecomputationType.NormOnly: "norms",
    RecomputationType.RecomputeAll: "everything",
}


def step_settings(
    options: Options,
    host: HostSettings,
    groupings: Mapping[str, GroupValues],
    *,
    not_in_graph: Collection[str] = (),
) -> StepSettings:
    """Everything a script chose that changes how its step is compiled and run.

    Anchored tensors that are `not_in_graph` are left to the caller.
    """
    session = options.session_options()
    return StepSettings(
        repetition=repetition(
            session, options.device_iterations, n_processes=options.Distributed.numProcesses
        ),
        host=host,
        tiles=_tile_settings(options, session, host.chip),
        seed=options.random_seed % 2**63 if options.exists("random_seed") else new_seed(),
        runs_on_tiles=uses_ipu_model(options) or host.tiles == "run",
        checks_floats=bool(session.enableFloatingPointChecks),
        rounds_stochastically=bool(session.enableStochasticRounding),
        strides_group_norms=bool(session.groupNormStridedChannelGrouping),
        groupings=groupings,
        returned=returned_by(options),
        anchors=tuple(
            anchored.long_name
            for anchored in options.anchored_tensors.values()
            if anchored.long_name not in not_in_graph
        ),
        source_excludes=tuple(options.source_location_excludes),
        placement=placement_rules(options),
        warn=LOGGER.warning,
    )


def _tile_settings(options: Options, session: SessionOptions, chip: str) -> "TileSettings":
    return tile_settings(
        session,
        *machine_of(options, chip),
        cache_folder=session.cachePath if session.enableEngineCaching else None,
        warn=LOGGER.warning,
        available_memory=options.available_memory_proportion,
        recomputation=_RECOMPUTATION.get(session.autoRecomputation),
        shows_progress=options.show_compilation_progress_bar,
    )
