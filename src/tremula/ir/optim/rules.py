"""What a weight update is: one rule, for the graph that goes to tiles and for the host in place.

A rule knows no values that may change: those are 0-dim float32 graph inputs, in the fixed order of
`hyper_names`. So a new learning rate needs no compilation, and equal rules mean equal programs.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from tremula.ir.optim.math import (
    MATHEMATICS,
    Number,
    Updated,
    Weight,
    bias_corrections,
    clip_divisor,
    dampening_factors,
    norm_of_all,
)
from tremula.ir.optim.settings import AutomaticLossScaling, FixedFacts, Settings, settings_of


@dataclass(frozen=True)
class StateSlot:
    """One state tensor: PopART's prefix of its name, the weight it belongs to, how it starts."""

    prefix: str
    param: int
    dtype: torch.dtype
    initial_value: float

    @property
    def is_step(self) -> bool:
        return self.prefix == "Step"


@dataclass(frozen=True)
class UpdateRule:
    """The update of the trained weights `names`; weight i is in parameter group `group_of[i]`.

    All lists of weights, gradients and states that a rule takes or gives are in the order of
    `names` and `slots`. Weights of a model that are not in `names` are not updated.
    """

    facts: FixedFacts
    names: tuple[str, ...]
    group_of: tuple[int, ...]
    constants: tuple[tuple[tuple[str, float], ...], ...]  # of each group
    variables: tuple[tuple[str, ...], ...]  # of each group, in the order of graph inputs
    nesterov: tuple[bool, ...]  # of each group
    maximize: tuple[bool, ...]  # of each group
    loss_scaling: float | None  # None: variable
    automatic: AutomaticLossScaling | None = None  # sets the scale after each step

    @property
    def kind(self) -> str:
        """sgd, adam, adamw, rmsprop or lamb."""
        return self.facts.kind

    @property
    def mathematics(self) -> Callable[[Weight], Updated]:
        """The update of one weight."""
        return MATHEMATICS[self.kind]

    @property
    def n_groups(self) -> int:
        return len(self.constants)

    @cached_property
    def hyper_names(self) -> tuple[str, ...]:
        """The run-time scalars: `lr_group0`, …, and last `loss_scaling`, where it may change."""
        names = [f"{n}_group{g}" for g in range(self.n_groups) for n in self.variables[g]]
        return (*names, *(["loss_scaling"] if self.loss_scaling is None else []))

    def hyper_values(self, optimizer: torch.optim.Optimizer) -> list[float]:
        """The values of `hyper_names` that `optimizer` has now."""
        return self.values_in(settings_of(optimizer))

    def values_in(self, settings: Settings) -> list[float]:
        """The values of `hyper_names` in settings that this rule was made for."""
        values = [
            group.hyper(name).value
            for group, names in zip(settings.groups, self.variables, strict=True)
            for name in names
        ]
        return values + ([settings.loss_scaling.value] if self.loss_scaling is None else [])

    def numbers_of(self, group: int, hyper: Sequence[Number]) -> dict[str, Number]:
        """All numbers of a group by name: constants as floats, variables as they are in `hyper`."""
        start = sum(map(len, self.variables[:group]))
        variables = zip(self.variables[group], hyper[start:], strict=False)
        return {**dict(self.constants[group]), **dict(variables)}

    def scaled_automatically(self, how: AutomaticLossScaling) -> "UpdateRule":
        """The same rule with a loss scaling that is variable and follows the gradients."""
        return replace(self, loss_scaling=None, automatic=how)

    def next_loss_scale(
        self,
        grads: Sequence[Tensor],
        hyper: Sequence[Tensor],
        states: Sequence[Tensor],  # noqa: ARG002 - for rules that count steps
    ) -> Tensor | None:
        """The scale that follows from these gradients, or None if it stays as it is."""
        if self.automatic is None or not grads:
            return None
        return self.automatic.next_scale(hyper[-1], grads)

    def loss_scaling_in(self, hyper: Sequence[Number]) -> Number:
        """The loss scaling: what the loss is to be multiplied with before the backward pass."""
        return hyper[-1] if self.loss_scaling is None else self.loss_scaling

    def members_of(self, group: int) -> tuple[int, ...]:
        """The indices of the weights in a group."""
        return self._members[group]

    @cached_property
    def _members(self) -> tuple[tuple[int, ...], ...]:
        return tuple(
            tuple(i for i, g in enumerate(self.group_of) if g == group)
            for group in range(self.n_groups)
        )

    # --- states ---

    @cached_property
    def slots(self) -> tuple[StateSlot, ...]:
        """The state tensors: all of one prefix, in the order of `names`, then all of the next."""
        dtype1, dtype2 = self.facts.first_order_dtype, self.facts.second_order_dtype
        if self.kind == "sgd":
            return (
                *self._make_slots("Accl1", dtype1, self._groups_that_use("momentum")),
                *self._make_slots("Step", torch.float32, self._damped_groups),
            )
        if self.kind == "rmsprop":
            start = 1.0 if self.facts.use_tf_variant else 0.0
            return (
                *self._make_slots("Accl1", dtype2, initial_value=start),
                *(self._make_slots("Accl2", dtype1) if self.facts.centered else ()),
                *self._make_slots("Accl3", dtype1, self._groups_that_use("momentum")),
            )
        return (
            *self._make_slots("Accl1", dtype1),
            *self._make_slots("Accl2", dtype2),
            *(self._make_slots("Step", torch.float32) if self.corrects_bias else ()),
        )

    def _make_slots(
        self,
        prefix: str,
        dtype: torch.dtype,
        groups: set[int] | None = None,
        initial_value: float = 0.0,
    ) -> list[StateSlot]:
        return [
            StateSlot(prefix, i, dtype, initial_value)
            for i, group in enumerate(self.group_of)
            if groups is None or group in groups
        ]

    @property
    def corrects_bias(self) -> bool:
        """True if early momenta are scaled up; the no-bias AdamW does it too, as PopTorch's did."""
        return self.kind in {"adam", "adamw"} or (
            self.kind == "lamb" and self.facts.bias_correction
        )

    def _groups_that_use(self, name: str) -> set[int]:
        """The groups in which a number may be non-zero."""
        return {g for g in range(self.n_groups) if dict(self.constants[g]).get(name, None) != 0.0}

    @property
    def _damped_groups(self) -> set[int]:
        return self._groups_that_use("momentum") & self._groups_that_use("dampening")

    @cached_property
    def positions(self) -> dict[str, dict[int, int]]:
        """The position in the flat list of each state: by its prefix, then by its weight."""
        places: dict[str, dict[int, int]] = {}
        for position, slot in enumerate(self.slots):
            places.setdefault(slot.prefix, {})[slot.param] = position
        return places

    def initial_state(self, params: Sequence[Tensor]) -> list[Tensor]:
        """The states before the first step, each laid out as its weight is, on its device."""
        return [
            torch.zeros((), dtype=slot.dtype, device=params[slot.param].device)
            if slot.is_step
            else torch.full_like(
                params[slot.param], slot.initial_value, dtype=slot.dtype, requires_grad=False
            )
            for slot in self.slots
        ]

    def state_names(self, param_names: Sequence[str] | None = None) -> tuple[str, ...]:
        """PopART's names of the states, `Accl1___<weight>`, …; the weights may have other names."""
        names = self.names if param_names is None else param_names
        return tuple(f"{slot.prefix}___{names[slot.param]}" for slot in self.slots)

    def state_owners(self) -> tuple[str | None, ...]:
        """The weight that each state belongs to, by its name in the captured step."""
        return tuple(self.names[slot.param] for slot in self.slots)

    # --- updates ---

    def update(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Number],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """New weights and new states, by simple functional operations only.

        `grads` are those of the scaled loss, reduced over replicas and accumulation. Halves are
        computed in float32 and rounded once, when a weight or state is stored.
        """
        divisor = self.gradient_divisor(grads, hyper, norm_of_all)
        new_steps, scalars = self._step_scalars(states, hyper)
        new_params, new_states = [], list(states)
        for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
            true_grad = grad if divisor is None else _float32(grad) / divisor
            new_param, changed = self._update_one(i, param, true_grad, states, hyper, scalars[i])
            new_params.append(new_param.to(param.dtype))
            for prefix, state in changed.items():
                position = self.positions[prefix][i]
                new_states[position] = state.to(self.slots[position].dtype)
        for position, step in new_steps.items():
            new_states[position] = step
        return new_params, new_states

    def _update_one(
        self,
        i: int,
        param: Tensor,
        grad: Tensor,
        states: Sequence[Tensor],
        hyper: Sequence[Number],
        scalars: tuple[Tensor, ...],
    ) -> Updated:
        group = self.group_of[i]
        grad = _float32(grad)
        own_states = {
            prefix: _float32(states[of_param[i]])
            for prefix, of_param in self.positions.items()
            if i in of_param
        }
        weight = Weight(
            _float32(param),
            torch.neg(grad) if self.maximize[group] else grad,
            own_states,
            self.numbers_of(group, hyper),
            scalars,
            self.nesterov[group],
            self.facts.use_tf_variant,
        )
        return self.mathematics(weight)

    def gradient_divisor(
        self,
        grads: Sequence[Tensor],
        hyper: Sequence[Number],
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> Number | None:
        """What undoes loss scaling and clips to `max_grad_norm`; None where neither is in use."""
        loss_scaling = self.loss_scaling_in(hyper)
        if self.facts.max_grad_norm != float("inf") and grads:
            return clip_divisor(norm(grads), self.facts.max_grad_norm, loss_scaling)
        is_used = isinstance(loss_scaling, Tensor) or loss_scaling != 1
        return loss_scaling if is_used else None

    def _step_scalars(
        self, states: Sequence[Tensor], hyper: Sequence[Number]
    ) -> tuple[dict[int, Tensor], list[tuple[Tensor, ...]]]:
        """The steps after this one by position, and the scalars of each weight that follow.

        The steps of a group are one vector meanwhile: a few small operations instead of a few per
        weight.
        """
        new_steps: dict[int, Tensor] = {}
        scalars: list[tuple[Tensor, ...]] = [()] * len(self.names)
        step_positions = self.positions.get("Step", {})
        for group in range(self.n_groups):
            members = [i for i in self.members_of(group) if i in step_positions]
            if not members:
                continue
            places = [step_positions[i] for i in members]
            steps = torch.cat([states[place].reshape(1) for place in places]) + 1
            vectors = self._scalar_vectors(self.numbers_of(group, hyper), steps)
            for k, i in enumerate(members):
                new_steps[places[k]] = steps[k]
                scalars[i] = tuple(vector[k] for vector in vectors)
        return new_steps, scalars

    def _scalar_vectors(self, numbers: Mapping[str, Number], steps: Tensor) -> tuple[Tensor, ...]:
        if self.kind == "sgd":
            return dampening_factors(numbers, steps)
        first, second = bias_corrections(numbers, steps)
        return (first, second) if self.kind == "lamb" else (first * numbers["lr"], second)

    def must_recapture(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """True if a CUDA graph of `update_in_place` holds a value that has since changed."""
        return any(
            old != new and not name.startswith(("lr_group", "loss_scaling"))
            for name, old, new in zip(self.hyper_names, before, after, strict=True)
        )

    # --- changing optimisers ---

    def renamed(self, names: Sequence[str]) -> "UpdateRule":
        """The same rule for the same weights under other names."""
        assert len(names) == len(self.names), "one name per trained weight"
        return replace(self, names=tuple(names))

    def restricted(self, kept: Sequence[int]) -> "UpdateRule":
        """The same rule for some of its weights only: those that have a gradient."""
        return replace(
            self,
            names=tuple(self.names[i] for i in kept),
            group_of=tuple(self.group_of[i] for i in kept),
        )

    def by_weight(self) -> "UpdateRule":
        """The same rule with a group for each weight, so that each has numbers of its own."""
        return replace(
            self,
            group_of=tuple(range(len(self.names))),
            constants=tuple(self.constants[g] for g in self.group_of),
            variables=tuple(self.variables[g] for g in self.group_of),
            nesterov=tuple(self.nesterov[g] for g in self.group_of),
            maximize=tuple(self.maximize[g] for g in self.group_of),
        )

    def values_by_weight(self, hyper: Sequence[float]) -> list[float]:
        """The values of `by_weight().hyper_names` that are those of the groups in `hyper`."""
        values = [
            float(self.numbers_of(group, hyper)[name])
            for group in self.group_of
            for name in self.variables[group]
        ]
        return values + ([float(hyper[-1])] if self.loss_scaling is None else [])

    def changed_constants(self, settings: Settings) -> list[str]:
        """Which of this rule's constants `settings` would change, in words; [] if none."""
        result = []
        if self.loss_scaling not in {None, settings.loss_scaling.value}:
            result.append(f"loss_scaling: {self.loss_scaling:g} -> {settings.loss_scaling.value:g}")
        for g, group in enumerate(settings.groups[: self.n_groups]):
            new = {name: hyper.value for name, hyper in group.hypers}
            result += [
                f"{name} of group {g}: {old:.8g} -> {new[name]:.8g}"
                for name, old in self.constants[g]
                if np.float32(new[name]) != np.float32(old)  # as the device has them
            ]
            switches = {"nesterov": self.nesterov[g], "maximize": self.maximize[g]}
            result += [
                f"{name} of group {g}: {old} -> {getattr(group, name)}"
                for name, old in switches.items()
                if getattr(group, name) != old
            ]
        return result


def rule_from(
    optimizer: torch.optim.Optimizer, named_parameters: Iterable[tuple[str, Tensor]]
) -> UpdateRule:
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
    groups = settings.groups
    return UpdateRule(
        facts=settings.facts,
        names=tuple(trained.values()),
        group_of=tuple(group_of_id[key] for key in trained),
        constants=tuple(
            tuple((name, h.value) for name, h in group.hypers if h.is_constant) for group in groups
        ),
        variables=tuple(
            tuple(name for name, h in group.hypers if not h.is_constant) for group in groups
        ),
        nesterov=tuple(group.nesterov for group in groups),
        maximize=tuple(group.maximize for group in groups),
        loss_scaling=settings.loss_scaling.value if settings.loss_scaling.is_constant else None,
    )


def _float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float32 else tensor.to(torch.float32)
