"""Weight updates in place on the host's own processors, as fast as PyTorch's fused kernels are.

Which way is taken, and where its numbers come from:

* *fused* (SGD, Adam, AdamW in one dtype): one native call per group. On a CPU every number is taken
  from `hyper_floats`. On a GPU the learning rate and the loss scaling are read from
  `hyper_tensors` on the device, so they may change between launches of a captured CUDA graph; the
  other numbers are floats that a capture keeps: `UpdateRule.must_recapture` says when they differ.
* *foreach* (RMSprop in one dtype): the same, with PyTorch's list operations.
* *copied* (LAMB, damped SGD, weights and states of different dtypes, or `hyper_floats` None): the
  functional update, whose results are copied into place. On a GPU it takes all numbers from
  `hyper_tensors`, so a capture keeps none.

No way waits for the device or reads from it. Gradients may be overwritten.
"""

# PyTorch's list operations have private names, and stubs that know floats only.
# pyright: reportPrivateImportUsage=false, reportArgumentType=false, reportCallIssue=false

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tremula.ir.update_math import Number

if TYPE_CHECKING:
    from tremula.ir.update_rules import UpdateRule


def update_in_place(
    rule: "UpdateRule",
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
    rule: "UpdateRule",
    is_on_cpu: bool,
    hyper_tensors: Sequence[Tensor] | None,
    hyper_floats: Sequence[float] | None,
) -> Sequence[Number]:
    """Floats where they are as good; tensors for what may change without another capture."""
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
    rule: "UpdateRule",
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> bool:
    """True if native list operations exist for this rule, these numbers and these dtypes."""
    if rule.kind == "lamb" or (rule.kind == "sgd" and not _is_plain_sgd(rule, hyper)):
        return False
    dtype = params[0].dtype
    if rule.kind == "sgd" and params[0].device.type == "cpu" and dtype.itemsize < 4:
        return False  # PyTorch's fused SGD leaves halves on a CPU as they are
    return all(t.dtype == dtype for ts in (params, grads) for t in ts) and all(
        state.dtype == dtype or slot.is_step for state, slot in zip(states, rule.slots, strict=True)
    )


def _is_plain_sgd(rule: "UpdateRule", hyper: Sequence[Number]) -> bool:
    """True without dampening, and if velocities have momentum: fused kernels skip them else."""
    momentums = [rule.numbers_of(g, hyper)["momentum"] for g in range(rule.n_groups)]
    has_idle_velocity = "Accl1" in rule.positions and any(m == 0 for m in momentums)
    return "Step" not in rule.positions and not has_idle_velocity


def _laid_out_like(grad: Tensor, param: Tensor) -> Tensor:
    """The gradient with the strides of its weight: fused kernels walk through memory blindly."""
    if grad.stride() == param.stride():
        return grad
    return torch.empty_like(param).copy_(grad)


def _update_uniform(
    rule: "UpdateRule",
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
        _UNIFORM[rule.kind](
            rule,
            group,
            [params[i] for i in members],
            [grads[i] for i in members],
            own_states,
            rule.numbers_of(group, hyper),
            divisor,
        )


def _norm_of_all(grads: Sequence[Tensor]) -> Tensor:
    norms = torch._foreach_norm(list(grads), 2, dtype=torch.float32)
    return torch.linalg.vector_norm(torch.stack(norms))


def _update_copied(
    rule: "UpdateRule",
    params: Sequence[Tensor],
    grads: Sequence[Tensor],
    states: Sequence[Tensor],
    hyper: Sequence[Number],
) -> None:
    new_params, new_states = rule.update(params, grads, states, hyper)
    torch._foreach_copy_(list(params), new_params)
    if states:
        torch._foreach_copy_(list(states), new_states)


def _sgd_(
    rule: "UpdateRule",
    group: int,
    params: list[Tensor],
    grads: list[Tensor],
    states: dict[str, list[Tensor]],
    numbers: dict[str, Number],
    divisor: Tensor | None,
) -> None:
    velocities = states.get("Accl1", [])
    torch._fused_sgd_(
        params,
        grads,
        velocities,
        weight_decay=numbers["weight_decay"],
        momentum=numbers["momentum"] if velocities else 0.0,
        lr=numbers["lr"],
        dampening=0.0,
        nesterov=rule.nesterov[group],
        maximize=rule.maximize[group],
        is_first_step=False,  # velocities start at 0, so that without dampening all steps are alike
        grad_scale=divisor,
    )


def _adam_(
    rule: "UpdateRule",
    group: int,
    params: list[Tensor],
    grads: list[Tensor],
    states: dict[str, list[Tensor]],
    numbers: dict[str, Number],
    divisor: Tensor | None,
) -> None:
    fused = torch._fused_adamw_ if rule.kind == "adamw" else torch._fused_adam_
    steps = states["Step"]
    torch._foreach_add_(steps, 1.0)
    fused(
        params,
        grads,
        states["Accl1"],
        states["Accl2"],
        [],
        steps,
        lr=numbers["lr"],
        beta1=numbers["beta1"],
        beta2=numbers["beta2"],
        weight_decay=numbers["weight_decay"],
        eps=numbers["eps"],
        amsgrad=False,
        maximize=rule.maximize[group],
        grad_scale=divisor,
    )


def _rmsprop_(
    rule: "UpdateRule",
    group: int,
    params: list[Tensor],
    grads: list[Tensor],
    states: dict[str, list[Tensor]],
    numbers: dict[str, Number],
    divisor: Tensor | None,
) -> None:
    if divisor is not None:
        torch._foreach_div_(grads, divisor)
    if rule.maximize[group]:
        torch._foreach_neg_(grads)
    if numbers["weight_decay"] != 0:
        torch._foreach_add_(grads, params, alpha=numbers["weight_decay"])
    deviations = _deviations_(rule, grads, states, numbers)
    velocities, lr = states.get("Accl3"), numbers["lr"]
    if rule.facts.use_tf_variant or isinstance(lr, Tensor):
        _apply_rmsprop_(rule, params, torch._foreach_div(grads, deviations), velocities, numbers)
    elif velocities:
        torch._foreach_mul_(velocities, numbers["momentum"])
        torch._foreach_addcdiv_(velocities, grads, deviations)
        torch._foreach_add_(params, velocities, alpha=-lr)
    else:
        torch._foreach_addcdiv_(params, grads, deviations, value=-lr)


def _deviations_(
    rule: "UpdateRule",
    grads: list[Tensor],
    states: dict[str, list[Tensor]],
    numbers: dict[str, Number],
) -> list[Tensor]:
    """Update the mean square (and mean); what each gradient is then divided by."""
    squares, rest = states["Accl1"], 1 - numbers["alpha"]
    torch._foreach_mul_(squares, numbers["alpha"])
    torch._foreach_addcmul_(squares, grads, grads, value=rest)
    variances = squares
    if rule.facts.centered:
        means = states["Accl2"]
        torch._foreach_lerp_(means, grads, rest)
        variances = torch._foreach_addcmul(squares, means, means, value=-1.0)
    if rule.facts.use_tf_variant:
        return list(torch._foreach_sqrt(torch._foreach_add(variances, numbers["eps"])))
    return list(torch._foreach_add(torch._foreach_sqrt(variances), numbers["eps"]))


def _apply_rmsprop_(
    rule: "UpdateRule",
    params: list[Tensor],
    changes: Sequence[Tensor],
    velocities: list[Tensor] | None,
    numbers: dict[str, Number],
) -> None:
    """Take the changes off the weights, where lr is on a device or inside the velocity."""
    changes = list(changes)
    if rule.facts.use_tf_variant:
        torch._foreach_mul_(changes, numbers["lr"])
    if velocities:
        torch._foreach_mul_(velocities, numbers["momentum"])
        torch._foreach_add_(velocities, changes)
        changes = velocities
    if not rule.facts.use_tf_variant:
        changes = torch._foreach_mul(changes, numbers["lr"])
    torch._foreach_sub_(params, changes)


_UNIFORM = {"sgd": _sgd_, "adam": _adam_, "adamw": _adam_, "rmsprop": _rmsprop_}
