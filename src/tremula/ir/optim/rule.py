"""What a weight update is to the compiler: names, states with their owners, and a function."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

Number = float | Tensor  # a hyperparameter: a constant of the program, or a 0-dim tensor


class UpdateRule(Protocol):
    """The update of some weights of a model. Front ends implement it.

    A rule knows no values that may change between steps: those are 0-dim float32 inputs of the
    graph, in the order of `hyper_names`. So a new learning rate needs no compilation. Its `repr`
    is part of the key under which a compiled program is cached, so equal texts must mean equal
    updates. Weights and gradients are in the order of `names`, states in that of `state_names`.
    """

    @property
    def names(self) -> tuple[str, ...]:
        """The weights that are updated, by their names in the captured step."""
        ...

    @property
    def hyper_names(self) -> tuple[str, ...]:
        """The hyperparameters that are inputs of the graph; `loss_scaling` is the last."""
        ...

    @property
    def loss_scaling(self) -> float | None:
        """The constant that the loss is multiplied with; None if it is a hyperparameter."""
        ...

    @property
    def sets_loss_scale(self) -> bool:
        """Whether `next_loss_scale` computes the scale of the next step from all gradients."""
        ...

    @property
    def accum_dtype(self) -> torch.dtype:
        """The type of running means of gradients over micro-batches."""
        ...

    def loss_scaling_in(self, hyper: Sequence[Number]) -> Number:
        """What the loss is multiplied with before the backward pass."""
        ...

    def state_names(self) -> tuple[str, ...]:
        """The names of the states."""
        ...

    def state_owners(self) -> tuple[str | None, ...]:
        """The weight that each state belongs to; None for a state of no particular weight."""
        ...

    def state_kinds(self) -> tuple[str, ...]:
        """What each state is, such as a velocity: numbers of one kind are of comparable size."""
        ...

    def initial_state(self, params: Sequence[Tensor]) -> list[Tensor]:
        """The states before the first step."""
        ...

    def update(
        self,
        params: Sequence[Tensor],
        grads: Sequence[Tensor],
        states: Sequence[Tensor],
        hyper: Sequence[Number],
    ) -> tuple[list[Tensor], list[Tensor]]:
        """New weights and new states, from gradients of the scaled loss, by functional ops."""
        ...

    def next_loss_scale(
        self, grads: Sequence[Tensor], hyper: Sequence[Tensor], states: Sequence[Tensor]
    ) -> Tensor | None:
        """The loss scale of the next step, or None if it stays as it is."""
        ...

    def must_recapture(self, before: Sequence[float], after: Sequence[float]) -> bool:
        """Whether a CUDA graph of the update holds a hyperparameter that has since changed."""
        ...

    def restricted(self, indices: Sequence[int]) -> "UpdateRule":
        """The rule of some of the weights only: those that have a gradient."""
        ...
