"""Builds the tile program of a captured step, one micro-batch after another or as a pipeline."""

from collections.abc import Callable

from tremula.ir.lowering.options import LoweringOptions
from tremula.ir.lowering.program.schedule import BuiltProgram, Schedule
from tremula.ir.lowering.program.step_builder import step_builder
from tremula.ir.op_table import refuse_unsupported
from tremula.ir.step import CapturedStep
from tremula.poplar.target import Target
from tremula.poplibs.outlining import outlined

__all__ = ["BuiltProgram", "Schedule", "build_tile_program"]


def build_tile_program(
    step: CapturedStep,
    target: Target,
    schedule: Schedule,
    options: LoweringOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BuiltProgram:
    """Lower what `tile_passes` of the same stages left. `progress(done, total)` counts nodes."""
    refuse_unsupported(step)
    options = options or LoweringOptions()
    built = step_builder(step, target, schedule, options).build(progress)
    if options.outline_threshold is not None:
        built.program = outlined(built.graph, built.program, options.outline_threshold)[0]
    return built
