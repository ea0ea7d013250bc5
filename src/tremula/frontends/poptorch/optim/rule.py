"""From an optimiser of PyTorch or PopTorch to the rule by which a compiled step updates weights."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.poptorch.optim.settings import (
    FixedSettings,
    GroupSettings,
    OptimizerSettings,
    settings_of,
)
from tremula.ir.optim.formulas import Formula, torch_formula
from tremula.ir.optim.grouped_rule import GroupedRule, ParameterGroup


def rule_from(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]]
) -> GroupedRule:
    """The rule of an optimiser for the parameters of a model.

    A parameter is trained if it requires a gradient and is in a group; a tied one counts once,
    under its first name.
    """
    settings = settings_of(optimizer)
    group_of_id = {
        id(param): g for g, group in enumerate(optimizer.param_groups) for param in group["params"]
    }
    trained: dict[int, str] = {}
    for name, param in named_parameters:
        if param.requires_grad and id(param) in group_of_id:
            trained.setdefault(id(param), name)
    scaling = settings.loss_scaling
    return GroupedRule(
        formula=_formula(settings.fixed),
        names=tuple(trained.values()),
        group_of=tuple(group_of_id[key] for key in trained),
        groups=tuple(_parameter_group(group) for group in settings.groups),
        loss_scaling=scaling.value if scaling.is_constant else None,
        accum_dtype=settings.fixed.accum_dtype,
        max_grad_norm=settings.fixed.max_grad_norm,
    )


def _parameter_group(group: GroupSettings) -> ParameterGroup:
    return ParameterGroup(
        constants=tuple((name, h.value) for name, h in group.hypers if h.is_constant),
        variables=tuple(name for name, h in group.hypers if not h.is_constant),
        nesterov=group.nesterov,
        maximize=group.maximize,
    )


def _formula(fixed: FixedSettings) -> Formula:
    """AdamW without bias correction corrects it all the same, as PopTorch's did."""
    return torch_formula(
        fixed.kind,
        fixed.first_order_dtype,
        fixed.second_order_dtype,
        centered=fixed.centered,
        is_tensorflows=fixed.use_tf_variant,
        corrects_bias=fixed.kind != "lamb" or fixed.bias_correction,
        variant=fixed.variant,
    )


def hyper_values(rule: GroupedRule, optimizer: torch.optim.Optimizer) -> list[float]:
    """The values of `rule.hyper_names` that an optimiser has now."""
    return values_in(rule, settings_of(optimizer))


def values_in(rule: GroupedRule, settings: OptimizerSettings) -> list[float]:
    """The values of `rule.hyper_names` in settings that the rule was made for."""
    values = [
        of_settings.hyper(name).value
        for of_settings, group in zip(settings.groups, rule.groups, strict=True)
        for name in group.variables
    ]
    return values + ([settings.loss_scaling.value] if rule.loss_scaling is None else [])


def changed_constants(rule: GroupedRule, settings: OptimizerSettings) -> list[str]:
    """Descriptions of the constants of a rule that `settings` would change."""
    result = []
    if rule.loss_scaling not in {None, settings.loss_scaling.value}:
        result.append(f"loss_scaling: {rule.loss_scaling:g} -> {settings.loss_scaling.value:g}")
    for g, (group, new) in enumerate(zip(rule.groups, settings.groups, strict=False)):
        values = {name: hyper.value for name, hyper in new.hypers}
        result += [
            f"{name} of group {g}: {old:.8g} -> {values[name]:.8g}"
            for name, old in group.constants
            if np.float32(values[name]) != np.float32(old)  # as the device has them
        ]
        result += [
            f"{name} of group {g}: {getattr(group, name)} -> {getattr(new, name)}"
            for name in ("nesterov", "maximize")
            if getattr(new, name) != getattr(group, name)
        ]
    return result
