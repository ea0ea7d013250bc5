"""The passes over a captured step, in the order they run; each a function from step to step."""

from collections.abc import Callable

from tremula.ir.passes.clean import drop_dead, drop_identities, fold_constants, share_common
from tremula.ir.passes.decompose import decompose
from tremula.ir.passes.functionalise import functionalise, functionalise_spellings
from tremula.ir.passes.memory_shares import note_available_memory
from tremula.ir.passes.recompute import recompute_between_checkpoints
from tremula.ir.step import CapturedStep

Pass = Callable[[CapturedStep], CapturedStep]

# Both executions start from what these leave.
COMMON_PASSES: tuple[tuple[str, Pass], ...] = (
    ("functionalise", functionalise),
    ("note available memory", note_available_memory),
    ("drop identities", drop_identities),
    ("fold constants", fold_constants),
    ("share common subexpressions", share_common),
    ("drop dead nodes", drop_dead),
)

# These leave only operations that have a lowering.
SPELLING_PASSES: tuple[tuple[str, Pass], ...] = (
    ("decompose", decompose),
    ("functionalise decompositions", functionalise_spellings),
    ("drop identities", drop_identities),
    ("share common subexpressions", share_common),
    ("drop dead nodes", drop_dead),
)

# The tile program is lowered from what these leave; a pipeline recomputes by stages.
TILE_PASSES: tuple[tuple[str, Pass], ...] = (
    *SPELLING_PASSES,
    ("recompute between checkpoints", recompute_between_checkpoints),
)


def apply(step: CapturedStep, passes: tuple[tuple[str, Pass], ...]) -> CapturedStep:
    """Run passes in order; the graph is checked after each."""
    for _name, run in passes:
        step = run(step)
        step.graph.lint()
    return step
