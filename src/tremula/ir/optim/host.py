"""Weight updates in place on the host's own processors, as fast as PyTorch's fused kernels are.

Which path is taken, and where its numbers come from:

* *fused* (SGD, Adam, AdamW in one dtype): one native call per group. On a CPU every number is taken
  from `hyper_floats`. On a GPU the learning rate and the loss scaling are read from
  `hyper_tensors` on the device, so they may change between launches of a captured CUDA graph; the
  other numbers are floats that a capture keeps: `UpdateRule.must_recapture` says when they differ.
* *foreach* (RMSprop in one dtype): the same, with PyTorch's list operations.
* *copied* (LAMB, rules of other front ends, damped SGD, weights and states of different dtypes, or
  `hyper_floats` None): the functional update, whose results are copied into place. On a GPU it
  takes all numbers from `hyper_tensors`, so a capture keeps none.

No path waits for the device or reads from it. Gradients may be overwritten.
"""

# PyTorch's list operations have private names, and stubs that know floats only.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false, reportCallIssue=false

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.ir.optim.math import Number
from tremula.ir.optim.rules import UpdateRule


@dataclass(frozen=True, slots=True)
class _Group:
    """Weights that are updated with the same numbers, and what their update needs."""

    rule: UpdateRule
    number: int
    params: list[Tensor]
    grads: list[Tensor]
    states: dict[str, list[Tensor]]
    numbers: dict[str, Number]
    divisor: Tensor | None  # of the gradients

    @property
    def maximizes(self) -> bool:
        return self.rule.maximize[self.number]


def update_in_place(
    rule: UpdateRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper_tensors: Sequence[Tensor] | None,
    hyper_floats: Sequence[float] | None,
) -> None:
    """Update weights and states in place, without recording gradients."""
    if not params:
        return
    is_on_cpu = params[0].device.type == "cpu"
    hyper = _hyper_for(rule, is_on_cpu, hyper_tensors, hyper_floats)
    with torch.no_grad():
        if hyper_floats is not None and _is_uniform(rule, params, grads, states, hyper):
            grads = [_laid_out_like(grad, param) for grad, param in zip(grads, params, strict=True)]
            _update_uniform(rule, params, grads, states, hyper)
        else:
            on_device = hyper if is_on_cpu else hyper_tensors or hyper
            _update_copied(rule, params, grads, states, on_device)


def _hyper_for(
    rule: UpdateRule,
    is_on_cpu: bool,
    hyper_tensors: Sequence[Tensor] | None,
    hyper_floats: Sequence[float] | None,
) -> Sequence[Number]:
    """Floats where they suffice; tensors for numbers that may change without another capture."""
    if hyper_floats is None:
        assert hyper_tensors is not None, "an update needs its numbers, as floats or as tensors"
        return hyper_tensors
    if is_on_cpu or hyper_tensors is None:
        return hyper_floats
    return [
        tensor if name.startswith(("lr_group", "loss_scaling")) else number
        for name, tensor, number in zip(rule.hyper_names, hyper_tensors, hyper_floats, strict=True)
    ]


def _is_uniform(
    rule: UpdateRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> bool:
    """True if native list operations exist for this rule, these numbers and these dtypes."""
    if rule.kind not in _UNIFORM or (rule.kind == "sgd" and not _is_plain_sgd(rule, hyper)):
        return False
    dtype = params[0].dtype
    if rule.kind == "sgd" and params[0].device.type == "cpu" and dtype.itemsize < 4:
        return False  # PyTorch's fused SGD does not update halves on a CPU
    return all(t.dtype == dtype for ts in (params, grads) for t in ts) and all(
        state.dtype == dtype or slot.is_step for state, slot in zip(states, rule.slots, strict=True)
    )


def _is_plain_sgd(rule: UpdateRule, hyper: Sequence[Number]) -> bool:
    """True without dampening, and if velocities have momentum: fused kernels skip others."""
    momentums = [rule.numbers_of(g, hyper)["momentum"] for g in range(rule.n_groups)]
    has_idle_velocity = "Accl1" in rule.positions and any(m == 0 for m in momentums)
    return "Step" not in rule.positions and not has_idle_velocity


def _laid_out_like(grad: Tensor, param: Tensor) -> Tensor:
    """The gradient with its weight's strides: fused kernels assume equal strides."""
    if grad.stride() == param.stride():
        return grad
    return torch.empty_like(param).copy_(grad)


def _update_uniform(
    rule: UpdateRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> None:
    divisor = rule.gradient_divisor(grads, hyper, _norm_of_all)
    if divisor is not None and not isinstance(divisor, Tensor):
        divisor = torch.full((), divisor, dtype=torch.float32, device=params[0].device)
    for group in range(rule.n_groups):
        members = rule.members_of(group)
        if not members:
            continue
        # The weights of a group all have the same kinds of state.
        own_states = {
            prefix: [states[of_param[i]] for i in members]
            for prefix, of_param in rule.positions.items()
            if members[0] in of_param
        }
        own_params, own_grads = ([ts[i] for i in members] for ts in (params, grads))
        numbers = rule.numbers_of(group, hyper)
        _UNIFORM[rule.kind](
            _Group(rule, group, own_params, own_grads, own_states, numbers, divisor)
        )


def _norm_of_all(grads: Sequence[Tensor]) -> Tensor:
    norms = torch._foreach_norm(list(grads), 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack(norms))


def _update_copied(
    rule: UpdateRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> None:
    new_params, new_states = rule.update(params, grads, states, hyper)
    torch._foreach_copy_(list(params), new_params)
    if states:
        torch._foreach_copy_(list(states), new_states)


def _sgd_(group: _Group) -> None:
    velocities = group.states.get("Accl1", [])
    torch._fused_sgd_(
        group.params,
        group.grads,
        velocities,
        weight_decay=group.numbers["weight_decay"],
        momentum=group.numbers["momentum"] if velocities else 0.0,
        lr=group.numbers["lr"],
        dampening=0.0,
        nesterov=group.rule.nesterov[group.number],
        maximize=group.maximizes,
        is_first_step=False,  # velocities start at 0, so that without dampening all steps are alike
        grad_scale=group.divisor,
    )


def _adam_(group: _Group) -> None:
    fused = torch._fused_adamw_ if group.rule.kind == "adamw" else torch._fused_adam_
    steps = group.states["Step"]
    torch._foreach_add_(steps, 1.0)
    fused(
        group.params,
        group.grads,
        group.states["Accl1"],
        group.states["Accl2"],
        [],
        steps,
        lr=group.numbers["lr"],
        beta1=group.numbers["beta1"],
        beta2=group.numbers["beta2"],
        weight_decay=group.numbers["weight_decay"],
        eps=group.numbers["eps"],
        amsgrad=False,
        maximize=group.maximizes,
        grad_scale=group.divisor,
    )


def _rmsprop_(group: _Group) -> None:
    if group.divisor is not None:
        torch._foreach_div_(group.grads, group.divisor)
    if group.maximizes:
        torch._foreach_neg_(group.grads)
    if group.numbers["weight_decay"] != 0:
        torch._foreach_add_(group.grads, group.params, alpha=group.numbers["weight_decay"])
    deviations = _deviations_(group)
    velocities, lr = group.states.get("Accl3"), group.numbers["lr"]
    if group.rule.facts.use_tf_variant or isinstance(lr, Tensor):
        _apply_rmsprop_(group, torch._foreach_div(group.grads, deviations))
    elif velocities:
        torch._foreach_mul_(velocities, group.numbers["momentum"])
        torch._foreach_addcdiv_(velocities, group.grads, deviations)
        torch._foreach_add_(group.params, velocities, alpha=-lr)
    else:
        torch._foreach_addcdiv_(group.params, group.grads, deviations, value=-lr)


def _deviations_(group: _Group) -> list[Tensor]:
    """Update the mean square (and mean); what each gradient is then divided by."""
    squares, rest = group.states["Accl1"], 1 - group.numbers["alpha"]
    torch._foreach_mul_(squares, group.numbers["alpha"])
    torch._foreach_addcmul_(squares, group.grads, group.grads, value=rest)
    variances = squares
    if group.rule.facts.centered:
        means = group.states["Accl2"]
        torch._foreach_lerp_(means, group.grads, rest)
        variances = torch._foreach_addcmul(squares, means, means, value=-1.0)
    if group.rule.facts.use_tf_variant:
        return list(torch._foreach_sqrt(torch._foreach_add(variances, group.numbers["eps"])))
    return list(torch._foreach_add(torch._foreach_sqrt(variances), group.numbers["eps"]))


def _apply_rmsprop_(group: _Group, changes: Sequence[Tensor]) -> None:
    """Subtract the changes from the weights, where lr is on a device or inside the velocity."""
    changes, velocities = list(changes), group.states.get("Accl3")
    if group.rule.facts.use_tf_variant:
        torch._foreach_mul_(changes, group.numbers["lr"])
    if velocities:
        torch._foreach_mul_(velocities, group.numbers["momentum"])
        torch._foreach_add_(velocities, changes)
        changes = velocities
    if not group.rule.facts.use_tf_variant:
        changes = torch._foreach_mul(changes, group.numbers["lr"])
    torch._foreach_sub_(group.params, changes)


_UNIFORM = {"sgd": _sgd_, "adam": _adam_, "adamw": _adam_, "rmsprop": _rmsprop_}
