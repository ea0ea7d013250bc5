"""The add-ons' optimisers: Adam, LAMB and SGD with types of states and of arithmetic."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import torch

from tremula.frontends.keras.errors import keras_error

ops: Any = keras.ops  # what is inferred of its functions' types includes None
Value = torch.Tensor  # inside updates
Kind = str | type | np.dtype | torch.dtype | None  # of elements
Rate = float | keras.optimizers.schedules.LearningRateSchedule | Callable[[], float]
__all__ = [
    "AdamIpuOptimizer",
    "IpuOptimizerBase",
    "LAMBIpuOptimizer",
    "SGDIpuOptimizer",
]


class IpuOptimizerBase(keras.optimizers.Optimizer):
    """Types of states and of the arithmetic of updates, which may differ."""

    def __init__(
        self,
        name: str = "IpuOptimizer",
        optimizer_compute_precisions: Sequence[Kind] = ("float32",),
        outline_apply_gradients: bool = False,
        outline_apply_gradients_kwargs: dict[str, object] | None = None,
        learning_rate: Rate = 0.001,
        **kwargs: Any,
    ):
        if "lr" in kwargs:
            learning_rate = kwargs.pop("lr")
        decay = kwargs.pop("decay", 0.0)
        if decay:
            schedules = keras.optimizers.schedules
            learning_rate = schedules.InverseTimeDecay(learning_rate, 1, decay)
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.opt_dtypes = tuple(_name_of(kind) for kind in optimizer_compute_precisions)
        self.outline_apply_gradients = outline_apply_gradients
        self.outline_apply_gradients_kwargs = outline_apply_gradients_kwargs or {}

    def get_slot_dtype(self, var: keras.Variable, slot_name: str) -> Kind:
        """The type of a state; None: the variable's."""
        del slot_name
        return var.dtype

    def states_like(self, variables: Sequence[keras.Variable], name: str) -> list[keras.Variable]:
        """A state of zeros for each variable, in its type."""
        return [
            self.add_variable(
                shape=variable.shape,
                dtype=_name_of(self.get_slot_dtype(variable, name) or variable.dtype),
                initializer="zeros",
                name=f"{variable.name}_{name}",
            )
            for variable in variables
        ]

    def update_step(self, gradient: Value, variable: keras.Variable, learning_rate: Value) -> None:
        raise NotImplementedError("use AdamIpuOptimizer, LAMBIpuOptimizer or SGDIpuOptimizer")

    def _compute(self, value: Value | keras.Variable | float) -> Value:
        return ops.cast(value, self.opt_dtypes[0])

    def get_config(self) -> dict[str, object]:
        own = {
            "optimizer_compute_precisions": self.opt_dtypes,
            "outline_apply_gradients": self.outline_apply_gradients,
            "outline_apply_gradients_kwargs": self.outline_apply_gradients_kwargs,
        }
        return {**super().get_config(), **own}


def _name_of(kind: Kind) -> str | None:
    return None if kind is None else keras.backend.standardize_dtype(kind)


class _Moments(IpuOptimizerBase):
    """Running means of gradients and of their squares."""

    beta_1: float
    beta_2: float
    debiasing: bool
    m_dtype: Kind
    v_dtype: Kind

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._m = self.states_like(variables, "m")
        self._v = self.states_like(variables, "v")

    def get_slot_dtype(self, var: keras.Variable, slot_name: str) -> Kind:
        return {"m": self.m_dtype, "v": self.v_dtype}.get(slot_name) or var.dtype

    def _moments(self, gradient: Value, index: int) -> tuple[Value, Value]:
        """The means after this gradient, corrected if requested."""
        m, v, grad = self._m[index], self._v[index], self._compute(gradient)
        next_m = self._compute(m) * self.beta_1 + grad * (1.0 - self.beta_1)
        next_v = self._compute(v) * self.beta_2 + ops.square(grad) * (1.0 - self.beta_2)
        self.assign(m, ops.cast(next_m, m.dtype))
        self.assign(v, ops.cast(next_v, v.dtype))
        if not self.debiasing:
            return next_m, next_v
        step = self._compute(self.iterations) + 1
        return (
            next_m / (1.0 - ops.power(self._compute(self.beta_1), step)),
            next_v / (1.0 - ops.power(self._compute(self.beta_2), step)),
        )

    def get_config(self) -> dict[str, object]:
        names = "beta_1 beta_2 epsilon m_dtype v_dtype debiasing".split()
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


class AdamIpuOptimizer(_Moments):
    """Adam."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-7,
        amsgrad: bool = False,
        name: str = "Adam",
        m_dtype: Kind = None,
        v_dtype: Kind = None,
        vhat_dtype: Kind = None,
        debiasing: bool = True,
        **kwargs: Any,
    ):
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.amsgrad, self.debiasing = amsgrad, debiasing
        self.m_dtype, self.v_dtype = _name_of(m_dtype), _name_of(v_dtype)
        self.vhat_dtype = _name_of(vhat_dtype)

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._vhat = self.states_like(variables, "vhat") if self.amsgrad else []

    def get_slot_dtype(self, var: keras.Variable, slot_name: str) -> Kind:
        if slot_name == "vhat":
            return self.vhat_dtype or var.dtype
        return super().get_slot_dtype(var, slot_name)

    def update_step(self, gradient: Value, variable: keras.Variable, learning_rate: Value) -> None:
        index = self._get_variable_index(variable)
        m, v = self._moments(gradient, index)
        if self.amsgrad:
            state: Any = self._vhat[index]
            v = ops.maximum(self._compute(state), v)
            self.assign(state, ops.cast(v, state.dtype))
        update = m / (ops.sqrt(v) + self.epsilon) * self._compute(learning_rate)
        self.assign_sub(variable, ops.cast(update, variable.dtype))

    def get_config(self) -> dict[str, object]:
        own = {"amsgrad": self.amsgrad, "vhat_dtype": self.vhat_dtype}
        return {**super().get_config(), **own}


class LAMBIpuOptimizer(_Moments):
    """LAMB: the step of each weight is scaled by its norm over that of the update."""

    def __init__(
        self,
        learning_rate: Rate = 0.001,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay_rate: float = 0.0,
        exclude_from_weight_decay: Sequence[str] | None = None,
        exclude_from_layer_adaptation: Sequence[str] | None = None,
        name: str = "LAMB",
        debiasing: bool = True,
        m_dtype: Kind = None,
        v_dtype: Kind = None,
        weight_norm_clip: float | None = None,
        optimizer_compute_precisions: Sequence[Kind] = ("float32", "float32"),
        **kwargs: Any,
    ):
        if len(optimizer_compute_precisions) != 2:
            raise ValueError(
                "LAMBIpuOptimizer takes two optimizer_compute_precisions: of the update, and of its"
                f" last product; got {len(optimizer_compute_precisions)}."
            )
        super().__init__(
            name,
            optimizer_compute_precisions=optimizer_compute_precisions,
            learning_rate=learning_rate,
            **kwargs,
        )
        self.beta_1, self.beta_2, self.epsilon = beta_1, beta_2, epsilon
        self.weight_decay_rate, self.weight_norm_clip = weight_decay_rate, weight_norm_clip
        self.excluded_from_decay = tuple(exclude_from_weight_decay or ())
        self.excluded_from_adaptation = tuple(exclude_from_layer_adaptation or ())
        self.debiasing = debiasing
        self.m_dtype, self.v_dtype = _name_of(m_dtype), _name_of(v_dtype)

    def update_step(self, gradient: Value, variable: keras.Variable, learning_rate: Value) -> None:
        m, v = self._moments(gradient, self._get_variable_index(variable))
        weight = self._compute(variable)
        update = m / (ops.sqrt(v) + self.epsilon)
        if self.weight_decay_rate and not _matches(variable, self.excluded_from_decay):
            update = update + weight * self.weight_decay_rate
        ratio = self._compute(learning_rate)
        if not _matches(variable, self.excluded_from_adaptation):
            ratio = ratio * self._trust_ratio(weight, update)
        last = self.opt_dtypes[1]
        change = ops.cast(ratio, last) * ops.cast(update, last)
        self.assign_sub(variable, ops.cast(change, variable.dtype))

    def _trust_ratio(self, weight: Value, update: Value) -> Value:
        weight_norm = ops.sqrt(ops.sum(ops.square(weight)))
        update_norm = ops.sqrt(ops.sum(ops.square(update)))
        if self.weight_norm_clip is not None:
            weight_norm = ops.minimum(weight_norm, self.weight_norm_clip)
        is_usable = ops.logical_and(weight_norm > 0, update_norm > 0)
        divisor = ops.where(is_usable, update_norm, ops.ones_like(update_norm))
        return ops.where(is_usable, weight_norm / divisor, ops.ones_like(weight_norm))

    def get_config(self) -> dict[str, object]:
        own = {
            "weight_decay_rate": self.weight_decay_rate,
            "exclude_from_weight_decay": list(self.excluded_from_decay),
            "exclude_from_layer_adaptation": list(self.excluded_from_adaptation),
            "weight_norm_clip": self.weight_norm_clip,
        }
        return {**super().get_config(), **own}


class SGDIpuOptimizer(IpuOptimizerBase):
    """Gradient descent with momentum."""

    def __init__(
        self,
        learning_rate: Rate = 0.01,
        momentum: float = 0.0,
        nesterov: bool = False,
        name: str = "SGD",
        momentum_accum_dtype: Kind = None,
        **kwargs: Any,
    ):
        if not 0 <= momentum <= 1:
            raise keras_error(f"momentum must be between 0 and 1; got {momentum!r}.")
        super().__init__(name, learning_rate=learning_rate, **kwargs)
        self.momentum, self.nesterov = momentum, nesterov
        self.momentum_accum_dtype = _name_of(momentum_accum_dtype)

    def build(self, variables: list[keras.Variable]) -> None:
        if self.built:
            return
        super().build(variables)
        self._momenta = self.states_like(variables, "momentum") if self.momentum else []

    def get_slot_dtype(self, var: keras.Variable, slot_name: str) -> Kind:
        del slot_name
        return self.momentum_accum_dtype or var.dtype

    def update_step(self, gradient: Value, variable: keras.Variable, learning_rate: Value) -> None:
        step = self._compute(learning_rate) * self._compute(gradient)
        if not self.momentum:
            self.assign_sub(variable, ops.cast(step, variable.dtype))
            return
        state: Any = self._momenta[self._get_variable_index(variable)]
        velocity = self._compute(state) * self.momentum - step
        self.assign(state, ops.cast(velocity, state.dtype))
        change = velocity * self.momentum - step if self.nesterov else velocity
        self.assign_add(variable, ops.cast(change, variable.dtype))

    def get_config(self) -> dict[str, object]:
        names = "momentum nesterov momentum_accum_dtype".split()
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _matches(variable: keras.Variable, patterns: Sequence[str]) -> bool:
    return any(re.search(pattern, variable.path) for pattern in patterns)
