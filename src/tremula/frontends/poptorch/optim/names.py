"""PopART's names for the hyperparameters of an update, as checkpoints show them."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from tremula.frontends.poptorch.optim.settings import COMBINED_SGD
from tremula.ir.optim.grouped_rule import GroupedRule

LOSS_SCALING = "lossScaling_FLOAT"

_ADAM_PREFIXES = {
    "lr": "learningRate",
    "weight_decay": "weightDecay",
    "beta1": "adamBeta1",
    "beta2": "adamBeta2",
    "eps": "adamEps",
    "max_weight_norm": "maxWeightNorm",
}
_RMSPROP_PREFIXES = {
    "lr": "learningRate",
    "weight_decay": "weightDecay",
    "alpha": "adaptiveAlpha",
    "eps": "adaptiveEps",
    "momentum": "adaptiveMomentum",
}
PREFIXES = {  # by the kind of a formula
    "adam": _ADAM_PREFIXES,
    "adamw": _ADAM_PREFIXES,
    "lamb": _ADAM_PREFIXES,
    "rmsprop": _RMSPROP_PREFIXES,
    "rmsprop_tf": _RMSPROP_PREFIXES,
}


def ipu_params(rule: GroupedRule, hyper: Sequence[float]) -> dict[str, Tensor]:
    """0-dim tensors by PopART's names: those of each weight, and the loss scaling."""
    result = {
        f"{prefix}___specific___{name}": torch.tensor(value)
        for i, name in enumerate(rule.names)
        for prefix, value in _entries(rule, i, hyper)
    }
    result[LOSS_SCALING] = torch.tensor(float(rule.loss_scaling_in(hyper)))
    return result


def ipu_param_names(rule: GroupedRule) -> list[str]:
    """The names of `ipu_params`: learning rates, decays and what else a run reads."""
    return list(ipu_params(rule, [1.0] * len(rule.hyper_names)))


def _entries(rule: GroupedRule, param: int, hyper: Sequence[float]) -> Iterator[tuple[str, float]]:
    group = rule.group_of[param]
    hyperparameters = {
        name: float(value) for name, value in rule.hyperparameters(group, hyper).items()
    }
    if rule.formula.kind == "sgd":
        yield from _sgd_entries(rule, param, hyperparameters, float(rule.loss_scaling_in(hyper)))
        return
    for name in rule.groups[group].variables:
        yield PREFIXES[rule.formula.kind][name], hyperparameters[name]


def _sgd_entries(
    rule: GroupedRule, param: int, hyperparameters: Mapping[str, float], loss_scaling: float
) -> Iterator[tuple[str, float]]:
    """PopART's combinations of SGD's hyperparameters; the velocity is scaled like the loss."""
    lr, weight_decay = hyperparameters["lr"], hyperparameters["weight_decay"]
    if not has_velocity(rule, param):
        yield "scaledLearningRate0", lr / loss_scaling
        yield "weightDecayScaleFactor0", 1 - lr * weight_decay
        return
    number = _sgd_number(rule)
    variables = rule.groups[rule.group_of[param]].variables
    undamped = 1 - hyperparameters["dampening"]
    yield f"scaledLearningRate{number}", lr / loss_scaling
    if "momentum" in variables:
        yield f"scaledMomentum{number}", hyperparameters["momentum"]
    if "dampening" in variables:
        yield f"dampeningScaleFactor{number}", undamped
    if "weight_decay" in variables:
        yield "scaledWeightDecay1", undamped * weight_decay * loss_scaling


def hyper_from_ipu_params(
    rule: GroupedRule, loaded: Mapping[str, Tensor], hyper: Sequence[float]
) -> list[float]:
    """`hyper` with the loaded values where there are any; a group takes those of its first weight.

    A value that is missing stays as it is.
    """
    new = list(hyper)
    if rule.loss_scaling is None and LOSS_SCALING in loaded:
        new[-1] = float(loaded[LOSS_SCALING])
    loss_scaling = float(rule.loss_scaling_in(new))
    position = 0
    for group in range(rule.n_groups):
        members = rule.members_of(group)
        if members:
            suffix = f"___specific___{rule.names[members[0]]}"
            values = {
                key.removesuffix(suffix): float(value)
                for key, value in loaded.items()
                if key.endswith(suffix)
            }
            hyperparameters = {n: float(v) for n, v in rule.hyperparameters(group, new).items()}
            hyperparameters.update(
                _read_back(rule, members[0], values, hyperparameters, loss_scaling)
            )
            for k, name in enumerate(rule.groups[group].variables):
                new[position + k] = hyperparameters[name]
        position += len(rule.groups[group].variables)
    return new


def differ_by_weight(
    rule: GroupedRule, loaded: Mapping[str, Tensor], hyper: Sequence[float]
) -> bool:
    """Whether loaded hyperparameters give weights of one group different ones."""
    split = rule.by_weight()
    new = hyper_from_ipu_params(split, loaded, rule.values_by_weight(hyper))
    hyperparameters = [split.hyperparameters(i, new) for i in range(split.n_groups)]
    return any(
        hyperparameters[i] != hyperparameters[members[0]]
        for members in map(rule.members_of, range(rule.n_groups))
        for i in members
    )


def _read_back(
    rule: GroupedRule,
    param: int,
    values: Mapping[str, float],
    hyperparameters: Mapping[str, float],
    loss_scaling: float,
) -> dict[str, float]:
    """The hyperparameters of a group from PopART's; the inverse of `_entries`."""
    if rule.formula.kind != "sgd":
        names = {prefix: name for name, prefix in PREFIXES[rule.formula.kind].items()}
        return {names[prefix]: value for prefix, value in values.items() if prefix in names}
    number = _sgd_number(rule) if has_velocity(rule, param) else 0
    result = {}
    if f"scaledLearningRate{number}" in values:
        result["lr"] = values[f"scaledLearningRate{number}"] * loss_scaling
    if f"scaledMomentum{number}" in values:
        result["momentum"] = values[f"scaledMomentum{number}"]
    if f"dampeningScaleFactor{number}" in values:
        result["dampening"] = 1 - values[f"dampeningScaleFactor{number}"]
    lr = result.get("lr", hyperparameters["lr"])
    undamped = 1 - result.get("dampening", hyperparameters["dampening"])
    if "weightDecayScaleFactor0" in values and lr != 0:
        result["weight_decay"] = (1 - values["weightDecayScaleFactor0"]) / lr
    if "scaledWeightDecay1" in values and undamped != 0:
        result["weight_decay"] = values["scaledWeightDecay1"] / (undamped * loss_scaling)
    return result


def has_velocity(rule: GroupedRule, param: int) -> bool:
    """True if a weight has a velocity state; plain SGD has none."""
    return param in rule.positions.get("Accl1", {})


def _sgd_number(rule: GroupedRule) -> int:
    """PopART's number of a kind of SGD: 1 has accumulator and velocity in one tensor, 2 in two."""
    return 1 if rule.formula.variant == COMBINED_SGD else 2
