"""From an optimiser to the rule by which a compiled step updates its weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

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
from tremula.frontends.popart.optimisers.formulas import Formula, State
from tremula.frontends.popart.optimisers.optimisers import (
    LOSS_SCALING,
    SGD,
    Adam,
    Adaptive,
    Optimizer,
)
from tremula.ir.optim.math import Number, Updated, Weight, norm_of_all
from tremula.ir.optim.rules import StateSlot, UpdateRule
from tremula.ir.optim.settings import FixedFacts

_TYPES = {DataType.FLOAT: torch.float32, DataType.FLOAT16: torch.float16}
_NOTHING = Formula("", (), formulas.plain_sgd)


@dataclass(frozen=True)
class PopartRule(UpdateRule):
    """The update by one of PopART's formulas, with gradients clipped in groups."""

    formula: Formula = _NOTHING
    dtypes: tuple[torch.dtype, ...] = ()  # of the weights
    # Which weights are clipped together, by their places, and to which length.
    clips: tuple[tuple[tuple[int, ...], float], ...] = field(default=())

    @property
    def mathematics(self) -> Callable[[Weight], Updated]:
        """The update of one weight."""
        return self.formula.compute

    @cached_property
    def slots(self) -> tuple[StateSlot, ...]:
        """The state tensors: all of one prefix, then all of the next; steps last."""
        places = range(len(self.names))
        states = [
            StateSlot(state.prefix, i, state.dtype or self.dtypes[i], state.initial)
            for state in self.formula.states
            for i in places
        ]
        steps = places if self.formula.counts_steps else ()
        return (*states, *(StateSlot("Step", i, torch.float32, 0.0) for i in steps))

    def _scalar_vectors(self, numbers: Mapping[str, Number], steps: Tensor) -> tuple[Tensor, ...]:
        return formulas.step_scalars(dict(numbers), steps)

    def restricted(self, kept: Sequence[int]) -> "PopartRule":
        """The same rule for some of its weights only."""
        result = super().restricted(kept)
        place = {old: new for new, old in enumerate(kept)}
        clips = tuple(
            (tuple(place[i] for i in members if i in place), longest)
            for members, longest in self.clips
        )
        dtypes = tuple(self.dtypes[i] for i in kept)
        return PopartRule(**{**vars_of(result), "clips": clips, "dtypes": dtypes})

    def update(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Number],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """New weights and new states, from gradients that are clipped first."""
        return super().update(params, self._clipped(grads, hyper), states, hyper)

    def _clipped(self, grads: Sequence[Tensor], hyper: Sequence[Number]) -> list[Tensor]:
        result = list(grads)
        for members, longest in self.clips:
            if members:
                length = norm_of_all([grads[i] for i in members]) / self.loss_scaling_in(hyper)
                factor = longest / length.clamp(min=longest)
                for i in members:
                    result[i] = result[i] * factor.to(result[i].dtype)
        return result

    def first_states(
        self, params: Sequence[Tensor], numbers: Sequence[Mapping[str, float]]
    ) -> list[Tensor]:
        """The states before the first step; `numbers` are those of each weight."""
        result = self.initial_state(params)
        if self.formula.compute is formulas.combined_sgd:
            for position, slot in enumerate(self.slots):
                first = formulas.first_velocity(params[slot.param], dict(numbers[slot.param]))
                result[position].copy_(first)
        return result


def vars_of(rule: UpdateRule) -> dict:
    """The fields of a rule by name."""
    return {name: getattr(rule, name) for name in rule.__dataclass_fields__}


def rule_of(
    optimizer: Optimizer, weights: Mapping[str, tuple[str, torch.dtype]], *, accumulates: bool
) -> PopartRule:
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
    return PopartRule(
        facts=_facts(optimizer),
        names=tuple(name for name, _ in weights.values()),
        group_of=tuple(groups.index(id) if id in optimizer.specific else 0 for id in ids),
        constants=tuple(_numbers(optimizer, id, constant=True) for id in groups),
        variables=tuple(
            tuple(name for name, _ in _numbers(optimizer, id, constant=False)) for id in groups
        ),
        nesterov=tuple(getattr(optimizer, "nesterov", False) for _ in groups),
        maximize=tuple(False for _ in groups),
        loss_scaling=scaling.val() if scaling.isConst() else None,
        formula=_formula(optimizer, accumulates=accumulates),
        dtypes=tuple(dtype for _, dtype in weights.values()),
        clips=tuple(
            (
                tuple(i for i, id in enumerate(ids) if not c.weightIds or id in c.weightIds),
                c.maxNorm,
            )
            for c in optimizer.clips
        ),
    )


def hyper_values(optimizer: Optimizer, ids: Sequence[str], rule: UpdateRule) -> list[float]:
    """The values of the rule's variable numbers that an optimiser has now."""
    groups = ["", *(id for id in ids if id in optimizer.specific)]
    result = [
        optimizer.value(name, id).val()
        for id, names in zip(groups, rule.variables, strict=True)
        for name in names
    ]
    return result + ([optimizer.getLossScalingVal()] if rule.loss_scaling is None else [])


def numbers_by_weight(optimizer: Optimizer, ids: Sequence[str]) -> list[dict[str, float]]:
    """All numbers of each weight."""
    return [{n: optimizer.value(n, id).val() for n in optimizer.numbers} for id in ids]


def _numbers(optimizer: Optimizer, id: str, *, constant: bool) -> tuple[tuple[str, float], ...]:
    values = [(name, optimizer.value(name, id)) for name in optimizer.numbers]
    return tuple((name, v.val()) for name, v in values if v.isConst() is constant)


def _facts(optimizer: Optimizer) -> FixedFacts:
    accum = _TYPES.get(getattr(optimizer, "accum_type", DataType.UNDEFINED), torch.float32)
    return FixedFacts(
        kind="popart",
        variant=str(optimizer.fixed_facts()),
        centered=False,
        use_tf_variant=False,
        bias_correction=False,
        use_combined_accum=False,
        accum_dtype=accum,
        first_order_dtype=torch.float32,
        second_order_dtype=torch.float32,
        max_grad_norm=float("inf"),
    )


def _formula(optimizer: Optimizer, *, accumulates: bool) -> Formula:
    if isinstance(optimizer, SGD):
        return _sgd_formula(optimizer, accumulates)
    if isinstance(optimizer, Adam):
        has_bias = optimizer.mode in (AdamMode.Adam, AdamMode.AdaMax, AdamMode.Lamb)
        return Formula(
            optimizer.mode.name,
            (_state("Accl1", optimizer.accl1_type), _state("Accl2", optimizer.accl2_type)),
            formulas.adam(optimizer.mode, optimizer.weight_decay_mode),
            counts_steps=has_bias,
        )
    if isinstance(optimizer, Adaptive):
        return _adaptive_formula(optimizer)
    raise popart_exception(
        f"{type(optimizer).__name__} is no optimizer of PopART's: SGD, ConstSGD, Adam or Adaptive"
    )


def _sgd_formula(optimizer: SGD, accumulates: bool) -> Formula:
    uses = [optimizer.defaults["momentum"]]
    uses += [values["momentum"] for values in optimizer.specific.values() if "momentum" in values]
    has_velocity = any(value.val() != 0 or not value.isConst() for value in uses)
    if not has_velocity and not (accumulates and _is_combined(optimizer)):
        return Formula("SGD0", (), formulas.plain_sgd)
    state = (_state("Accl1", optimizer.accl1_type),)
    if _is_combined(optimizer):
        return Formula("SGD1", state, formulas.combined_sgd)
    return Formula("SGD2", state, formulas.separate_sgd)


def _is_combined(optimizer: SGD) -> bool:
    """Nesterov's step needs the velocity before it holds what comes next."""
    return optimizer.mode is SGDAccumulatorAndMomentum.Combined and not optimizer.nesterov


def _adaptive_formula(optimizer: Adaptive) -> Formula:
    start = 1.0 if optimizer.rmsprop_tf_variant else 0.0
    states = [_state("Accl1", optimizer.accl1_type, start)]
    if optimizer.mode in (AdaptiveMode.CenteredRMSProp, AdaptiveMode.AdaDelta):
        states.append(_state("Accl2", optimizer.accl2_type))
    momenta = optimizer.momentums()
    numbers = [momenta.getDefault(), *(momenta.get(id) for id in optimizer.specific)]
    if any(value.val() != 0 or not value.isConst() for value in numbers):
        states.append(_state("Accl3", optimizer.accl3_type))
    return Formula(
        optimizer.mode.name,
        tuple(states),
        formulas.adaptive(
            optimizer.mode,
            optimizer.weight_decay_mode,
            is_tensorflows=optimizer.rmsprop_tf_variant,
        ),
    )


def _state(prefix: str, kind: DataType, initial: float = 0.0) -> State:
    return State(prefix, _TYPES.get(kind), initial)


__all__ = ["LOSS_SCALING", "PopartRule", "hyper_values", "numbers_by_weight", "rule_of"]
