"""The hyperparameters and states of an optimiser on the device: written, loaded and read back."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from tremula.frontends.poptorch.optim.base import Optimizer
from tremula.frontends.poptorch.optim.names import (
    differ_by_weight,
    hyper_from_ipu_params,
    ipu_params,
)
from tremula.ir.optim.grouped_rule import GroupedRule
from tremula.ir.run.session import StepSession

SCALE_FACTOR = "lossScaleUpdateFactor"  # of automatic loss scaling: what it has made of the scale


class OptimizerState:
    """The device's copy of an optimiser. Only PopTorch's own optimisers can load and show it."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        rule: GroupedRule,
        session: StepSession,
        parameters: Mapping[str, Tensor],
        hyper: list[float],  # the first values of the rule's hyperparameters
        *,
        grouped: Collection[str] = (),  # parameters with a slice for each group of replicas
    ):
        self.rule = rule
        self.session = session
        self._parameters = parameters
        self._grouped = grouped
        self.hyper = hyper
        self._has_states = False  # on the device; made when a run or a question needs them
        self.own: Optimizer | None = None  # the optimiser, if it is PopTorch's
        self.follow(optimizer)

    def follow(self, optimizer: torch.optim.Optimizer) -> None:
        """From now on this optimiser's `state_dict()` shows what the device has."""
        if self.own is not optimizer:
            self.let_go()
        self.own = optimizer if isinstance(optimizer, Optimizer) else None
        if self.own is not None:
            self.own._fetch = self.read_back

    def let_go(self) -> None:
        """The optimiser keeps what the device has, and no longer asks it."""
        self.read_back()
        if self.own is not None:
            self.own._fetch = None

    def write_first(self) -> None:
        """Write the values a training starts with, or those that were loaded into the optimiser."""
        self._has_states = False
        self._write_hyper(1.0)
        if self.own is not None:
            if self.own.has_state():
                self.write_loaded()
            self.own.host_state_is_dirty = True

    def read_states(self) -> list[Tensor]:
        """What the device has; before the first run, what a training starts with."""
        self._make_states()
        return self.session.read_states()

    def _make_states(self) -> None:
        """States a training starts with: several times the model, and compiling needs none."""
        if self._has_states:
            return
        self._write_states(self.rule.initial_state(self._trained_weights()))

    def _trained_weights(self) -> list[Tensor]:
        """The weights of the rule, on their device: on a GPU, states like them are made at once."""
        if not self._grouped and (on_device := self.session.trained_weights()):
            return on_device
        parameters = self._parameters
        return [
            parameters[name].detach()[0] if name in self._grouped else parameters[name].detach()
            for name in self.rule.names
        ]

    def _write_states(self, states: list[Tensor]) -> None:
        self.session.write_states(states)
        self._has_states = True

    def take_over(self, states: list[Tensor], hyper: list[float], scale_factor: float) -> None:
        """Continue from what another program had on the device, then take what was loaded."""
        self._write_states(states)
        self.hyper = hyper
        self._write_hyper(scale_factor)
        self.write_loaded()

    def set_hyper(self, values: list[float]) -> None:
        factor = self.scale_factor()
        self.hyper = list(values)
        self._write_hyper(factor)

    def _write_hyper(self, scale_factor: float) -> None:
        values = list(self.hyper)
        if self.rule.automatic is not None:
            values[-1] *= scale_factor
        self.session.set_hyper(values)

    def scale_factor(self) -> float:
        """What automatic loss scaling has multiplied the optimiser's own scale with so far."""
        if self.rule.automatic is None:
            return 1.0
        return self.session.read_hyper()[-1] / self.hyper[-1]

    def loss_scaling(self) -> Tensor:
        return torch.tensor(float(self.rule.loss_scaling_in(self.hyper)))

    def params(self) -> dict[str, Tensor]:
        """What the device has of the hyperparameters, by PopART's names."""
        return ipu_params(self.rule, self.hyper)

    def must_split(self) -> bool:
        """Whether hyperparameters were loaded that differ between the weights of a group."""
        own = self.own
        if own is None or not own.ipu_state_is_dirty:
            return False
        loaded = own.get_state_dict()["ipu_param"]
        return bool(loaded) and differ_by_weight(self.rule, loaded, self.hyper)

    def write_loaded(self) -> None:
        """A loaded state goes to the device; missing entries keep their value there."""
        assert self.own is not None, "nothing was loaded"
        loaded: dict[str, Any] = self.own.get_state_dict()
        states: dict[str, Tensor] = loaded["ipu_state"] or {}
        names = self.rule.state_names()
        if any(name in states for name in names):
            current = self.read_states()
            new = [states.get(name, now) for name, now in zip(names, current, strict=True)]
            self._write_states([value.to(now) for value, now in zip(new, current, strict=True)])
        factor = float(states[SCALE_FACTOR]) if SCALE_FACTOR in states else self.scale_factor()
        if loaded["ipu_param"]:
            self.hyper = hyper_from_ipu_params(self.rule, loaded["ipu_param"], self.hyper)
        self._write_hyper(factor)
        self.own.ipu_state_is_dirty = False

    def read_back(self) -> None:
        """Store the device's states and hyperparameters in the optimiser, if they are newer."""
        own = self.own
        if own is None or not own.host_state_is_dirty:
            return
        values = [state.detach().to("cpu", copy=True) for state in self.read_states()]
        states = dict(zip(self.rule.state_names(), values, strict=True))
        if self.rule.automatic is not None:
            states[SCALE_FACTOR] = torch.tensor(self.scale_factor())
        own.set_state_dict({"ipu_state": states, "ipu_param": self.params()})
        own.ipu_state_is_dirty = False

    def before_run(self) -> None:
        """Use a state that was loaded since the last run."""
        self._make_states()
        own = self.own
        if own is not None:
            if own.ipu_state_is_dirty:
                self.write_loaded()
            own.host_state_is_dirty = True
