"""The passes over a captured step, in the order they run; each a function from step to step.

recorded ── COMMON_PASSES ──┬── tile_passes() ──► lowered to tiles
└── HOST_PASSES ────► run on this computer
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tremula.base.passes import run_passes
from tremula.ir.graphs import check_order
from tremula.ir.locations import Location, Phases
from tremula.ir.passes.clean import drop_dead, drop_identities, fold_constants, share_common
from tremula.ir.passes.decompose import decompose
from tremula.ir.passes.early_gradients import mark_gradients_early
from tremula.ir.passes.functionalise import functionalise, functionalise_decompositions
from tremula.ir.passes.memory_shares import note_available_memory
from tremula.ir.passes.offload_activations import (
    by_direction,
    leave_chip,
    part_of_phase,
    part_of_stage,
)
from tremula.ir.passes.recompute import (
    recompute_between_checkpoints,
    recompute_by_mode,
    recompute_remembered,
    recompute_stages,
)
from tremula.ir.passes.shard_update import Shards, shard_update
from tremula.ir.passes.split import drop_markers, micro_batch_part
from tremula.ir.passes.table_gradients import add_rows_in_place
from tremula.ir.passes.transpose_gradients import transpose_gradients
from tremula.ir.step import CapturedStep
from tremula.ir.text import step_text

Pass = Callable[[CapturedStep], CapturedStep]
Passes = tuple[tuple[str, Pass], ...]

# Both executions start from what these leave.
COMMON_PASSES: Passes = (
    ("functionalise", functionalise),
    ("note available memory", note_available_memory),
    ("drop identities", drop_identities),
    ("fold constants", fold_constants),
    ("share common subexpressions", share_common),
    ("drop dead nodes", drop_dead),
)

# The host runs what these leave, per micro-batch; each backend then adds its own passes.
HOST_PASSES: Passes = (
    ("keep the micro-batch part", micro_batch_part),
    ("drop markers", drop_markers),
)


def tile_passes(
    stage_of_block: Sequence[int] = (),
    recomputed_stages: Sequence[int] = (),
    activations: Location | None = None,
    shards: Shards | None = None,
    recomputation: str | None = None,
    phases: Phases | None = None,
) -> Passes:
    """These leave only operations that have a lowering.

    `stage_of_block` is the pipeline stage of each block, empty without a pipeline. Of
    `recomputed_stages`, which has the same form, the backward pass computes all values again.
    `activations` says which forward values wait for the backward pass off the chip, `shards` which
    weights are sharded over replicas, `recomputation` (without a pipeline) how
    values that the backward pass computes again are chosen, `phases` when others leave the chip.
    """
    # Stages of a pipeline add up their own parts of a gradient; phases keep to their order.
    is_in_one_go = not stage_of_block and not (phases is not None and phases.of_block)
    between = partial(recompute_between_checkpoints, stage_of_block=stage_of_block)
    stages = partial(recompute_stages, stage_of_block=recomputed_stages)
    remembered = partial(recompute_remembered, stage_of_block=stage_of_block)
    passes: Passes = (
        ("decompose", decompose),
        ("functionalise decompositions", functionalise_decompositions),
        ("drop identities", drop_identities),
        ("share common subexpressions", share_common),
        *((("add rows in place", add_rows_in_place),) if is_in_one_go else ()),
        ("transpose gradients", transpose_gradients),
        ("mark gradients early", mark_gradients_early),
        ("drop dead nodes", drop_dead),
        ("recompute between checkpoints", between),
        ("recompute stages", stages),
        ("recompute what lowerings remember", remembered),
    )
    if recomputation is not None and not stage_of_block:
        by_mode = partial(recompute_by_mode, mode=recomputation)
        passes = (*passes, (f"recompute ({recomputation})", by_mode))
    if shards is not None and shards.updated:
        passes = (*passes, ("shard updates", partial(shard_update, shards=shards)))
    leave = _leaving(activations or Location(), stage_of_block, phases or Phases())
    return passes if leave is None else (*passes, ("leave the chip", leave))


def _leaving(activations: Location, stage_of_block: Sequence[int], phases: Phases) -> Pass | None:
    """The pass that sends activations away, if any leave."""
    if phases.leaves_after_forward or phases.leaves_after_each:
        return partial(
            leave_chip,
            leaves=replace(activations, is_off_chip=True).leaves,
            part_of=partial(part_of_phase, phases),
            only_for_backward=not phases.leaves_after_each,
        )
    if not activations.is_off_chip:
        return None
    # Between stages of a pipeline values wait in rings, on or off the chip.
    is_pipeline = len(set(stage_of_block)) > 1
    parts = partial(part_of_stage, stage_of_block) if is_pipeline else by_direction
    return partial(leave_chip, leaves=activations.leaves, part_of=parts)


TILE_PASSES = tile_passes()  # of a step that is not a pipeline


def apply(step: CapturedStep, passes: Passes, stage: str = "step") -> CapturedStep:
    """Run passes in order, watched as those of `stage`; the graph is checked after each."""
    step = run_passes(stage, [(name, _checked(run)) for name, run in passes], step, step_text)
    step.graph.lint()
    return step


def _checked(run: Pass) -> Pass:
    def run_and_check(step: CapturedStep) -> CapturedStep:
        step = run(step)
        check_order(step.graph)
        return step

    return run_and_check
