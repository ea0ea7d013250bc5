"""An update rule with PyTorch's parameter groups: one formula, hyperparameters for each group.

It serves the functional graph that goes to tiles, and `in_place` updates on the host.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TypeVar

import torch
from torch import Tensor

from tremula.ir.optim.formulas import Formula, WeightToUpdate, clip_divisor, norm_of_all
from tremula.ir.optim.rule import Number
from tremula.ir.recording import active

N = TypeVar("N", bound=Number)
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


@dataclass(frozen=True)
class ParameterGroup:
    """Weights with the same hyperparameters: which are constant, and which may change."""

    constants: tuple[tuple[str, float], ...] = ()
    variables: tuple[str, ...] = ()  # in the order of graph inputs
    nesterov: bool = False
    maximize: bool = False

    def is_off(self, name: str) -> bool:
        """Whether a hyperparameter is the constant 0."""
        return self._constants.get(name) == 0.0

    @cached_property
    def _constants(self) -> dict[str, float]:
        return dict(self.constants)


@dataclass(frozen=True)
class StateSlot:
    """One state tensor: the prefix of its name, the index of its weight, how it starts."""

    prefix: str
    param: int
    dtype: torch.dtype
    initial_value: float

    @property
    def is_step(self) -> bool:
        return self.prefix == "Step"


@dataclass(frozen=True)
class GroupedRule:
    """The update of the weights `names` by a formula; weight i is in group `group_of[i]`.

    All lists of weights, gradients and states that a rule takes or returns are in the order of
    `names` and `slots`. Weights of a model that are not in `names` are not updated.
    """

    formula: Formula
    names: tuple[str, ...]
    group_of: tuple[int, ...]
    groups: tuple[ParameterGroup, ...]
    loss_scaling: float | None = 1.0  # None: variable
    automatic: AutomaticLossScaling | None = None  # sets the loss scale after each step
    accum_dtype: torch.dtype = torch.float32  # of running means of gradients
    max_grad_norm: float = float("inf")  # of all gradients together
    dtypes: tuple[torch.dtype, ...] = ()  # of the weights, for states that have the same type
    # Weights whose gradients are clipped together, by index, and to which norm.
    clips: tuple[tuple[tuple[int, ...], float], ...] = ()

    @property
    def sets_loss_scale(self) -> bool:
        return self.automatic is not None

    @property
    def n_groups(self) -> int:
        return len(self.groups)

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """The run-time scalars: `lr_group0`, …, and last `loss_scaling`, where it may change."""
        names = [f"{n}_group{g}" for g, group in enumerate(self.groups) for n in group.variables]
        return (*names, *(["loss_scaling"] if self.loss_scaling is None else []))

    def hyperparameters(self, group: int, hyper: Sequence[N]) -> dict[str, float | N]:
        """Those of a group by name: constants as floats, variables as they are in `hyper`."""
        return {**dict(self.groups[group].constants), **self.variables(group, hyper)}

    def variables(self, group: int, hyper: Sequence[N]) -> dict[str, N]:
        """The variables of a group by name, as they are in `hyper`."""
        start = sum(len(before.variables) for before in self.groups[:group])
        return dict(zip(self.groups[group].variables, hyper[start:], strict=False))

    def scaled_automatically(self, how: AutomaticLossScaling) -> "GroupedRule":
        """This rule with a loss scaling that is variable and follows the gradients."""
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
        return tuple(
            StateSlot(kind.prefix, i, kind.dtype or self.dtypes[i], kind.initial_value)
            for kind in self.formula.states
            for i, group in enumerate(self.group_of)
            if not any(self.groups[group].is_off(name) for name in kind.needs)
        )

    @cached_property
    def positions(self) -> dict[str, dict[int, int]]:
        """The position in the flat list of each state: by its prefix, then by its weight."""
        result: dict[str, dict[int, int]] = {}
        for position, slot in enumerate(self.slots):
            result.setdefault(slot.prefix, {})[slot.param] = position
        return result

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

    def state_kinds(self) -> tuple[str, ...]:
        """PopART's prefix of each state."""
        return tuple(slot.prefix for slot in self.slots)

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
        grads = self._clipped(grads, hyper)
        divisor = self.gradient_divisor(grads, hyper, norm_of_all)
        new_steps, scalars = self._step_scalars(states, hyper)
        new_params, new_states = [], list(states)
        for i, (param, grad) in enumerate(zip(params, grads, strict=True)):
            positions = [of_param[i] for of_param in self.positions.values() if i in of_param]
            own = [param, grad, *(states[position] for position in positions), *scalars[i]]
            update = partial(self._updated, i, hyper=hyper, divisor=divisor)
            # Weights of one shape and group are updated alike: recorded once, then copied.
            new_param, *changed = _calls_once((self.group_of[i], len(positions)), update, own)
            new_params.append(new_param)
            for position, state in zip(positions, changed, strict=True):
                new_states[position] = state
        for position, step in new_steps.items():
            new_states[position] = step
        return new_params, new_states

    def _updated(
        self, i: int, own: Sequence[Tensor], *, hyper: Sequence[Number], divisor: Number | None
    ) -> list[Tensor]:
        """The new weight and states of weight i, from its value, gradient, states and scalars."""
        group = self.groups[self.group_of[i]]
        prefixes = [prefix for prefix, of_param in self.positions.items() if i in of_param]
        param, grad, states = own[0], own[1], own[2 : 2 + len(prefixes)]
        grad = _float32(grad if divisor is None else _float32(grad) / divisor)
        of_weight = {p: _float32(s) for p, s in zip(prefixes, states, strict=True)}
        weight = WeightToUpdate(
            _float32(param),
            torch.neg(grad) if group.maximize else grad,
            of_weight,
            self.hyperparameters(self.group_of[i], hyper),
            tuple(own[2 + len(prefixes) :]),
            group.nesterov,
        )
        new_param, changed = self.formula.compute(weight)
        new_param, old = new_param.to(param.dtype), dict(zip(prefixes, states, strict=True))
        new = {prefix: state.to(old[prefix].dtype) for prefix, state in changed.items()}
        return [new_param, *({**old, **new}[prefix] for prefix in prefixes)]

    def _clipped(self, grads: Sequence[Tensor], hyper: Sequence[Number]) -> list[Tensor]:
        """Gradients shortened by `clips`; they keep the loss scaling."""
        result = list(grads)
        for members, longest in self.clips:
            if members:
                length = norm_of_all([grads[i] for i in members]) / self.loss_scaling_in(hyper)
                factor = longest / length.clamp(min=longest)
                for i in members:
                    result[i] = result[i] * factor.to(result[i].dtype)
        return result

    def gradient_divisor(
        self,
        grads: Sequence[Tensor],
        hyper: Sequence[Number],
        norm: Callable[[Sequence[Tensor]], Tensor],
    ) -> Number | None:
        """What undoes loss scaling and clips to `max_grad_norm`; None where neither is in use."""
        loss_scaling = self.loss_scaling_in(hyper)
        if self.max_grad_norm != float("inf") and grads:
            return clip_divisor(norm(grads), self.max_grad_norm, loss_scaling)
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
            positions = [step_positions[i] for i in members]
            steps = torch.cat([states[position].reshape(1) for position in positions]) + 1
            vectors = self.formula.step_scalars(self.hyperparameters(group, hyper), steps)
            for k, i in enumerate(members):
                new_steps[positions[k]] = steps[k]
                scalars[i] = tuple(vector[k] for vector in vectors)
        return new_steps, scalars

    def must_recapture(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """True if a CUDA graph of `update_in_place` holds a value that has since changed."""
        return any(
            old != new and not name.startswith(("lr_group", "loss_scaling"))
            for name, old, new in zip(self.hyper_names, before, after, strict=True)
        )

    # --- other weights and groups ---

    def restricted(self, indices: Sequence[int]) -> "GroupedRule":
        """The rule of some of the weights only: those that have a gradient."""
        new_index = {old: new for new, old in enumerate(indices)}
        clips = tuple(
            (tuple(new_index[i] for i in members if i in new_index), longest)
            for members, longest in self.clips
        )
        return replace(
            self,
            names=tuple(self.names[i] for i in indices),
            group_of=tuple(self.group_of[i] for i in indices),
            dtypes=tuple(self.dtypes[i] for i in indices) if self.dtypes else (),
            clips=clips,
        )

    def by_weight(self) -> "GroupedRule":
        """This rule with a group for each weight, so that each has its own hyperparameters."""
        return replace(
            self,
            group_of=tuple(range(len(self.names))),
            groups=tuple(self.groups[g] for g in self.group_of),
        )

    def values_by_weight(self, hyper: Sequence[float]) -> list[float]:
        """The values of `by_weight().hyper_names` that are those of the groups in `hyper`."""
        values = [
            float(self.hyperparameters(group, hyper)[name])
            for group in self.group_of
            for name in self.groups[group].variables
        ]
        return values + ([float(hyper[-1])] if self.loss_scaling is None else [])


def _calls_once(
    key: tuple[int, ...],
    function: Callable[[Sequence[Tensor]], list[Tensor]],
    tensors: list[Tensor],
) -> list[Tensor]:
    """`function(tensors)`; inside a recording, calls with equal keys and shapes are copied."""
    state = active()
    if state is None or state.recorder is None:
        return function(tensors)
    return state.recorder.repeat(key, function, tensors)


def _float32(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float32 else tensor.to(torch.float32)
