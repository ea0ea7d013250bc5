"""Numba's pipeline without the passes that generated kernels have no use for: `ShortPipeline`.

Most of the time that Numba takes for a kernel is spent in its passes over Python's code, not in
LLVM. Kernels are loops over numbers: no closures, `with` blocks, array expressions, literal
unrolling or overloads to inline. They are compiled to the same instructions without these passes,
and without the listing of types that Numba would store next to the machine code. What kernels call
most are intrinsics, a few dozen; which types one gives for which arguments is found out once.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal

from numba import njit
from numba.core import errors, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder, StateDict
from numba.core.compiler_machinery import PassManager, register_pass
from numba.core.typed_passes import (
    IRLegalization,
    NativeLowering,
    NoPythonBackend,
    NopythonTypeInference,
    PreLowerStripPhis,
)
from numba.core.typeinfer import TypeInferer
from numba.core.typing.templates import Signature, _IntrinsicTemplate
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

_signatures: dict[tuple[types.Type, tuple[types.Type, ...]], Signature] = {}


class _Inferer(TypeInferer):
    """Numba's type inference, which resolves each call several times."""

    def resolve_call(
        self, fnty: types.Type, pos_args: tuple[types.Type, ...], kw_args: dict[str, types.Type]
    ) -> Signature | None:
        if kw_args or not _is_intrinsic(fnty):
            return super().resolve_call(fnty, pos_args, kw_args)
        key = fnty, tuple(pos_args)
        signature = _signatures.get(key)
        if signature is None:
            signature = super().resolve_call(fnty, pos_args, kw_args)
            if signature is not None:
                _signatures[key] = signature
        return signature


def _is_intrinsic(function: types.Type) -> bool:
    """Whether its results' types follow from those of its arguments, whoever calls it."""
    return isinstance(function, types.Function) and _are_intrinsics(function.templates)


@cache
def _are_intrinsics(templates: tuple[type, ...]) -> bool:
    return all(issubclass(template, _IntrinsicTemplate) for template in templates)


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelTypeInference(NopythonTypeInference):
    """`type_inference_stage` of Numba with another inferer; kernels state no types of locals."""

    _name = "kernel_type_inference"

    def run_pass(self, state: StateDict) -> Literal[True]:
        function = state.func_ir
        warnings = errors.WarningsFixer(errors.NumbaWarning)  # pyright: ignore[reportAttributeAccessIssue]
        inferer = _Inferer(state.typingctx, function, warnings)
        parts = (state.targetctx.target, inferer, function.func_id, state.args)
        with state.typingctx.callstack.register(*parts), warnings:
            for i, (name, kind) in enumerate(zip(function.arg_names, state.args, strict=True)):
                inferer.seed_argument(name, i, kind)
            if state.return_type is not None:
                inferer.seed_return(state.return_type)
            inferer.build_constraint()
            inferer.propagate()
            state.typemap, state.return_type, state.calltypes = inferer.unify()
        return True


PASSES = (
    (TranslateByteCode, "analyzing bytecode"),
    (FixupArgs, "fix up args"),
    (IRProcessing, "processing IR"),
    (RewriteSemanticConstants, "rewrite semantic constants"),
    (DeadBranchPrune, "dead branch pruning"),
    (GenericRewrites, "nopython rewrites"),
    (InlineInlinables, "inline inlinable functions"),
    (ReconstructSSA, "ssa"),
    (KernelTypeInference, "nopython frontend"),
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
    return njit(  # pyright: ignore[reportCallIssue] - stubs name few of the options
        pipeline_class=ShortPipeline, no_cpython_wrapper=True, no_cfunc_wrapper=True, **options
    )
