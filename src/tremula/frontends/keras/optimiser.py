"""The update of a Keras optimiser as the rule of a compiled step.

The step holds the optimiser's own formulas, recorded once. On this computer they are recorded once
more, as a function of real tensors, so that a step does not run Keras's Python code.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import keras
import torch
from keras.src.optimizers.base_optimizer import BaseOptimizer
from torch import Tensor

from tremula.frontends.keras.scaling import ConstantScale, Scaling, are_finite, scaling_of
from tremula.frontends.keras.tracing import (
    ModelVariable,
    both_branches,
    functional_updates,
    variables_set_to,
)
from tremula.ir.host.compile_isolation import traced
from tremula.ir.optim.rule import Number
from tremula.ir.recording import active


@dataclass(frozen=True)
class KerasRule:
    """The update of `trained` by an optimiser whose variables are the states of the step."""

    kind: str  # the optimiser's class
    names: tuple[str, ...]  # of the trained variables
    optimizer: BaseOptimizer = field(compare=False, repr=False)
    trained: tuple[ModelVariable, ...] = field(compare=False, repr=False)
    owners: tuple[str | None, ...]  # of each state: the name of its weight, if it has one
    kinds: tuple[str, ...] = field(compare=False, repr=False)  # of each state
    scaling: Scaling | None = None  # of the loss, and what it counts
    counters: tuple[keras.Variable, ...] = field(
        default=(), compare=False, repr=False
    )  # variables of it
    accum_dtype: torch.dtype = torch.float32  # of running means of gradients

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """The scale of the loss, if it is not constant: all else is a variable of Keras."""
        return () if self.scaling is None else ("loss_scaling",)

    @property
    def loss_scaling(self) -> float | None:
        return 1.0 if self.scaling is None else None

    @property
    def sets_loss_scale(self) -> bool:
        return self.scaling is not None

    def loss_scaling_in(self, hyper: Sequence[Number]) -> Number:
        """What the loss is multiplied with."""
        return 1.0 if self.scaling is None else hyper[-1]

    def must_recapture(self, before: Sequence[float], after: Sequence[float]) -> bool:  # noqa: ARG002
        """Never: the scale of the loss is a tensor on the device."""
        return False

    @property
    def state_variables(self) -> list[keras.Variable]:
        """The variables of the optimiser, then the counters, in the order of the states."""
        return [*self.optimizer.variables, *self.counters]

    def initial_state(self, params: Sequence[Tensor]) -> list[Tensor]:
        """The values that the optimiser's variables have now."""
        device = params[0].device if params else None
        return [v.value.detach().clone().to(device) for v in self.state_variables]

    def state_names(self) -> tuple[str, ...]:
        """The paths of the optimiser's variables."""
        return tuple(variable.path for variable in self.state_variables)

    def state_owners(self) -> tuple[str | None, ...]:
        """The weight that each of the optimiser's variables belongs to; None for counters."""
        return self.owners

    def state_kinds(self) -> tuple[str, ...]:
        """The attribute of the optimiser that lists a variable; for one in no list, its path."""
        return self.kinds

    def restricted(self, indices: Sequence[int]) -> "KerasRule":
        """The rule of the weights that have a gradient."""
        return replace(
            self,
            names=tuple(self.names[i] for i in indices),
            trained=tuple(self.trained[i] for i in indices),
        )

    def update(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Number],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """New weights and new states."""
        n_counters, counters = len(self.counters), []
        if self.scaling is not None:
            _, counters = self.scaling.after(grads, hyper[-1], states[len(states) - n_counters :])
            states = states[: len(states) - n_counters]
            grads = [grad / hyper[-1] for grad in grads]
        flat = [*params, *grads, *states]
        new = self._formulas(*flat) if active() is not None else self._compiled(flat)(*flat)
        return list(new[: len(params)]), [*new[len(params) :], *counters]

    def _formulas(self, *flat: Tensor) -> list[Tensor]:
        """What the optimiser makes of weights, gradients and states."""
        n = len(self.trained)
        params, grads, states = flat[:n], flat[n : 2 * n], flat[2 * n :]
        variables = [*self.trained, *self.optimizer.variables]
        with functional_updates(), variables_set_to(variables, [*params, *states]) as scope:
            self._apply(list(grads))
        result = [scope.state_mapping[id(variable)] for variable in variables]
        return [new.to(old.dtype) for new, old in zip(result, (*params, *states), strict=True)]

    def _apply(self, grads: list[Tensor]) -> None:
        """The update; where the scale of the loss changes, only by finite gradients."""
        if self.scaling is None or isinstance(self.scaling, ConstantScale):
            self.optimizer.apply(grads, list(self.trained))
            return
        both_branches(
            are_finite(grads),
            lambda: self.optimizer.apply(grads, list(self.trained)),
            lambda: None,
        )

    def next_loss_scale(
        self, grads: Sequence[Tensor], hyper: Sequence[Tensor], states: Sequence[Tensor]
    ) -> Tensor | None:
        """What the scaling makes of these gradients; None without one."""
        if self.scaling is None or not grads:
            return None
        counters = states[len(states) - len(self.counters) :]
        return self.scaling.after(grads, hyper[-1], counters)[0]

    def _compiled(self, flat: Sequence[Tensor]) -> Callable[..., list[Tensor]]:
        """The formulas without Keras, made when the first step is updated."""
        if "function" not in self._cache:
            clones = [tensor.detach().clone() for tensor in flat]
            self._cache["function"] = traced(self._formulas, *clones)
        return self._cache["function"]

    @cached_property
    def _cache(self) -> dict[str, Callable[..., list[Tensor]]]:
        return {}


def rule_of(
    optimizer: BaseOptimizer, trained: Sequence[ModelVariable], names: Sequence[str]
) -> KerasRule:
    """The rule of an optimiser that is built, for variables known to the step by these names."""
    scaling, counters = scaling_of(optimizer)
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if is_scaled else optimizer
    name_of = {id(variable): name for variable, name in zip(trained, names, strict=True)}
    states = [*inner.variables, *counters]
    listed = _listed_states(inner)
    weight_of = {state: name_of.get(weight) for state, (_, weight) in listed.items()}
    return KerasRule(
        kind=type(optimizer).__name__,
        names=tuple(names),
        optimizer=inner,
        trained=tuple(trained),
        scaling=scaling,
        counters=counters,
        owners=tuple(weight_of.get(id(state)) for state in states),
        kinds=tuple(listed[id(s)][0] if id(s) in listed else s.path for s in states),
    )


def _listed_states(optimizer: BaseOptimizer) -> dict[int, tuple[str, int]]:
    """By the `id` of each state of a weight: which kind of state it is, and the weight's `id`.

    An optimiser of Keras has a list for each kind of state, in the order of the variables that it
    was built for. Optimisers may hold others, each for some of the variables.
    """
    result: dict[int, tuple[str, int]] = {}
    for part in (optimizer, *getattr(optimizer, "optimizers", ())):
        weights = part._trainable_variables
        for attribute, of_kind in vars(part).items():
            is_list = isinstance(of_kind, list) and attribute != "_variables"  # those of all kinds
            if is_list and len(of_kind) == len(weights):
                kind = f"{type(part).__name__}.{attribute}"
                pairs = zip(of_kind, weights, strict=True)
                result.update({id(state): (kind, id(weight)) for state, weight in pairs})
    return result
