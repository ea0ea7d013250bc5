"""Where the operations of a recorded pipeline run: their chips and stages."""

from torch import fx

from tremula.frontends.keras.enums import PipelineSchedule
from tremula.frontends.keras.errors import refuse
from tremula.frontends.keras.pipelines.pipeline import Pipeline
from tremula.ir.origin import FORWARD, ORIGIN
from tremula.ir.placement import Places
from tremula.ir.step import CapturedStep

_STRIDES = {PipelineSchedule.Grouped: 1, PipelineSchedule.Interleaved: 2}


def places_of(pipeline: Pipeline, step: CapturedStep) -> Places:
    """Chip and stage of each block of a step; raises if a stage reads from a later one."""
    of_block = [int(block.user_id) for block in step.blocks]
    _check_order(step, of_block)
    chips = pipeline.chips
    chip_of_block = tuple(chips[stage] for stage in of_block)
    if not pipeline.is_overlapped:
        return Places(chip_of_block)
    runs = _runs(chips, sorted(set(of_block)))
    stages = tuple(runs[stage] for stage in of_block)
    return Places(chip_of_block, stages, _STRIDES[pipeline.options.schedule])


def _runs(chips: dict[int, int], stages: list[int]) -> dict[int, int]:
    """Stages that follow each other on one chip run as one."""
    result: dict[int, int] = {}
    for before, stage in zip([None, *stages], stages, strict=False):
        if before is None:
            result[stage] = 0
        else:
            result[stage] = result[before] + (chips[stage] != chips[before])
    return result


def _check_order(step: CapturedStep, stage_of_block: list[int]) -> None:
    for node in step.graph.nodes:
        own = _forward_stage(node, stage_of_block)
        for source in node.all_input_nodes if own is not None else ():
            made_in = _forward_stage(source, stage_of_block)
            if own is not None and made_in is not None and made_in > own:
                raise refuse(
                    f"layer {node.meta[ORIGIN].module!r} of pipeline stage {own} reads what"
                    f" {source.meta[ORIGIN].module!r} of the later stage {made_in} computes.",
                    hint="number stages in the order in which the model runs its layers",
                )


def _forward_stage(node: fx.Node, stage_of_block: list[int]) -> int | None:
    origin = node.meta.get(ORIGIN)
    if node.op != "call_function" or origin is None or origin.phase != FORWARD:
        return None
    return None if origin.block is None else stage_of_block[origin.block]
