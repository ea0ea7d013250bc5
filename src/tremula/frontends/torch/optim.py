"""The optimisers of PopTorch: torch's own, with what an IPU adds: loss scaling, half states, …

They also run on the CPU: `step()` is that of the torch class each derives from.
"""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import torch

from tremula.frontends.torch.logging import LOGGER
from tremula.ir.update_math import Switches, bias_corrections, lamb

ACCUMULATION_TYPES = (torch.float16, torch.float32)
LAMB_DEFAULTS = {
    "lr": 1e-3,
    "betas": (0.9, 0.999),
    "eps": 1e-8,
    "weight_decay": 1e-2,
    "max_weight_norm": 65500.0,  # about the largest half
}


class VariableAttributes:
    """Which attributes of an optimiser may change after compilation: `optimizer.variable_attrs`.

    An attribute given to the constructor is variable, one left out is constant, which lets the
    compiler leave out what it would cost. The learning rate is variable whatever is said here.
    """

    def __init__(self, variable_attributes: list[str], allowed_attributes: list[str]):
        self._variable_attributes = variable_attributes
        self._allowed_attributes = allowed_attributes

    def isConstant(self, attr: str) -> bool:  # noqa: N802
        """True if the attribute may not change after compilation."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:  # noqa: N802
        """Forbid an attribute to change after compilation."""
        self._check_known(attr)
        self._variable_attributes = [a for a in self._variable_attributes if a != attr]

    def markAsVariable(self, attr: str) -> None:  # noqa: N802
        """Allow an attribute to change after compilation."""
        self._check_known(attr)
        self._variable_attributes.append(attr)

    def _check_known(self, attr: str) -> None:
        assert attr in self._allowed_attributes, (
            f"Unknown attribute {attr}, allowed values: {self._allowed_attributes}"
        )


class Optimizer:
    """What all optimisers of PopTorch share: extra attributes, and a state that lives on the IPU.

    `state_dict()` is torch's, plus `ipu_state` and `ipu_param`: both None until a model that uses
    the optimiser is compiled.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[dict[str, Any]] = {}  # what the torch class does not have
    _fetch: Callable[[], None] | None = None  # reads the state back from a model that uses this

    def __init__(self) -> None:
        self._state_dict: dict[str, Any] = {"ipu_state": None, "ipu_param": None}
        self.ipu_state_is_dirty = False  # the state here is newer than the one on the IPU
        self.host_state_is_dirty = False  # the state on the IPU is newer than the one here

    def state_dict(self) -> dict[str, Any]:
        """Torch's dictionary, plus `ipu_state` and `ipu_param` as the IPU has them."""
        if self._fetch is not None:
            self._fetch()
        return self.get_state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a state that `state_dict()` of a PopTorch optimiser gave."""
        self._check_state(state_dict)
        torch.optim.Optimizer.load_state_dict(self, state_dict)  # pyright: ignore[reportArgumentType]
        self.set_state_dict(state_dict)

    def get_state_dict(self) -> dict[str, Any]:
        """The state as it is here, without asking the IPU."""
        own = torch.optim.Optimizer.state_dict(self)  # pyright: ignore[reportArgumentType]
        return {**self._state_dict, **own}

    def set_state_dict(self, state: dict[str, Any]) -> None:
        """Set `ipu_state` and `ipu_param`; the next run takes them to the IPU."""
        self._check_state(state)
        self._state_dict = {key: state[key] for key in ("ipu_state", "ipu_param")}
        self.ipu_state_is_dirty = True
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """True if a state was loaded or read back from an IPU."""
        return all(self._state_dict.get(key) is not None for key in ("ipu_state", "ipu_param"))

    @staticmethod
    def _check_state(state: dict[str, Any]) -> None:
        if not state:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if not {"ipu_state", "ipu_param"} <= set(state):
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")

    def __getstate__(self) -> dict[str, Any]:
        # Torch keeps groups, defaults and its own state; a copy starts with what it must upload.
        state: dict[str, Any] = {}
        state.update(super().__getstate__())  # pyright: ignore[reportAttributeAccessIssue, reportArgumentType, reportCallIssue]
        state.update({name: getattr(self, name) for name in self._own_defaults})
        state["variable_attrs"] = self.variable_attrs
        state["_state_dict"] = self._state_dict
        state["ipu_state_is_dirty"] = self.has_state()
        state["host_state_is_dirty"] = False
        return state

    def _start(
        self, of_torch: type[torch.optim.Optimizer], params: Iterable, given: dict[str, Any]
    ) -> None:
        """Begin as both classes do; torch's gets what is its own and was given."""
        Optimizer.__init__(self)
        start: Callable[..., None] = of_torch.__init__
        start(self, params, **_without_none(self._not_own(given)))

    def _not_own(self, given: dict[str, Any]) -> dict[str, Any]:
        own = {*self._own_defaults, "velocity_scaling"}  # the latter is an attribute of groups
        return {name: value for name, value in given.items() if name not in own}

    def _finish(self, given: dict[str, Any]) -> None:
        """Set own attributes from the arguments, and note which of these the user gave."""
        for name, default in self._own_defaults.items():
            value = default if given[name] is None else given[name]
            assert not name.endswith("accum_type") or value in ACCUMULATION_TYPES, (
                "Accumulation types must be either torch.float32 or torch.float16"
            )
            setattr(self, name, value)
        defaults: dict[str, Any] = self.defaults  # pyright: ignore[reportAttributeAccessIssue]
        self.variable_attrs = VariableAttributes(
            list(_without_none(given)), [*defaults, "loss_scaling"]
        )


def _arguments(names: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a constructor, from its `locals()`; one that was not given is None."""
    given = {name: names[name] for name in names if name not in ("self", "params")}
    torch_options = given.pop("torch_options", {})
    return {**given, **torch_options}


def _without_none(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


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
    _own_defaults: ClassVar[dict[str, Any]] = {
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
        given = _arguments(locals())
        self._start(torch.optim.SGD, params, given)
        self._set_velocity_scaling(velocity_scaling, bool(use_combined_accum))
        self._finish(given)

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
    _own_defaults: ClassVar[dict[str, Any]] = {
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
        given = _arguments(locals())
        self._start(torch.optim.Adam, params, given)
        self._finish(given)


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay: torch's, plus the following.

    * `loss_scaling`: the loss is multiplied with it, gradients are divided by it.
    * `accum_type`, `first_order_momentum_accum_type`, `second_order_momentum_accum_type`:
      torch.float16 or torch.float32.
    * `max_grad_norm`: gradients are clipped to this 2-norm, all of them together.
    * `bias_correction`: accepted for PopTorch's sake; the momenta are corrected either way, as
      PopTorch did.

    `amsgrad` is not supported on the IPU.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[dict[str, Any]] = {
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
        given = _arguments(locals())
        self._start(torch.optim.AdamW, params, given)
        self._finish(given)


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop: torch's, plus the following.

    * `loss_scaling`: the loss is multiplied with it, gradients are divided by it.
    * `accum_type`, `first_order_momentum_accum_type`, `second_order_momentum_accum_type`:
      torch.float16 or torch.float32.
    * `use_tf_variant`: as TensorFlow does it. The mean square starts at 1, eps is inside the root,
      the learning rate inside the momentum. `step()` on the CPU stays torch's.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[dict[str, Any]] = {
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
        given = _arguments(locals())
        self._start(torch.optim.RMSprop, params, given)
        self._finish(given)


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments: Adam's direction, as long as the weights' norm.

    The norm counts up to `max_weight_norm`; where it or the direction is 0, the direction is
    taken as it is. Without `bias_correction` early momenta stay small. The paper is
    https://arxiv.org/abs/1904.00962.
    """

    is_poptorch_optimizer = True
    _own_defaults: ClassVar[dict[str, Any]] = {
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
        given = _arguments(locals())
        Optimizer.__init__(self)
        defaults = LAMB_DEFAULTS | _without_none(self._not_own(given))
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._finish(given)

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

    def _step_one(self, param: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[param]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            state["exp_avg"] = torch.zeros_like(param)
            state["exp_avg_sq"] = torch.zeros_like(param)
        state["step"] += 1
        names = ("lr", "eps", "weight_decay", "max_weight_norm")
        numbers = {name: float(group[name]) for name in names}
        numbers["beta1"], numbers["beta2"] = group["betas"]
        has_correction: bool = vars(self)["bias_correction"]
        scalars = bias_corrections(numbers, state["step"]) if has_correction else ()
        momenta = {"Accl1": state["exp_avg"], "Accl2": state["exp_avg_sq"]}
        new, momenta = lamb(param, grad, momenta, numbers, scalars, Switches())
        param.copy_(new)
        state["exp_avg"].copy_(momenta["Accl1"])
        state["exp_avg_sq"].copy_(momenta["Accl2"])
