"""What an optimiser object says: its kind, its fixed facts, its numbers, constant or variable."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LOG = logging.getLogger("tremula")

# The classes a user may hand over, in the order they are looked for: AdamW is a subclass of Adam.
TORCH_CLASSES = (
    (torch.optim.AdamW, "adamw"),
    (torch.optim.Adam, "adam"),
    (torch.optim.SGD, "sgd"),
    (torch.optim.RMSprop, "rmsprop"),
)
SUPPORTED = ("SGD", "Adam", "AdamW", "RMSprop", "LAMB")

_ADAM_HYPERS = ("lr", "beta1", "beta2", "eps", "weight_decay")
# The numbers of a parameter group that enter its update, in the order of graph inputs.
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
    """A number of an optimiser: its value now, and whether it may change after compilation."""

    value: float
    is_constant: bool


@dataclass(frozen=True)
class GroupSettings:
    """A parameter group: its numbers by name, and its switches, which are always constant."""

    hypers: tuple[tuple[str, Hyper], ...]
    nesterov: bool
    maximize: bool
    velocity_scaling: Hyper

    def hyper(self, name: str) -> Hyper:
        return dict(self.hypers)[name]


@dataclass(frozen=True)
class FixedFacts:
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


@dataclass(frozen=True)
class Settings:
    """Everything an optimiser says; two optimisers with equal settings update weights alike."""

    facts: FixedFacts
    defaults: GroupSettings
    groups: tuple[GroupSettings, ...]
    loss_scaling: Hyper


def settings_of(optimizer: torch.optim.Optimizer) -> Settings:
    """What `optimizer` says now; AssertionError for a class that PopTorch does not support."""
    kind = kind_of(optimizer)
    is_variable = _variability(optimizer, kind)
    loss_scaling = float(getattr(optimizer, "loss_scaling", 1.0))
    return Settings(
        facts=_facts_of(optimizer, kind),
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
    # LAMB is PopTorch's own class, known only to the front end, so its attributes tell.
    if is_optimizer and {"betas", "max_weight_norm"} <= set(optimizer.defaults):
        return "lamb"
    raise AssertionError(
        f"Unsupported optimizer type. Types supported {list(SUPPORTED)}; "
        f"got {type(optimizer).__name__}."
    )


def warn_about_subclass(
    optimizer: torch.optim.Optimizer, warn: Callable[[str], None] = LOG.warning
) -> None:
    """Say that the Python code of a user's own subclass is not run."""
    own = type(optimizer)
    plain = tuple(torch_class for torch_class, _ in TORCH_CLASSES)
    if own in plain or vars(own).get("is_poptorch_optimizer", False):
        return
    ours = (c for c in own.__mro__ if c in plain or vars(c).get("is_poptorch_optimizer", False))
    base = next(ours, None)
    if base is None:
        return  # a class that is not supported at all: compiling refuses it
    warn(
        f"{own.__name__} is a subclass of {base.__name__}. Poptorch does not run Python "
        f"optimizer code directly: weights are updated as {base.__name__} does it, and "
        f"whatever {own.__name__} adds is ignored."
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


def _facts_of(optimizer: torch.optim.Optimizer, kind: str) -> FixedFacts:
    bias_correction = bool(getattr(optimizer, "bias_correction", True))
    combined = kind == "sgd" and bool(getattr(optimizer, "use_combined_accum", False))
    centered = kind == "rmsprop" and _centered(optimizer)
    dtypes = DTYPE_ATTRIBUTES["sgd" if kind == "sgd" else "adam"]
    accum, first, second = (getattr(optimizer, name, torch.float32) for name in dtypes)
    return FixedFacts(
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
        return "SGD1" if combined else "SGD2"
    if kind == "rmsprop":
        return "RMSPROP_CENTERED" if centered else "RMSPROP"
    has_no_bias_variant = kind in {"adamw", "lamb"}
    return kind.upper() + ("_NO_BIAS" if has_no_bias_variant and not bias_correction else "")


# -- automatic loss scaling: the scale follows the size of the gradients it scales -----------------


_LARGEST_HALF = 65504.0
_LARGEST_SCALE = 2.0**24


@dataclass(frozen=True)
class AutomaticLossScaling:
    """Halve the scale if too many gradient elements come near the largest half, else double it.

    Scales are powers of two times the first one, so that they change no bit of a float.
    """

    bin_edge: float = 0.125  # elements above this share of the largest half are large
    threshold: float = 1e-7  # the share of large elements that is too much

    def next_scale(self, scale: Tensor, gradients: Sequence[Tensor]) -> Tensor:
        """The scale of the next step, from the scaled and reduced gradients of this one."""
        edge = self.bin_edge * _LARGEST_HALF
        small = [(gradient.abs() <= edge).float().sum() for gradient in gradients]
        n_all = sum(gradient.numel() for gradient in gradients)
        n_small = torch.stack(small).sum()  # infinities and NaN are not small
        is_large = n_all - n_small > self.threshold * n_all
        return torch.where(is_large, scale * 0.5, scale * 2.0).clamp(1.0, _LARGEST_SCALE)
