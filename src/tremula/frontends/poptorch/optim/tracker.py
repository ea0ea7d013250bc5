"""What `setOptimizer` does: which values of a compiled update change, and which cannot."""

from collections.abc import Iterable, Sequence
from dataclasses import fields

import torch

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.optim.base import Optimizer
from tremula.frontends.poptorch.optim.names import differ_by_weight
from tremula.frontends.poptorch.optim.rule import (
    changed_constants,
    hyper_values,
    rule_from,
    values_in,
)
from tremula.frontends.poptorch.optim.settings import (
    FixedSettings,
    GroupSettings,
    Hyper,
    OptimizerSettings,
    settings_of,
    warn_about_subclass,
)
from tremula.frontends.poptorch.options.options import Options
from tremula.ir.optim.grouped_rule import AutomaticLossScaling, GroupedRule

# Attributes of every optimiser, torch's or PopTorch's: not set by the script.
KNOWN_ATTRIBUTES = {
    "defaults",
    "state",
    "param_groups",
    "variable_attrs",
    "ipu_state_is_dirty",
    "host_state_is_dirty",
    "loss_scaling",
    "use_combined_accum",
    "accum_type",
    "velocity_accum_type",
    "first_order_momentum_accum_type",
    "second_order_momentum_accum_type",
    "max_grad_norm",
    "bias_correction",
    "use_tf_variant",
    # A model that uses an optimiser may replace these.
    "state_dict",
    "load_state_dict",
    "get_state_dict",
    "set_state_dict",
}


_PREFIX = "automaticLossScalingSettings."
_LOSS_SCALING = "enabled updatePeriod binEdgeLocation thresholdUpperCountProportion".split()


def automatic_loss_scaling(options: Options) -> AutomaticLossScaling | None:
    """How the loss is scaled, or None if it stays as the optimiser has it."""
    values = {name: options.Popart.get(f"{_PREFIX}{name}") for name in _LOSS_SCALING}
    if not values["enabled"]:
        return None
    if values["updatePeriod"] != 1:
        raise createPoptorchError(
            "automaticLossScalingSettings.updatePeriod can only be 1: the loss scale is"
            " updated in each step."
        )
    return AutomaticLossScaling(
        float(values["binEdgeLocation"]), float(values["thresholdUpperCountProportion"])
    )


class OptimizerTracker:
    """Follows the optimiser of one model from its first use on.

    `start` gives the rule to compile; `changed` then says, for each optimiser that is set, the new
    values of `rule.hyper_names`, or None if nothing changed.
    """

    def __init__(
        self, *, relax_checks: bool = False, automatic_scaling: AutomaticLossScaling | None = None
    ):
        self._automatic_scaling = automatic_scaling
        self._log = LOGGER.debug if relax_checks else LOGGER.warning
        self._known: dict[str, set[str]] = {}
        self._shown: set[str] = set()
        self.settings: OptimizerSettings | None = None
        self.rule: GroupedRule | None = None  # by the groups of the optimiser
        self._is_by_weight = False
        self._last_set: torch.optim.Optimizer | None = None

    def note(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimiser was set: say once what is not done with it."""
        if optimizer is not self._last_set:
            self._last_set = optimizer
            warn_about_subclass(optimizer, LOGGER.warning)

    def start(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]],
        *,
        by_weight: bool = False,
    ) -> GroupedRule:
        """The rule of the first optimiser; later ones are expected to have the same attributes.

        It has hyperparameters for each weight if `by_weight`, or if some were loaded that need it.
        """
        self.rule = rule_from(optimizer, named_parameters)
        if self._automatic_scaling is not None:
            self.rule = self.rule.scaled_automatically(self._automatic_scaling)
        self.settings = settings_of(optimizer)
        self._known, self._shown = _attributes(optimizer), set()
        _log_settings(self.settings)
        self._is_by_weight = by_weight or self._is_loaded_by_weight(optimizer)
        return self.rule.by_weight() if self._is_by_weight else self.rule

    def _is_loaded_by_weight(self, optimizer: torch.optim.Optimizer) -> bool:
        if not isinstance(optimizer, Optimizer) or not optimizer.has_state():
            return False
        loaded = optimizer.get_state_dict()["ipu_param"]
        rule = self._needs_rule()
        return differ_by_weight(rule, loaded, hyper_values(rule, optimizer))

    def _needs_rule(self) -> GroupedRule:
        assert self.rule is not None, "start() comes first"
        return self.rule

    def values_of(self, optimizer: torch.optim.Optimizer) -> list[float]:
        """The values of the compiled rule's hyperparameters that an optimiser has now."""
        return self._spread(hyper_values(self._needs_rule(), optimizer))

    def values_by_weight(self, values: Sequence[float]) -> list[float]:
        """Values for groups as values for each of their weights, with or without a gradient."""
        return self._needs_rule().values_by_weight(values)

    def _spread(self, values: list[float]) -> list[float]:
        return self.values_by_weight(values) if self._is_by_weight else values

    def changed(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]],
    ) -> list[float] | None:
        """The new run-time values, or None; an error if the compiled update cannot follow."""
        rule = self._needs_rule()
        settings = settings_of(optimizer)
        if settings != self.settings:
            self._check_fixed(settings.fixed)
            self._check_groups(settings)
        self._warn_about_attributes(optimizer, settings.fixed.variant)
        self._check_membership(optimizer, named_parameters)
        if settings == self.settings:
            return None
        self.settings = settings
        _log_settings(settings)
        return self._spread(values_in(rule, settings))

    def _warn_about_attributes(self, optimizer: torch.optim.Optimizer, variant: str) -> None:
        for what, names in _attributes(optimizer).items():
            # No warning about a new group: the number of groups is checked elsewhere.
            extra = sorted(names - self._known.get(what, names))
            message = f"Ignoring unexpected {what} in {variant} optimizer: {extra}"
            if extra and message not in self._shown:
                self._shown.add(message)
                self._log(message)

    def _check_fixed(self, fixed: FixedSettings) -> None:
        assert self.settings is not None, "start() comes first"
        for field in fields(FixedSettings):
            old, new = getattr(self.settings.fixed, field.name), getattr(fixed, field.name)
            if old != new:
                raise ValueError(
                    f"The model is already compiled with an optimizer whose {field.name} is "
                    f"{old}; it cannot become {new}. Call destroy() and compile it again."
                )

    def _check_groups(self, settings: OptimizerSettings) -> None:
        assert self.rule is not None
        n_groups = len(settings.groups)
        if n_groups != self.rule.n_groups:
            raise createPoptorchError(
                f"The model was compiled with an optimizer of {self.rule.n_groups} parameter "
                f"groups, the new one has {n_groups}."
            )
        changes = changed_constants(self.rule, settings)
        if changes:
            raise createPoptorchError(
                "Constant optimizer attributes cannot change after compilation: "
                f"{'; '.join(changes)}. Mark what is to change before the model is compiled: "
                "optimizer.variable_attrs.markAsVariable(name), which the optimizers of "
                "poptorch.optim have."
            )

    def _check_membership(
        self,
        optimizer: torch.optim.Optimizer,
        named_parameters: Iterable[tuple[str, torch.Tensor]],
    ) -> None:
        assert self.rule is not None
        new = rule_from(optimizer, named_parameters)
        group_of = dict(zip(new.names, new.group_of, strict=True))
        for name, group in zip(self.rule.names, self.rule.group_of, strict=True):
            if group_of.get(name, group) != group:
                raise createPoptorchError(
                    f"Parameter {name} was compiled as a member of group {group}, the new "
                    f"optimizer has it in group {group_of[name]}."
                )


def _attributes(optimizer: torch.optim.Optimizer) -> dict[str, set[str]]:
    """The names of all attributes, by where they are, worded for warnings."""
    own = {name for name in vars(optimizer) if not name.startswith("_")}
    places = {
        "optimizer attribute": own - KNOWN_ATTRIBUTES,
        "default group variable": set(optimizer.defaults),
    }
    for g, group in enumerate(optimizer.param_groups):
        places[f"group {g} attribute"] = set(group) - {"params"}
    return places


def _log_settings(settings: OptimizerSettings) -> None:
    fixed, kind = settings.fixed, settings.fixed.variant
    accumulators = {
        "accumType": fixed.accum_dtype,
        "firstOrderMomentumAccumType": fixed.first_order_dtype,
        "secondOrderMomentumAccumType": fixed.second_order_dtype,
    }
    words = [f"{name}={str(dtype).removeprefix('torch.')}" for name, dtype in accumulators.items()]
    words += _described(settings.defaults, kind, "default")
    words.append(_shown_hyper("lossScaling", settings.loss_scaling))
    LOGGER.debug("Updating graph optimizer with %s: %s", kind, ", ".join(words))
    for g, group in enumerate(settings.groups):
        LOGGER.debug(
            "Updating group %d optimizer with %s: %s,", g, kind, ", ".join(_described(group, kind))
        )


def _described(group: GroupSettings, variant: str, prefix: str = "") -> list[str]:
    hypers = [*group.hypers]
    if variant.startswith("SGD"):
        hypers.append(("velocity_scaling", group.velocity_scaling))
    return [_shown_hyper(_camel_case(name, prefix), hyper) for name, hyper in hypers]


def _shown_hyper(name: str, hyper: Hyper) -> str:
    return f"{name}={hyper.value:g}{' (const)' if hyper.is_constant else ''}"


def _camel_case(name: str, prefix: str) -> str:
    """PopART's form of a name: learningRate, or defaultLearningRate."""
    words = [*([prefix] if prefix else []), *name.replace("lr", "learning_rate").split("_")]
    return words[0] + "".join(word.capitalize() for word in words[1:])
