"""The optimisers of PopTorch: torch's own, with what an IPU adds: loss scaling, half states, …

They also run on the CPU: `step()` is that of the torch class each derives from.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar

import torch

from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.optim.base import (
    Hyperparameters,
    Optimizer,
    VariableAttributes,
    arguments,
    without_none,
)
from tremula.ir.optim.formulas import WeightToUpdate, bias_corrections, lamb

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]

_LAMB_DEFAULTS = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 1e-2,
    "max_weight_norm": 65500.0,  # about the largest half
}


_MOMENTUM_TYPES = {
    "accum_type": torch.float32,
    "first_order_momentum_accum_type": torch.float32,
    "second_order_momentum_accum_type": torch.float32,
}


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent, with or without momentum: torch's, plus the following.

    * `loss_scaling`: the loss is multiplied with it, gradients are divided by it.
    * `use_combined_accum`: gradient accumulator and velocity share one tensor. The weights are
      updated alike; `velocity_scaling` is of use with it only.
    * `accum_type`, `velocity_accum_type`: torch.float16 or torch.float32.
    * `max_grad_norm`: gradients are clipped to this 2-norm, all of them together.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[Hyperparameters] = {
        "loss_scaling": 1.0,
        "use_combined_accum": False,
        "accum_type": torch.float32,
        "velocity_accum_type": torch.float32,
        "max_grad_norm": float("inf"),
    }

    def __init__(  # noqa: PLR0913, PLR0917 (PopTorch's own signature)
        self,
        params: Iterable,
        lr: float,
        momentum: float | None = None,
        dampening: float | None = None,
        weight_decay: float | None = None,
        nesterov: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        velocity_scaling: float | None = None,
        use_combined_accum: bool | None = None,
        accum_type: torch.dtype | None = None,
        velocity_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
        **torch_options,
    ):
        args = self._start(torch.optim.SGD, locals())
        self._set_velocity_scaling(velocity_scaling, bool(use_combined_accum))
        self._finish(args)

    def _set_velocity_scaling(self, scaling: float | None, is_combined: bool) -> None:
        if is_combined:
            self.defaults["velocity_scaling"] = 1.0 if scaling is None else scaling
            for group in self.param_groups:
                group.setdefault("velocity_scaling", self.defaults["velocity_scaling"])
        elif scaling is not None:
            LOGGER.warning(
                "velocity_scaling value ignored when using the separate variant "
                "(use_combined_accum=False)."
            )


class Adam(Optimizer, torch.optim.Adam):
    """Adam, whose weight decay is an L2 penalty: torch's, plus the following.

    * `loss_scaling`: the loss is multiplied with it, gradients are divided by it.
    * `accum_type`, `first_order_momentum_accum_type`, `second_order_momentum_accum_type`:
      torch.float16 or torch.float32.
    * `max_grad_norm`: gradients are clipped to this 2-norm, all of them together.

    `amsgrad` is not supported on the IPU.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[Hyperparameters] = {
        "loss_scaling": 1.0,
        **_MOMENTUM_TYPES,
        "max_grad_norm": float("inf"),
    }

    def __init__(  # noqa: PLR0913, PLR0917 (PopTorch's own signature)
        self,
        params: Iterable,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
        **torch_options,
    ):
        self._finish(self._start(torch.optim.Adam, locals()))


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay: torch's, plus the following.

    * `loss_scaling`: the loss is multiplied with it, gradients are divided by it.
    * `accum_type`, `first_order_momentum_accum_type`, `second_order_momentum_accum_type`:
      torch.float16 or torch.float32.
    * `max_grad_norm`: gradients are clipped to this 2-norm, all of them together.
    * `bias_correction`: accepted for compatibility; the momenta are corrected either way, as in
      PopTorch.

    `amsgrad` is not supported on the IPU.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[Hyperparameters] = {
        "loss_scaling": 1.0,
        "bias_correction": True,
        **_MOMENTUM_TYPES,
        "max_grad_norm": float("inf"),
    }

    def __init__(  # noqa: PLR0913, PLR0917 (PopTorch's own signature)
        self,
        params: Iterable,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        amsgrad: bool | None = None,
        maximize: bool | None = None,
        foreach: bool | None = None,
        capturable: bool | None = None,
        differentiable: bool | None = None,
        fused: bool | None = None,
        loss_scaling: float | None = None,
        bias_correction: bool | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        max_grad_norm: float | None = None,
        **torch_options,
    ):
        self._finish(self._start(torch.optim.AdamW, locals()))


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop: torch's, plus the following.

    * `loss_scaling`: the loss is multiplied with it, gradients are divided by it.
    * `accum_type`, `first_order_momentum_accum_type`, `second_order_momentum_accum_type`:
      torch.float16 or torch.float32.
    * `use_tf_variant`: as TensorFlow does it. The mean square starts at 1, eps is inside the root,
      the learning rate inside the momentum. `step()` on the CPU stays torch's.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[Hyperparameters] = {
        "loss_scaling": 1.0,
        **_MOMENTUM_TYPES,
        "use_tf_variant": False,
    }

    def __init__(  # noqa: PLR0913, PLR0917 (PopTorch's own signature)
        self,
        params: Iterable,
        lr: float | None = None,
        alpha: float | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        momentum: float | None = None,
        centered: bool | None = None,
        foreach: bool | None = None,
        maximize: bool | None = None,
        differentiable: bool | None = None,
        loss_scaling: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
        use_tf_variant: bool | None = None,
        **torch_options,
    ):
        self._finish(self._start(torch.optim.RMSprop, locals()))


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments: Adam's direction, as long as the weights' norm.

    The norm counts up to `max_weight_norm`; where it or the direction is 0, the direction is
    taken as it is. Without `bias_correction` early momenta stay small. The paper is
    https://arxiv.org/abs/1904.00962.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[Hyperparameters] = {
        "loss_scaling": 1.0,
        "bias_correction": True,
        **_MOMENTUM_TYPES,
    }

    def __init__(  # noqa: PLR0913, PLR0917 (PopTorch's own signature)
        self,
        params: Iterable,
        lr: float | None = None,
        betas: tuple[float, float] | None = None,
        eps: float | None = None,
        weight_decay: float | None = None,
        bias_correction: bool | None = None,
        loss_scaling: float | None = None,
        max_weight_norm: float | None = None,
        accum_type: torch.dtype | None = None,
        first_order_momentum_accum_type: torch.dtype | None = None,
        second_order_momentum_accum_type: torch.dtype | None = None,
    ):
        args = arguments(locals())
        Optimizer.__init__(self)
        defaults = _LAMB_DEFAULTS | without_none(self._not_own(args))
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._finish(args)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One update on the CPU, from the gradients the parameters hold."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._step_one(param, param.grad, group)
        return loss

    def _step_one(self, param: torch.Tensor, grad: torch.Tensor, group: Hyperparameters) -> None:
        state = self.state[param]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(param)
            state["exp_avg_sq"] = torch.zeros_like(param)
        state["step"] += 1
        names = ("lr", "eps", "weight_decay", "max_weight_norm")
        hyper = {name: float(group[name]) for name in names}
        hyper["beta1"], hyper["beta2"] = group["betas"]
        has_correction: bool = vars(self)["bias_correction"]
        scalars = bias_corrections(hyper, state["step"]) if has_correction else ()
        momenta = {"Accl1": state["exp_avg"], "Accl2": state["exp_avg_sq"]}
        new, momenta = lamb(WeightToUpdate(param, grad, momenta, hyper, scalars))
        param.copy_(new)
        state["exp_avg"].copy_(momenta["Accl1"])
        state["exp_avg_sq"].copy_(momenta["Accl2"])
