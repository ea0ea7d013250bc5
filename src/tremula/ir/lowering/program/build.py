"""Builds the tile program of a captured step, one micro-batch after another or as a pipeline."""

from collections.abc import Callable

import torch
from torch import fx

from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.program.pipeline import PipelineBuilder
from tremula.ir.lowering.program.schedule import BuiltProgram, Schedule
from tremula.ir.lowering.program.step_builder import StepBuilder
from tremula.ir.lowering.table import lowering_of, overload_name
from tremula.ir.lowering.tiles import LoweringOptions
from tremula.ir.ops import markers as marker_ops  # noqa: F401  registers tremula::*
from tremula.ir.origin import ORIGIN
from tremula.ir.passes.recompute import recompute_remembered
from tremula.ir.step import CapturedStep
from tremula.poplar.target import Target

__all__ = ["BuiltProgram", "Schedule", "build_tile_program", "refuse_unsupported"]


def build_tile_program(
    step: CapturedStep,
    target: Target,
    schedule: Schedule,
    options: LoweringOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> BuiltProgram:
    """Lower a functional, decomposed step. `progress(done, total)` counts nodes."""
    refuse_unsupported(step)
    if schedule.is_pipelined:
        step = recompute_remembered(step, schedule.stage_of_block)
    builder = PipelineBuilder if schedule.is_pipelined else StepBuilder
    return builder(step, target, schedule, options or LoweringOptions()).build(progress)


def refuse_unsupported(step: CapturedStep) -> None:
    """One error that names every operation without a lowering, with module and line."""
    missing: dict[str, fx.Node] = {}
    for node in step.graph.nodes:
        if node.target is torch.ops.tremula.gradient.default:
            continue  # the builder itself reduces gradients
        if node.op == "call_function" and lowering_of(node) is None:
            missing.setdefault(overload_name(node.target), node)
    if not missing:
        return
    names = ", ".join(sorted(missing))
    lines = []
    for name, node in sorted(missing.items()):
        origin = node.meta.get(ORIGIN)
        where = f"{origin.module or 'the model'}, {origin.source}" if origin else "the model"
        lines.append(f"{name} in {where}")
    first = next(iter(missing.values())).meta.get(ORIGIN)
    raise UnsupportedOperations(
        f"Unsupported ops found in compiled model: [{names}]. Not all operations are supported yet"
        " by the tile program: " + "; ".join(lines),
        source=first.source if first else None,
        hint="write the model without them, or add a lowering (docs/lowering.md says how)",
    )
