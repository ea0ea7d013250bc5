"""The update of a Keras optimiser as the rule of a compiled step.

The step holds the optimiser's own formulas, recorded once. On this computer they are recorded once
more, as a function of real tensors, so that a step does not run Keras's Python code.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import keras
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from tremula.frontends.keras.tracing import both_branches, functional_updates, held_as
from tremula.ir.optim.math import Number
from tremula.ir.optim.rules import Slot, UpdateRule
from tremula.ir.optim.settings import FixedFacts
from tremula.ir.recording import active


@dataclass(frozen=True)
class KerasRule(UpdateRule):
    """The update of `trained` by an optimiser whose variables are the states of the step."""

    optimizer: Any = field(default=None, compare=False, repr=False)
    trained: tuple[Any, ...] = field(default=(), compare=False, repr=False)
    # Finite steps after which the scale of the loss has doubled; with a scale of 1, none.
    growth_steps: int = 0

    @property
    def held(self) -> list[Any]:
        """The variables of the optimiser, in the order of the states."""
        return list(self.optimizer.variables)

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """None by weight: which state belongs to which weight is the optimiser's own affair."""
        return ()

    def initial_state(self, params: Sequence[Tensor]) -> list[Tensor]:
        """The values that the optimiser's variables have now."""
        device = params[0].device if params else None
        return [v.value.detach().clone().to(device) for v in self.held]

    def state_names(self, param_names: Sequence[str] | None = None) -> tuple[str, ...]:
        """The paths of the optimiser's variables."""
        del param_names
        return tuple(variable.path for variable in self.held)

    def restricted(self, kept: Sequence[int]) -> "KerasRule":
        """The same rule for the weights that have a gradient."""
        base = super().restricted(kept)
        fields = {name: getattr(base, name) for name in base.__dataclass_fields__}
        return KerasRule(**{**fields, "trained": tuple(self.trained[i] for i in kept)})

    def update(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Number],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """New weights and new states."""
        if self.loss_scaling is None:
            grads = [grad / hyper[-1] for grad in grads]
        flat = [*params, *grads, *states]
        new = self._formulas(*flat) if active() is not None else self._compiled(flat)(*flat)
        return list(new[: len(params)]), list(new[len(params) :])

    def _formulas(self, *flat: Tensor) -> list[Tensor]:
        """What the optimiser makes of weights, gradients and states."""
        n = len(self.trained)
        params, grads, states = flat[:n], flat[n : 2 * n], flat[2 * n :]
        variables = [*self.trained, *self.held]
        with functional_updates(), held_as(variables, [*params, *states]) as scope:
            self._apply(list(grads))
        found = [scope.state_mapping[id(variable)] for variable in variables]
        return [new.to(old.dtype) for new, old in zip(found, (*params, *states), strict=True)]

    def _apply(self, grads: list[Tensor]) -> None:
        """The update; where the loss is scaled, only by finite gradients."""
        if self.loss_scaling is not None:
            self.optimizer.apply(grads, list(self.trained))
            return
        both_branches(
            _are_finite(grads),
            lambda: self.optimizer.apply(grads, list(self.trained)),
            lambda: None,
        )

    def next_loss_scale(self, grads: Sequence[Tensor], hyper: Sequence[Tensor]) -> Tensor | None:
        """Half of the scale after an overflow, else a little more."""
        if self.loss_scaling is not None or not grads:
            return None
        factor = torch.where(_are_finite(grads), 2.0 ** (1.0 / self.growth_steps), 0.5)
        return hyper[-1] * factor.to(hyper[-1].dtype)

    def _compiled(self, flat: Sequence[Tensor]) -> Callable[..., list[Tensor]]:
        """The formulas without Keras, made when the first step is updated."""
        if "function" not in self._cache:
            clones = [tensor.detach().clone() for tensor in flat]
            self._cache["function"] = make_fx(self._formulas)(*clones)
        return self._cache["function"]

    @cached_property
    def _cache(self) -> dict[str, Callable[..., list[Tensor]]]:
        return {}


def _are_finite(tensors: Sequence[Tensor]) -> Tensor:
    return torch.stack([torch.isfinite(tensor).all() for tensor in tensors]).all()


def rule_of(optimizer: Any, trained: Sequence[Any], names: Sequence[str]) -> KerasRule:  # noqa: ANN401
    """The rule of an optimiser that is built, for variables known to the step by these names."""
    is_scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
    inner = optimizer.inner_optimizer if is_scaled else optimizer
    return KerasRule(
        facts=FixedFacts(
            kind="keras",
            variant=f"{type(optimizer).__name__} {optimizer.get_config()}",
            centered=False,
            use_tf_variant=False,
            bias_correction=False,
            use_combined_accum=False,
            accum_dtype=torch.float32,
            first_order_dtype=torch.float32,
            second_order_dtype=torch.float32,
            max_grad_norm=float("inf"),
        ),
        names=tuple(names),
        group_of=tuple(0 for _ in names),
        constants=((),),
        variables=((),),
        nesterov=(False,),
        maximize=(False,),
        loss_scaling=None if is_scaled else 1.0,
        optimizer=inner,
        trained=tuple(trained),
        growth_steps=optimizer.dynamic_growth_steps if is_scaled else 0,
    )
