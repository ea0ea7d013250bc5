"""From an optimiser to the rule by which a compiled step updates its weights."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tremula.base.errors import suggest
from tremula.frontends.popart.enums import (
    AdamMode,
    AdaptiveMode,
    DataType,
    SGDAccumulatorAndMomentum,
)
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.optimisers import formulas
from tremula.frontends.popart.optimisers.optimisers import (
    LOSS_SCALING,
    SGD,
    Adam,
    Adaptive,
    Optimizer,
)
from tremula.ir.optim.formulas import Formula, StateKind, bias_corrections
from tremula.ir.optim.grouped_rule import GroupedRule, ParameterGroup

_TYPES = {DataType.FLOAT: torch.float32, DataType.FLOAT16: torch.float16}
_COMBINED_SGD = "popart SGD1"


def first_states(
    rule: GroupedRule, params: Sequence[Tensor], hyper: Sequence[Mapping[str, float]]
) -> list[Tensor]:
    """The states before the first step; `hyper` are the hyperparameters of each weight."""
    result = rule.initial_state(params)
    if rule.formula.kind == _COMBINED_SGD:
        for position, slot in enumerate(rule.slots):
            result[position].copy_(formulas.first_velocity(params[slot.param], hyper[slot.param]))
    return result


def rule_of(
    optimizer: Optimizer, weights: Mapping[str, tuple[str, torch.dtype]], *, accumulates: bool
) -> GroupedRule:
    """The rule of an optimiser for weights: by their ids, names in the module and types."""
    for id in (*optimizer.specific, *(i for clip in optimizer.clips for i in clip.weightIds)):
        if id not in weights:
            raise popart_exception(
                f"The optimizer names the weight {id!r}, which is not trained:"
                f" {suggest(id, weights)}"
            )
    ids = list(weights)
    groups = ["", *(id for id in ids if id in optimizer.specific)]
    scaling = optimizer.lossScaling()
    accum_type = getattr(optimizer, "accum_type", DataType.UNDEFINED)
    return GroupedRule(
        formula=_formula(optimizer, accumulates=accumulates),
        names=tuple(name for name, _ in weights.values()),
        group_of=tuple(groups.index(id) if id in optimizer.specific else 0 for id in ids),
        groups=tuple(_group(optimizer, id) for id in groups),
        loss_scaling=scaling.val() if scaling.isConst() else None,
        accum_dtype=_TYPES.get(accum_type, torch.float32),
        dtypes=tuple(dtype for _, dtype in weights.values()),
        clips=tuple(
            (
                tuple(i for i, id in enumerate(ids) if not c.weightIds or id in c.weightIds),
                c.maxNorm,
            )
            for c in optimizer.clips
        ),
    )


def _group(optimizer: Optimizer, id: str) -> ParameterGroup:
    """The hyperparameters of a weight, or with "" those of all others."""
    values = {name: optimizer.value(name, id) for name in optimizer.numbers}
    return ParameterGroup(
        constants=tuple((name, v.val()) for name, v in values.items() if v.isConst()),
        variables=tuple(name for name, v in values.items() if not v.isConst()),
        nesterov=getattr(optimizer, "nesterov", False),
    )


def hyper_values(optimizer: Optimizer, ids: Sequence[str], rule: GroupedRule) -> list[float]:
    """The values of the rule's variable hyperparameters that an optimiser has now."""
    groups = ["", *(id for id in ids if id in optimizer.specific)]
    result = [
        optimizer.value(name, id).val()
        for id, group in zip(groups, rule.groups, strict=True)
        for name in group.variables
    ]
    return result + ([optimizer.getLossScalingVal()] if rule.loss_scaling is None else [])


def hyperparameters_by_weight(optimizer: Optimizer, ids: Sequence[str]) -> list[dict[str, float]]:
    """All hyperparameters of each weight."""
    return [{n: optimizer.value(n, id).val() for n in optimizer.numbers} for id in ids]


def _formula(optimizer: Optimizer, *, accumulates: bool) -> Formula:
    if isinstance(optimizer, SGD):
        return _sgd_formula(optimizer, accumulates)
    if isinstance(optimizer, Adam):
        corrects_bias = optimizer.mode in (AdamMode.Adam, AdamMode.AdaMax, AdamMode.Lamb)
        states = _state("Accl1", optimizer.accl1_type), _state("Accl2", optimizer.accl2_type)
        return Formula(
            f"popart {optimizer.mode.name} {optimizer.weight_decay_mode.name}",
            (*states, StateKind("Step")) if corrects_bias else states,
            formulas.adam(optimizer.mode, optimizer.weight_decay_mode),
            bias_corrections,
        )
    if isinstance(optimizer, Adaptive):
        return _adaptive_formula(optimizer)
    raise popart_exception(
        f"{type(optimizer).__name__} is not an optimizer of PopART: SGD, ConstSGD, Adam, Adaptive"
    )


def _sgd_formula(optimizer: SGD, accumulates: bool) -> Formula:
    uses = [optimizer.defaults["momentum"]]
    uses += [values["momentum"] for values in optimizer.specific.values() if "momentum" in values]
    has_velocity = any(value.val() != 0 or not value.isConst() for value in uses)
    if not has_velocity and not (accumulates and _is_combined(optimizer)):
        return Formula("popart SGD0", (), formulas.plain_sgd)
    if _is_combined(optimizer):
        state = _state("Accl", optimizer.accl1_type)
        return Formula(_COMBINED_SGD, (state,), formulas.combined_sgd)
    return Formula("popart SGD2", (_state("Accl1", optimizer.accl1_type),), formulas.separate_sgd)


def _is_combined(optimizer: SGD) -> bool:
    """Nesterov's step needs the velocity before it holds what comes next."""
    return optimizer.mode is SGDAccumulatorAndMomentum.Combined and not optimizer.nesterov


def _adaptive_formula(optimizer: Adaptive) -> Formula:
    start = 1.0 if optimizer.rmsprop_tf_variant else 0.0
    states = [_state("Accl1", optimizer.accl1_type, start)]
    if optimizer.mode in (AdaptiveMode.CenteredRMSProp, AdaptiveMode.AdaDelta):
        states.append(_state("Accl2", optimizer.accl2_type))
    momenta = optimizer.momentums()
    values = [momenta.getDefault(), *(momenta.get(id) for id in optimizer.specific)]
    if any(value.val() != 0 or not value.isConst() for value in values):
        states.append(_state("Accl3", optimizer.accl3_type))
    mode, decay, is_tensorflows = (
        optimizer.mode,
        optimizer.weight_decay_mode,
        optimizer.rmsprop_tf_variant,
    )
    return Formula(
        f"popart {mode.name} {decay.name}{' tf' if is_tensorflows else ''}",
        tuple(states),
        formulas.adaptive(mode, decay, is_tensorflows=is_tensorflows),
    )


def _state(prefix: str, kind: DataType, initial: float = 0.0) -> StateKind:
    return StateKind(prefix, _TYPES.get(kind), initial)


__all__ = ["LOSS_SCALING", "first_states", "hyper_values", "hyperparameters_by_weight", "rule_of"]
