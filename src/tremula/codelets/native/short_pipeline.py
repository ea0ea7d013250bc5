"""Numba's pipeline without the passes that generated kernels have no use for: `ShortPipeline`.

Most of the time that Numba takes for a kernel is spent in its passes over Python's code, not in
LLVM. Kernels are loops over numbers: no closures, `with` blocks, array expressions, literal
unrolling or overloads to inline. They are compiled to the same instructions without these passes,
and without the listing of types that Numba would store next to the machine code.
"""

from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core.compiler import CompilerBase, DefaultPassBuilder, StateDict
from numba.core.compiler_machinery import PassManager
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.untyped_passes import (
    DeadBranchPrune,
    FixupArgs,
    GenericRewrites,
    InlineInlinables,
    IRProcessing,
    ReconstructSSA,
    RewriteSemanticConstants,
    TranslateByteCode,
)

PASSES = (
    (TranslateByteCode, "analyzing bytecode"),
    (FixupArgs, "fix up args"),
    (IRProcessing, "processing IR"),
    (RewriteSemanticConstants, "rewrite semantic constants"),
    (DeadBranchPrune, "dead branch pruning"),
    (GenericRewrites, "nopython rewrites"),
    (InlineInlinables, "inline inlinable functions"),
    (ReconstructSSA, "ssa"),
    (NopythonTypeInference, "nopython frontend"),
    (PreLowerStripPhis, "remove phis nodes"),
    (IRLegalization, "ensure IR is legal prior to lowering"),
    (NativeLowering, "native lowering"),
    (NoPythonBackend, "nopython mode backend"),
)


class ShortPipeline(CompilerBase):
    """These passes; what they cannot compile goes through all of Numba's, with its errors."""

    def define_pipelines(self) -> list[PassManager]:
        short, complete = PassManager("short"), _SecondAttempt("nopython")
        for pass_class, description in PASSES:
            short.add_pass(pass_class, description)
        complete.passes.extend(DefaultPassBuilder.define_nopython_pipeline(self.state).passes)
        for pipeline in (short, complete):
            pipeline.finalize()
        return [short, complete]


class _SecondAttempt(PassManager):
    """Passes that run where others failed, whose error is not the function's."""

    def run(self, state: StateDict) -> None:
        state.status.fail_reason = None
        super().run(state)


def inner(**options: object) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` for functions that only kernels call: no entry for Python or C is compiled."""
    return njit(
        pipeline_class=ShortPipeline, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options
    )
