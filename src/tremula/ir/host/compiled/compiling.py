"""A functional graph through Inductor, for arguments that need no memory yet."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, fx
from torch._guards import TracingContext
from torch._guards import tracing as tracing_context
from torch._subclasses.fake_tensor import FakeTensorMode

from tremula.ir.host.compiled.functions import with_strides
from tremula.ir.host.start_phases import start_phase

if TYPE_CHECKING:
    from torch._inductor.output_code import CompiledFxGraph

Run = Callable[[Sequence[Tensor]], Sequence[Tensor]]


def compile_graph(
    module: fx.GraphModule, args: Sequence[Tensor], choices: Mapping[str, bool]
) -> "tuple[Run, list[CompiledFxGraph]]":
    """The graph as a function, and what Inductor made of it.

    Arguments with other strides are copied first.
    """
    with start_phase("import Inductor"):
        from torch._functorch import config as functorch_config
        from torch._inductor import config
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    compiled: list[CompiledFxGraph] = []

    def inner(*args, **options) -> Any:  # noqa: ANN401
        compiled.append(compile_fx_inner(*args, **options))  # pyright: ignore[reportArgumentType] - no other kind
        return compiled[-1]

    mode, fakes = _fakes(args)
    # With PyTorch's other cache `inner` would not be called.
    whole = functorch_config.patch(enable_autograd_cache=False)
    with torch.no_grad(), config.patch(dict(choices)), whole, tracing_context(TracingContext(mode)):
        made = compile_fx(module, fakes, inner_compile=inner)
    assert callable(made), "a graph without other graphs in it is one function"
    strides = [x.stride() for x in args]
    return (lambda args: made(*with_strides(args, strides))), compiled  # pyright: ignore[reportArgumentType] - stubs


def _fakes(args: Sequence[Tensor]) -> tuple[FakeTensorMode, list[Tensor]]:
    """Tensors without memory; `args` may be such, too, of another mode."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # Inductor looks into its cache on disk only if shapes could be symbols.
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    with mode:
        fakes = [
            torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) for x in args
        ]
    return mode, fakes
