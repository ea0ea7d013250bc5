"""Scales of the loss for halves: Keras's, which grows until gradients overflow, and ALS.

Automatic loss scaling (ALS) looks at how many elements of the scaled gradients are large. Both are
functions of a step: (gradients, scale, counters) → the next scale and counters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import keras
import torch
from keras.src.optimizers.base_optimizer import BaseOptimizer
from torch import Tensor

from tremula.frontends.keras.errors import keras_error
from tremula.ir.optim.rule import Number

Next = tuple[Tensor, list[Tensor]]


class Scaling(Protocol):
    """How the scale of the loss follows from gradients."""

    def after(self, grads: Sequence[Tensor], scale: Number, counters: Sequence[Tensor]) -> Next: ...


def are_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether no element is infinite or not a number."""
    return torch.stack([torch.isfinite(tensor).all() for tensor in tensors]).all()


@dataclass(frozen=True)
class GrowingScale:
    """Keras's: doubled after `n` steps with finite gradients, half after others."""

    growth_steps: int

    def after(self, grads: Sequence[Tensor], scale: Number, counters: Sequence[Tensor]) -> Next:
        (n_steps,) = counters
        is_finite = are_finite(grads)
        is_due = n_steps == self.growth_steps - 1
        scale = _tensor(scale, grads[0])
        grown = torch.where(is_due, scale * 2.0, scale)
        counted = torch.where(is_due, torch.zeros_like(n_steps), n_steps + 1)
        return (
            torch.where(is_finite, grown, scale * 0.5),
            [torch.where(is_finite, counted, torch.zeros_like(n_steps)).to(n_steps.dtype)],
        )


@dataclass(frozen=True)
class ConstantScale:
    """A scale that stays: updates are applied whatever the gradients are."""

    def after(self, grads: Sequence[Tensor], scale: Number, counters: Sequence[Tensor]) -> Next:
        return _tensor(scale, grads[0]), list(counters)


@dataclass(frozen=True)
class HistogramScale:
    """ALS: by the share of elements above an edge, checked every `n` steps."""

    update_frequency: int
    increase_factor: float
    max_scale: float
    ratio_threshold: float
    bin_edge: float
    accumulates: bool

    def after(self, grads: Sequence[Tensor], scale: Number, counters: Sequence[Tensor]) -> Next:
        n_steps, n_large, n_all = counters
        small = torch.stack([(grad.abs() <= self.bin_edge).float().sum() for grad in grads]).sum()
        n_elements = float(sum(grad.numel() for grad in grads))
        large = n_elements - small  # infinities and NaN are not small
        if self.accumulates:
            large, n_elements = n_large + large, n_all + n_elements
        else:
            n_elements = torch.zeros_like(n_all) + n_elements
        is_due = n_steps + 1 >= self.update_frequency
        scale = _tensor(scale, grads[0])
        is_too_large = large > self.ratio_threshold * n_elements
        changed = torch.where(
            is_too_large, scale / self.increase_factor, scale * self.increase_factor
        ).clamp(1.0, self.max_scale)
        new = (n_steps + 1, large, n_elements)
        return (
            torch.where(is_due, changed, scale),
            [torch.where(is_due, torch.zeros_like(each), each) for each in new],
        )


def _tensor(scale: Number, like: Tensor) -> Tensor:
    if isinstance(scale, Tensor):
        return scale
    return torch.full((), float(scale), dtype=torch.float32, device=like.device)


class ALSOptimizer(keras.optimizers.LossScaleOptimizer):
    """An optimiser whose loss is scaled such that few elements of the gradients are large.

    Every `update_frequency` steps the scale is divided by `increase_factor` if more than
    `ratio_threshold` of the elements were above `histogram_bin_edge`, else multiplied with it.
    """

    def __init__(
        self,
        optimizer: BaseOptimizer,
        initial_loss_scaling_factor: float = 1.0,
        update_frequency: int = 8,
        increase_factor: float = 2.0,
        *,
        max_loss_scaling_factor: float = 32768.0,
        accumulate_statistics_over_update_period: bool = True,
        ratio_threshold: float = 1e-5,
        histogram_bin_edge: float = 8192.0,
        name: str = "ALSOptimizer",
    ):
        super().__init__(optimizer, initial_scale=float(initial_loss_scaling_factor), name=name)
        if update_frequency < 1 or increase_factor <= 1 or not 0 < ratio_threshold < 1:
            raise keras_error(
                "ALSOptimizer takes an update_frequency of at least 1, an increase_factor above 1"
                f" and a ratio_threshold between 0 and 1; got {update_frequency},"
                f" {increase_factor} and {ratio_threshold}."
            )
        if not 1 <= initial_loss_scaling_factor <= max_loss_scaling_factor:
            raise keras_error(
                f"initial_loss_scaling_factor = {initial_loss_scaling_factor} is not between 1 and"
                f" max_loss_scaling_factor = {max_loss_scaling_factor}."
            )
        self.scaling = HistogramScale(
            update_frequency,
            float(increase_factor),
            float(max_loss_scaling_factor),
            float(ratio_threshold),
            float(histogram_bin_edge),
            bool(accumulate_statistics_over_update_period),
        )
        self.counters: list[keras.Variable] = []

    def build(self, var_list: list[keras.Variable]) -> None:
        """Make the counters, too."""
        super().build(var_list)
        self.counters = [
            self.add_variable(shape=(), dtype="float32", initializer="zeros", name=name)
            for name in ("n_steps", "n_large", "n_all")
        ]

    @property
    def loss_scaling_factor(self) -> float:
        """The scale of the next step."""
        return float(self.dynamic_scale.numpy()) if self.built else float(self.initial_scale)


def scaling_of(optimizer: BaseOptimizer) -> tuple[Scaling | None, tuple[keras.Variable, ...]]:
    """How an optimiser that is built scales the loss, and the variables that it counts in."""
    if isinstance(optimizer, ALSOptimizer):
        return optimizer.scaling, tuple(optimizer.counters)
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        if isinstance(getattr(optimizer, "scaling", None), ConstantScale):
            return ConstantScale(), (optimizer.step_counter,)
        return GrowingScale(optimizer.dynamic_growth_steps), (optimizer.step_counter,)
    return None, ()
