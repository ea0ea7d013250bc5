"""The optimiser's numbers and states on the device: written at compile, loaded, and read back."""

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from tremula.frontends.poptorch.optim.base import Optimizer
from tremula.ir.optim.names import hyper_from_ipu_params, ipu_params
from tremula.ir.optim.rules import UpdateRule
from tremula.ir.run.session import Session


class OptimizerState:
    """The device's copy of an optimiser. Only PopTorch's own optimisers can load and show it."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        rule: UpdateRule,
        session: Session,
        parameters: Mapping[str, Tensor],
        *,
        grouped: Collection[str] = (),  # parameters with a slice for each group of replicas
    ):
        self.rule = rule
        self.session = session
        self._parameters = parameters
        self._grouped = grouped
        self._hyper = self.rule.hyper_values(optimizer)
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
        held = self._parameters
        trained = [
            held[name].detach()[0] if name in self._grouped else held[name].detach()
            for name in self.rule.names
        ]
        self.session.write_states(self.rule.initial_state(trained))
        self.session.set_hyper(self._hyper)
        if self.own is not None:
            if self.own.has_state():
                self.write_loaded()
            self.own.host_state_is_dirty = True

    def set_hyper(self, values: list[float]) -> None:
        self._hyper = list(values)
        self.session.set_hyper(values)

    def loss_scaling(self) -> Tensor:
        return torch.tensor(float(self.rule.loss_scaling_in(self._hyper)))

    def write_loaded(self) -> None:
        """A loaded state goes to the device; missing entries keep their value there."""
        assert self.own is not None, "nothing was loaded"
        loaded: dict[str, Any] = self.own.get_state_dict()
        states: dict[str, Tensor] = loaded["ipu_state"] or {}
        names = self.rule.state_names()
        current = self.session.read_states()
        if any(name in states for name in names):
            new = [states.get(name, now) for name, now in zip(names, current, strict=True)]
            self.session.write_states(
                [value.to(now) for value, now in zip(new, current, strict=True)]
            )
        if loaded["ipu_param"]:
            self.set_hyper(hyper_from_ipu_params(self.rule, loaded["ipu_param"], self._hyper))
        self.own.ipu_state_is_dirty = False

    def read_back(self) -> None:
        """Store the device's states and numbers in the optimiser, if they are newer."""
        own = self.own
        if own is None or not own.host_state_is_dirty:
            return
        values = [state.detach().to("cpu", copy=True) for state in self.session.read_states()]
        states = dict(zip(self.rule.state_names(), values, strict=True))
        own.set_state_dict({"ipu_state": states, "ipu_param": ipu_params(self.rule, self._hyper)})
        own.ipu_state_is_dirty = False

    def before_run(self) -> None:
        """Use a state that was loaded since the last run."""
        own = self.own
        if own is not None:
            if own.ipu_state_is_dirty:
                self.write_loaded()
            own.host_state_is_dirty = True
