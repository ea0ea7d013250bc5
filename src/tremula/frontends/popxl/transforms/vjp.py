"""The gradient of one operation, by PyTorch: which of its operands are needed, and how it runs."""

from dataclasses import dataclass

import torch
from torch._C._functorch import peek_interpreter_stack
from torch.autograd.graph import saved_tensors_hooks

from tremula.frontends.popxl.core.op import Op
from tremula.frontends.popxl.core.registry import OperationRow
from tremula.ir.fake_results import storage_of


@dataclass(frozen=True, eq=False)
class Forward:
    """An operation whose gradient is wanted, as its gradient needs to know it."""

    op: Op
    specs: tuple[tuple[tuple[int, ...], torch.dtype], ...]  # of its operands
    wanted: tuple[int, ...]  # operands whose gradients are requested
    saved: tuple[int, ...]  # operands that the gradient reads
    differentiated: tuple[int, ...]  # results whose gradients are there


def forward_of(op: Op, wanted: tuple[int, ...], differentiated: tuple[int, ...]) -> Forward:
    specs = tuple((t.shape, t.dtype.carrier) for t in op.inputs)
    return Forward(op, specs, wanted, _saved(op, wanted), differentiated)


_saved_operands: dict[tuple, tuple[int, ...]] = {}


def _saved(op: Op, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Operands that autograd keeps; all of them, if it keeps something that it computed."""
    try:
        key = (
            op.row, str(op.layout), wanted, tuple((t.shape, t.dtype) for t in op.inputs),
            str(op.attributes),
        )  # fmt: skip
        if key not in _saved_operands:
            _saved_operands[key] = _trace_saved(op, wanted)
        return _saved_operands[key]
    except TypeError:  # an attribute without a hash
        return _trace_saved(op, wanted)


def _trace_saved(op: Op, wanted: tuple[int, ...]) -> tuple[int, ...]:
    values = [torch.empty(t.shape, dtype=t.dtype.carrier, device="meta") for t in op.inputs]
    captured: list[torch.Tensor] = []

    def keep(t: torch.Tensor) -> torch.Tensor:
        captured.append(t)
        return t

    for i in wanted:
        values[i].requires_grad_()
    with torch.enable_grad(), saved_tensors_hooks(keep, lambda t: t):
        op.compute(values)
    owner = {storage_of(value): i for i, value in enumerate(values)}
    result = {owner.get(storage_of(t)) for t in captured if t.dim() or t.numel()}
    return (
        tuple(range(len(values)))
        if None in result
        else tuple(sorted(i for i in result if i is not None))
    )


def gradients(
    grads: list[torch.Tensor], saved: list[torch.Tensor], forward: Forward
) -> list[torch.Tensor]:
    """Gradients by the wanted operands, given those by some results."""
    values: list[torch.Tensor] = []
    device = grads[0].device
    captured = dict(zip(forward.saved, saved, strict=True))
    for i, (shape, carrier) in enumerate(forward.specs):
        value = captured.get(i)
        if value is None:  # its shape is all that counts
            value = torch.zeros((), dtype=carrier, device=device).expand(shape)
        values.append(value.detach())
    if peek_interpreter_stack() is not None:  # on all replicas at once
        return _pulled(grads, values, forward)
    with torch.enable_grad():
        for i in forward.wanted:
            values[i] = values[i].detach().requires_grad_()
        result = forward.op.compute(values)
        results = list(result) if isinstance(result, list | tuple) else [result]
        chosen = [results[i] for i in forward.differentiated]
        by = [values[i] for i in forward.wanted]
        made = torch.autograd.grad(chosen, by, grads, allow_unused=True)
    return [
        torch.zeros_like(value) if grad is None else grad
        for grad, value in zip(made, by, strict=True)
    ]


def _pulled(
    grads: list[torch.Tensor], values: list[torch.Tensor], forward: Forward
) -> list[torch.Tensor]:
    """Gradients inside of `torch.vmap`, where tensors cannot require gradients."""

    def chosen(*by: torch.Tensor) -> tuple[torch.Tensor, ...]:
        operands = list(values)
        for i, value in zip(forward.wanted, by, strict=True):
            operands[i] = value
        result = forward.op.compute(operands)
        results = list(result) if isinstance(result, list | tuple) else [result]
        return tuple(results[i] for i in forward.differentiated)

    result = torch.func.vjp(chosen, *(values[i] for i in forward.wanted))
    return list(result[1](tuple(grads)))


def gradient_row(op: Op) -> OperationRow:
    """The row of an operation's gradient."""
    return OperationRow(
        "", f"{op.kind}Grad", gradients, class_name=f"{op.row.class_name or op.kind}Grad"
    )
