"""Weight updates in place on the host, as fast as PyTorch's fused kernels are.

Which path is taken, and where its hyperparameters come from:

* *fused* (SGD, Adam, AdamW in one dtype): one native call per group. On a CPU all hyperparameters
  are taken from `hyper_floats`. On a GPU the learning rate and the loss scaling are read from
  `hyper_tensors` on the device, so they may change between launches of a captured CUDA graph; the
  others are floats that a capture stores: `UpdateRule.must_recapture` says when they differ.
* *foreach* (RMSprop in one dtype): as fused, with PyTorch's list operations.
* *generated* (`fused`, on a GPU): one kernel for all weights of a group, made from the formula, in
  whatever dtypes weights, gradients and states have. It takes hyperparameters from `hyper_tensors`.
* *copied* (LAMB, rules of other front ends, damped SGD, weights and states of different dtypes, or
  `hyper_floats` None): the functional update, whose results are copied into place. On a GPU it
  takes all hyperparameters from `hyper_tensors`, so a capture stores none.

No path waits for the device or reads from it. Gradients may be overwritten.
"""

# PyTorch's list operations have private names, and stubs that know floats only.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false, reportCallIssue=false

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tremula.ir.optim.grouped_rule import GroupedRule, ParameterGroup
from tremula.ir.optim.rule import Number, UpdateRule


@dataclass(frozen=True, slots=True)
class _GroupUpdate:
    """Weights that are updated with the same hyperparameters, and what their update needs."""

    kind: str  # of the formula
    group: ParameterGroup
    params: list[Tensor]
    grads: list[Tensor]
    states: dict[str, list[Tensor]]
    hyper: dict[str, Number]
    divisor: Tensor | None  # of the gradients

    @property
    def is_tensorflows(self) -> bool:
        return self.kind == "rmsprop_tf"


def update_in_place(
    rule: UpdateRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper_tensors: Sequence[Tensor] | None,
    hyper_floats: Sequence[float] | None,
    fused: Callable[..., bool] | None = None,
) -> None:
    """Update weights and states in place, without recording gradients.

    `fused(params, grads, states, hyper_tensors)` updates what PyTorch has no kernel for; it returns
    False if it cannot.
    """
    if not params:
        return
    is_on_cpu = params[0].device.type == "cpu"
    hyper = _hyper_for(rule, is_on_cpu, hyper_tensors, hyper_floats)
    with torch.no_grad():
        if (
            isinstance(rule, GroupedRule)
            and hyper_floats is not None
            and _is_uniform(rule, params, grads, states, hyper)
        ):
            grads = [laid_out_like(grad, param) for grad, param in zip(grads, params, strict=True)]
            _update_uniform(rule, params, grads, states, hyper)
        elif fused is None or not fused(params, grads, states, hyper_tensors):
            on_device = hyper if is_on_cpu else hyper_tensors or hyper
            _update_copied(rule, params, grads, states, on_device)


def _hyper_for(
    rule: UpdateRule,
    is_on_cpu: bool,
    hyper_tensors: Sequence[Tensor] | None,
    hyper_floats: Sequence[float] | None,
) -> Sequence[Number]:
    """Floats where they suffice; tensors for what may change without another capture."""
    if hyper_floats is None:
        assert hyper_tensors is not None, "an update needs hyperparameters, as floats or tensors"
        return hyper_tensors
    if is_on_cpu or hyper_tensors is None:
        return hyper_floats
    return [
        tensor if name.startswith(("lr_group", "loss_scaling")) else value
        for name, tensor, value in zip(rule.hyper_names, hyper_tensors, hyper_floats, strict=True)
    ]


def _is_uniform(
    rule: GroupedRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> bool:
    """True if native list operations exist for this formula, its hyperparameters and dtypes."""
    kind = rule.formula.kind
    if kind not in _UNIFORM or (kind == "sgd" and not _is_plain_sgd(rule, hyper)):
        return False
    dtype = params[0].dtype
    if kind == "sgd" and params[0].device.type == "cpu" and dtype.itemsize < 4:
        return False  # PyTorch's fused SGD does not update halves on a CPU
    return all(t.dtype == dtype for ts in (params, grads) for t in ts) and all(
        state.dtype == dtype or slot.is_step for state, slot in zip(states, rule.slots, strict=True)
    )


def _is_plain_sgd(rule: GroupedRule, hyper: Sequence[Number]) -> bool:
    """True without dampening, and if velocities have momentum: fused kernels skip others."""
    momentums = [rule.hyperparameters(g, hyper)["momentum"] for g in range(rule.n_groups)]
    has_idle_velocity = "Accl1" in rule.positions and any(m == 0 for m in momentums)
    return "Step" not in rule.positions and not has_idle_velocity


def laid_out_like(grad: Tensor, param: Tensor) -> Tensor:
    """The gradient with its weight's strides: fused kernels assume equal strides."""
    if grad.stride() == param.stride():
        return grad
    return torch.empty_like(param, dtype=grad.dtype).copy_(grad)


def _update_uniform(
    rule: GroupedRule,
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> None:
    divisor = rule.gradient_divisor(grads, hyper, norm_of_gradients)
    if divisor is not None and not isinstance(divisor, Tensor):
        divisor = torch.full((), divisor, dtype=torch.float32, device=params[0].device)
    kind = rule.formula.kind
    for number, group in enumerate(rule.groups):
        members = rule.members_of(number)
        if not members:
            continue
        # The weights of a group all have the same kinds of state.
        states_of_group = {
            prefix: [states[of_param[i]] for i in members]
            for prefix, of_param in rule.positions.items()
            if members[0] in of_param
        }
        tensors = ([ts[i] for i in members] for ts in (params, grads))
        by_name = rule.hyperparameters(number, hyper)
        _UNIFORM[kind](_GroupUpdate(kind, group, *tensors, states_of_group, by_name, divisor))


def norm_of_gradients(grads: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all gradients together, in float32, by a few launches."""
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


def _sgd_(update: _GroupUpdate) -> None:
    velocities = update.states.get("Accl1", [])
    torch._fused_sgd_(
        update.params,
        update.grads,
        velocities,
        weight_decay=update.hyper["weight_decay"],
        momentum=update.hyper["momentum"] if velocities else 0.0,
        lr=update.hyper["lr"],
        dampening=0.0,
        nesterov=update.group.nesterov,
        maximize=update.group.maximize,
        is_first_step=False,  # velocities start at 0, so that without dampening all steps are alike
        grad_scale=update.divisor,
    )


def _adam_(update: _GroupUpdate) -> None:
    fused = torch._fused_adamw_ if update.kind == "adamw" else torch._fused_adam_
    steps = update.states["Step"]
    torch._foreach_add_(steps, 1.0)
    fused(
        update.params,
        update.grads,
        update.states["Accl1"],
        update.states["Accl2"],
        [],
        steps,
        lr=update.hyper["lr"],
        beta1=update.hyper["beta1"],
        beta2=update.hyper["beta2"],
        weight_decay=update.hyper["weight_decay"],
        eps=update.hyper["eps"],
        amsgrad=False,
        maximize=update.group.maximize,
        grad_scale=update.divisor,
    )


def _rmsprop_(update: _GroupUpdate) -> None:
    if update.divisor is not None:
        torch._foreach_div_(update.grads, update.divisor)
    if update.group.maximize:
        torch._foreach_neg_(update.grads)
    if update.hyper["weight_decay"] != 0:
        torch._foreach_add_(update.grads, update.params, alpha=update.hyper["weight_decay"])
    deviations = _deviations_(update)
    velocities, lr = update.states.get("Accl3"), update.hyper["lr"]
    if update.is_tensorflows or isinstance(lr, Tensor):
        _apply_rmsprop_(update, torch._foreach_div(update.grads, deviations))
    elif velocities:
        torch._foreach_mul_(velocities, update.hyper["momentum"])
        torch._foreach_addcdiv_(velocities, update.grads, deviations)
        torch._foreach_add_(update.params, velocities, alpha=-lr)
    else:
        torch._foreach_addcdiv_(update.params, update.grads, deviations, value=-lr)


def _deviations_(update: _GroupUpdate) -> list[Tensor]:
    """Update the mean square (and mean); what each gradient is then divided by."""
    squares, rest = update.states["Accl1"], 1 - update.hyper["alpha"]
    torch._foreach_mul_(squares, update.hyper["alpha"])
    torch._foreach_addcmul_(squares, update.grads, update.grads, value=rest)
    variances = squares
    if "Accl2" in update.states:
        means = update.states["Accl2"]
        torch._foreach_lerp_(means, update.grads, rest)
        variances = torch._foreach_addcmul(squares, means, means, value=-1.0)
    if update.is_tensorflows:
        return list(torch._foreach_sqrt(torch._foreach_add(variances, update.hyper["eps"])))
    return list(torch._foreach_add(torch._foreach_sqrt(variances), update.hyper["eps"]))


def _apply_rmsprop_(update: _GroupUpdate, changes: Sequence[Tensor]) -> None:
    """Subtract the changes from the weights, where lr is on a device or inside the velocity."""
    changes, velocities = list(changes), update.states.get("Accl3")
    if update.is_tensorflows:
        torch._foreach_mul_(changes, update.hyper["lr"])
    if velocities:
        torch._foreach_mul_(velocities, update.hyper["momentum"])
        torch._foreach_add_(velocities, changes)
        changes = velocities
    if not update.is_tensorflows:
        changes = torch._foreach_mul(changes, update.hyper["lr"])
    torch._foreach_sub_(update.params, changes)


_UNIFORM = {
    "sgd": _sgd_,
    "adam": _adam_,
    "adamw": _adam_,
    "rmsprop": _rmsprop_,
    "rmsprop_tf": _rmsprop_,
}
