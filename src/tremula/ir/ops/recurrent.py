"""LSTM, GRU and vanilla nets as whole operations: fused kernels on the host, loops on tiles.

A recorded model has two nodes per net, `recurrent` and `recurrent_backward`. On the host the first
runs PyTorch's own kernel with gradients on; what autograd kept hangs on the *tape*, an empty tensor
that the second takes. So nothing is computed twice, and the tape's memory ends with it. The
second also takes operands and results of the first: the tape may refer to them, so none may write
over them.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from tremula.ir.ops.tapes import kept_on, new_tape

_library = torch.library.Library("tremula", "FRAGMENT")
_CONFIGURATION = (
    "str kind, bool has_biases, int n_layers, bool bidirectional, bool batch_first, bool[] needs"
)
_library.define(
    f"recurrent(Tensor x, Tensor[] states, Tensor[] weights, {_CONFIGURATION})"
    " -> (Tensor, Tensor, Tensor, Tensor)"
)
_library.define(
    "recurrent_backward(Tensor? output_gradient, Tensor? state_gradient, Tensor? cell_gradient,"
    " Tensor tape, Tensor[] results, Tensor x, Tensor[] states, Tensor[] weights,"
    f" {_CONFIGURATION}) -> Tensor[]"
)
_AUTOGRAD = tuple(
    getattr(torch._C.DispatchKey, name)
    for name in ("AutogradFunctionality", "AutogradOther", "ADInplaceOrView")
)
KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _run(  # noqa: PLR0917 - one argument per setting of a net
    x: Tensor, states: list[Tensor], weights: list[Tensor], kind: str, has_biases: bool,
    n_layers: int, bidirectional: bool, batch_first: bool, needs: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Output, last states, last cells (of an LSTM, else empty), tape."""
    tensors = [x, *states, *weights]
    if any(needs) and torch._C._dispatch_tls_is_dispatch_key_excluded(_AUTOGRAD[0]):
        tensors = _kept_from_the_compiler(x, states, weights)
    with _autograd_is_heard(), torch.set_grad_enabled(any(needs)):
        leaves = [t.detach().requires_grad_(need) for t, need in zip(tensors, needs, strict=True)]
        of_states = leaves[1 : 1 + len(states)]
        results = getattr(torch._VF, kind)(
            leaves[0], of_states if kind == "lstm" else of_states[0], leaves[1 + len(states) :],
            has_biases, n_layers, 0.0, any(needs), bidirectional, batch_first,
        )  # fmt: skip
    saved = (results, [leaf for leaf in leaves if leaf.requires_grad]) if any(needs) else None
    tape = new_tape(x, saved)
    detached = [r.detach() for r in results]
    return (*detached, tape) if kind == "lstm" else (*detached, x.new_empty(0), tape)


def _autograd_is_heard() -> AbstractContextManager:
    """Compiled code runs below autograd, which the taped pass needs again."""
    excluded = torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOGRAD:
        excluded = excluded.remove(key)
    return torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), excluded)


def _kept_from_the_compiler(x: Tensor, states: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    """Copies of operands whose memory compiled code may use again before the gradient is taken.

    Weights in one piece of memory are a model's own, and cuDNN wants them that way.
    """
    is_flat = len({w.untyped_storage().data_ptr() for w in weights}) == 1
    return [
        x.clone(),
        *(s.clone() for s in states),
        *(w if is_flat else w.clone() for w in weights),
    ]


def _run_backward(
    output_gradient: Tensor | None, state_gradient: Tensor | None, cell_gradient: Tensor | None,
    tape: Tensor, *_configuration: object,
) -> list[Tensor]:  # fmt: skip
    """Gradients of what `needs` named, in its order."""
    results, leaves = kept_on(tape)
    gradients = (output_gradient, state_gradient, cell_gradient)
    pairs = [(r, g) for r, g in zip(results, gradients, strict=False) if g is not None]
    result = torch.autograd.grad(
        [r for r, _ in pairs], leaves, [g for _, g in pairs], retain_graph=True, allow_unused=True
    )  # a model may differentiate the same pass twice; the tape frees it all
    return [_laid_like(v, g) for g, v in zip(result, leaves, strict=True)]


def _laid_like(value: Tensor, gradient: Tensor | None) -> Tensor:
    """A gradient in the memory order of its value, as the recorded model expects it."""
    if gradient is None:
        return torch.zeros_like(value)
    if gradient.stride() == value.stride():
        return gradient
    return torch.empty_like(value).copy_(gradient)


def _shapes(  # noqa: PLR0917
    x: Tensor, states: list[Tensor], weights: list[Tensor], kind: str, has_biases: bool,  # noqa: ARG001
    n_layers: int, bidirectional: bool, batch_first: bool, needs: list[bool],  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    n_out = states[0].shape[-1] * (2 if bidirectional else 1)
    # Batch first is a view: in memory steps come first, always.
    first, second = x.shape[:2]
    if batch_first:
        output = x.new_empty((second, first, n_out)).transpose(0, 1)
    else:
        output = x.new_empty((first, second, n_out))
    cells = torch.empty_like(states[1]) if kind == "lstm" else x.new_empty(0)
    return output, torch.empty_like(states[0]), cells, x.new_empty(0)


def _backward_shapes(*arguments) -> list[Tensor]:
    x, states, weights = arguments[5:8]
    tensors, needs = [x, *states, *weights], arguments[-1]
    return [torch.empty_like(t) for t, need in zip(tensors, needs, strict=True) if need]


_library.impl("recurrent", _run, "CompositeExplicitAutograd")
_library.impl("recurrent_backward", _run_backward, "CompositeExplicitAutograd")
torch.library.register_fake("tremula::recurrent", _shapes, lib=_library)
torch.library.register_fake("tremula::recurrent_backward", _backward_shapes, lib=_library)


class _Recurrent(torch.autograd.Function):
    """Ties the two operations together while a model is recorded."""

    @staticmethod
    def forward(ctx: Any, n_states: int, how: tuple, *tensors: Tensor) -> tuple[Tensor, ...]:  # noqa: ANN401 - as torch types it
        x, states, weights = tensors[0], tensors[1 : 1 + n_states], tensors[1 + n_states :]
        *results, tape = torch.ops.tremula.recurrent(x, list(states), list(weights), *how)
        ctx.n_states, ctx.how = n_states, how
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(tape, *results, *tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:  # noqa: ANN401
        tape, *results, x = ctx.saved_tensors[:5]
        rest = ctx.saved_tensors[5:]
        states, weights = rest[: ctx.n_states], rest[ctx.n_states :]
        needs = ctx.how[-1]
        if all(g is None for g in gradients):
            return (None,) * (2 + len(needs))
        operands = (tape, results, x, states, weights)
        result = iter(torch.ops.tremula.recurrent_backward(*gradients, *operands, *ctx.how))
        return (None, None, *(next(result) if need else None for need in needs))


def is_recurrent(func: Callable, args: tuple) -> bool:
    """Whether a call runs a net over equally long sequences, without projections."""
    if getattr(func, "__name__", "") not in KINDS or len(args) != 9:
        return False
    x, states, weights = args[:3]
    if func.__name__ == "lstm" and isinstance(states, Tensor):
        return False  # packed sequences: the second argument is their batch sizes
    if not isinstance(weights, list | tuple) or x.dim() != 3:
        return False
    n_gates = {"lstm": 4, "gru": 3}.get(func.__name__, 1)
    return weights[1].shape[0] == n_gates * weights[1].shape[1]  # else outputs are projected


def record(func: Callable, args: tuple) -> tuple[Tensor, ...]:
    """A net's call as whole operations; layers with dropout between them are one each."""
    x, states, weights, has_biases, n_layers, dropout, training, bidirectional, batch_first = args
    states = [states] if isinstance(states, Tensor) else list(states)
    states, weights = ([t.to(x.dtype) for t in tensors] for tensors in (states, weights))
    if not (dropout and training and n_layers > 1):
        return call(
            func.__name__, x, states, weights, has_biases, n_layers, bidirectional, batch_first
        )
    n_ways, each = (2 if bidirectional else 1), len(weights) // n_layers
    last = []
    for layer in range(n_layers):
        if layer:
            x = torch.dropout(x, dropout, True)
        of_layer = [s[layer * n_ways : (layer + 1) * n_ways] for s in states]
        part = weights[layer * each : (layer + 1) * each]
        x, *ends = call(func.__name__, x, of_layer, part, has_biases, 1, bidirectional, batch_first)
        last.append(ends)
    return (x, *(torch.cat(ends) for ends in zip(*last, strict=True)))


def call(  # noqa: PLR0917 - one argument per setting of a net
    kind: str, x: Tensor, states: list[Tensor], weights: list[Tensor], has_biases: bool,
    n_layers: int, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    tensors = (x, *states, *weights)
    needs = [torch.is_grad_enabled() and t.requires_grad for t in tensors]
    how = (kind, has_biases, n_layers, bidirectional, batch_first, needs)
    if any(needs):
        results = _Recurrent.apply(len(states), how, *tensors)
    else:
        results = torch.ops.tremula.recurrent(x, states, weights, *how)[:3]
    return tuple(results[: 1 + len(states)])
