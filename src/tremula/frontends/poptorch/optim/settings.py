"""What an optimiser object says: its kind, what is fixed, its hyperparameters by group."""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

LOG = logging.getLogger("tremula")

# The classes a user may hand over, in the order they are looked for: AdamW is a subclass of Adam.
TORCH_CLASSES = (
    (torch.optim.AdamW, "adamw"),
    (torch.optim.Adam, "adam"),
    (torch.optim.SGD, "sgd"),
    (torch.optim.RMSprop, "rmsprop"),
)
COMBINED_SGD = "SGD1"  # PopTorch's name for SGD with accumulator and velocity in one tensor
SUPPORTED = ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")

_ADAM_HYPERS = ("lr", "beta1", "beta2", "eps", "weight_decay")
# The hyperparameters that enter the update of a group, in the order of graph inputs.
GROUP_HYPERS = {
    "sgd": ("lr", "momentum", "dampening", "weight_decay"),
    "adam": _ADAM_HYPERS,
    "adamw": _ADAM_HYPERS,
    "rmsprop": ("lr", "alpha", "eps", "weight_decay", "momentum"),
    "lamb": (*_ADAM_HYPERS, "max_weight_norm"),
}
# PyTorch's own defaults: an attribute of a plain torch optimiser that has this value is constant.
TORCH_DEFAULTS = {
    "momentum": 0.0,
    "dampening": 0.0,
    "weight_decay": 0.0,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "alpha": 0.99,
    "velocity_scaling": 1.0,
    "loss_scaling": 1.0,
}
# Half momenta are an option of the PopTorch classes alone.
DTYPE_ATTRIBUTES = {
    "sgd": ("accum_type", "velocity_accum_type", "velocity_accum_type"),
    "adam": (
        "accum_type",
        "first_order_momentum_accum_type",
        "second_order_momentum_accum_type",
    ),
}


@dataclass(frozen=True)
class Hyper:
    """A hyperparameter: its value now, and whether it may change after compilation."""

    value: float
    is_constant: bool


@dataclass(frozen=True)
class GroupSettings:
    """A parameter group: its hyperparameters, and its switches, which are always constant."""

    hypers: tuple[tuple[str, Hyper], ...]
    nesterov: bool
    maximize: bool
    velocity_scaling: Hyper

    def hyper(self, name: str) -> Hyper:
        return dict(self.hypers)[name]


@dataclass(frozen=True)
class FixedSettings:
    """What never changes after compilation, whatever an optimiser says about its attributes."""

    kind: str
    variant: str  # PopTorch's name of the kind: SGD1, SGD2, ADAM, …; logs and warnings show it
    centered: bool
    use_tf_variant: bool
    bias_correction: bool
    use_combined_accum: bool
    accum_dtype: torch.dtype
    first_order_dtype: torch.dtype
    second_order_dtype: torch.dtype
    max_grad_norm: float

    @property
    def sums_in_half(self) -> bool:
        """Whether gradients are accumulated in half, in tensors apart from momenta."""
        return self.accum_dtype is torch.float16 and self.variant != COMBINED_SGD


@dataclass(frozen=True)
class OptimizerSettings:
    """Everything an optimiser says; two optimisers with equal settings update weights alike."""

    fixed: FixedSettings
    defaults: GroupSettings
    groups: tuple[GroupSettings, ...]
    loss_scaling: Hyper


def settings_of(optimizer: torch.optim.Optimizer) -> OptimizerSettings:
    """What `optimizer` says now; AssertionError for a class that PopTorch does not support."""
    kind = kind_of(optimizer)
    is_variable = _variability(optimizer, kind)
    loss_scaling = float(getattr(optimizer, "loss_scaling", 1.0))
    return OptimizerSettings(
        fixed=_fixed_settings(optimizer, kind),
        defaults=_group_settings(optimizer, optimizer.defaults, kind, is_variable),
        groups=tuple(
            _group_settings(optimizer, {**optimizer.defaults, **group}, kind, is_variable)
            for group in optimizer.param_groups
        ),
        loss_scaling=Hyper(loss_scaling, not is_variable("loss_scaling", loss_scaling)),
    )


def kind_of(optimizer: torch.optim.Optimizer) -> str:
    """The kind of update an optimiser makes: sgd, adam, adamw, rmsprop or lamb."""
    for torch_class, kind in TORCH_CLASSES:
        if isinstance(optimizer, torch_class):
            is_decoupled = optimizer.defaults.get("decoupled_weight_decay", False)
            return "adamw" if kind == "adam" and is_decoupled else kind
    is_optimizer = isinstance(optimizer, torch.optim.Optimizer)
    # LAMB is a class of PopTorch, which `optimizers` defines; scripts may have a similar one.
    if is_optimizer and {"betas", "max_weight_norm"} <= set(optimizer.defaults):
        return "lamb"
    raise AssertionError(
        f"Unsupported optimizer type. Types supported {list(SUPPORTED)}; "
        f"got {type(optimizer).__name__}."
    )


def warn_about_subclass(
    optimizer: torch.optim.Optimizer, warn: Callable[[str], None] = LOG.warning
) -> None:
    """Warn that the Python code of a user's subclass is not run."""
    used = type(optimizer)
    plain = tuple(torch_class for torch_class, _ in TORCH_CLASSES)
    if used in plain or vars(used).get("is_poptorch_optimizer", False):
        return
    known = (c for c in used.__mro__ if c in plain or vars(c).get("is_poptorch_optimizer", False))
    base = next(known, None)
    if base is None:
        return  # a class that is not supported at all: compiling raises an error
    warn(
        f"{used.__name__} is a subclass of {base.__name__}. Poptorch does not run Python "
        f"optimizer code directly: weights are updated as {base.__name__} does it, and "
        f"whatever {used.__name__} adds is ignored."
    )


def _variability(optimizer: torch.optim.Optimizer, kind: str) -> Callable[[str, float], bool]:
    """A function (attribute, value) -> may it change after compilation?"""
    declared = getattr(optimizer, "variable_attrs", None)
    weight_decay_default = 1e-2 if kind in {"adamw", "lamb"} else 0.0

    def is_variable(name: str, value: float) -> bool:
        if name == "lr":
            return True
        if declared is not None:
            return not declared.isConstant("betas" if name.startswith("beta") else name)
        if name == "weight_decay":
            return value != weight_decay_default
        return value != TORCH_DEFAULTS.get(name, value)

    return is_variable


def _group_settings(
    optimizer: torch.optim.Optimizer,
    group: dict,
    kind: str,
    is_variable: Callable[[str, float], bool],
) -> GroupSettings:
    if group.get("amsgrad", False):
        raise ValueError("Only non-amsgrad Adam/AdamW optimizers are supported.")
    hypers = tuple(
        (name, Hyper(value, not is_variable(name, value)))
        for name, value in _hyper_values(group, GROUP_HYPERS[kind])
    )
    # Separate accumulators scale the velocity as the loss is scaled; the update is the same.
    loss_scaling = float(getattr(optimizer, "loss_scaling", 1.0))
    scaling = float(group.get("velocity_scaling", loss_scaling))
    return GroupSettings(
        hypers=hypers,
        nesterov=bool(group.get("nesterov", False)),
        maximize=bool(group.get("maximize", False)),
        velocity_scaling=Hyper(scaling, not is_variable("velocity_scaling", scaling)),
    )


def _hyper_values(group: dict, names: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    for name in names:
        if name in {"beta1", "beta2"}:
            betas = group["betas"]
            assert len(betas) == 2, f"Expected a pair for betas but got {betas} instead"
            yield name, float(betas[name == "beta2"])
        else:
            yield name, float(group[name])


def _fixed_settings(optimizer: torch.optim.Optimizer, kind: str) -> FixedSettings:
    bias_correction = bool(getattr(optimizer, "bias_correction", True))
    combined = kind == "sgd" and bool(getattr(optimizer, "use_combined_accum", False))
    centered = kind == "rmsprop" and _centered(optimizer)
    dtypes = DTYPE_ATTRIBUTES["sgd" if kind == "sgd" else "adam"]
    accum, first, second = (getattr(optimizer, name, torch.float32) for name in dtypes)
    return FixedSettings(
        kind=kind,
        variant=_variant(kind, combined, centered, bias_correction),
        centered=centered,
        use_tf_variant=kind == "rmsprop" and bool(getattr(optimizer, "use_tf_variant", False)),
        bias_correction=bias_correction,
        use_combined_accum=combined,
        accum_dtype=accum,
        first_order_dtype=first,
        second_order_dtype=second,
        max_grad_norm=float(getattr(optimizer, "max_grad_norm", float("inf"))),
    )


def _centered(optimizer: torch.optim.Optimizer) -> bool:
    flags = [bool(group["centered"]) for group in optimizer.param_groups]
    assert len(set(flags)) == 1, (
        f"All parameter groups must have the same value for the 'centered' attribute, got {flags}"
    )
    return flags[0]


def _variant(kind: str, combined: bool, centered: bool, bias_correction: bool) -> str:
    if kind == "sgd":
        return COMBINED_SGD if combined else "SGD2"
    if kind == "rmsprop":
        return "RMSPROP_CENTERED" if centered else "RMSPROP"
    has_no_bias_variant = kind in {"adamw", "lamb"}
    return kind.upper() + ("_NO_BIAS" if has_no_bias_variant and not bias_correction else "")
