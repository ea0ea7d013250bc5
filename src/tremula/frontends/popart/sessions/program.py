"""A model compiled for a session: the step, its weights and the state of its optimiser."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.element_types import UNSIGNED, element_type
from tremula.frontends.onnx.imported import ImportedModel
from tremula.frontends.popart.exceptions import popart_errors
from tremula.frontends.popart.optimisers.optimisers import Optimizer
from tremula.frontends.popart.optimisers.rule import (
    first_states,
    hyper_values,
    hyperparameters_by_weight,
    rule_of,
)
from tremula.frontends.popart.options.options import SessionOptions
from tremula.frontends.popart.sessions.buffers import StepInput, array_of
from tremula.frontends.popart.sessions.step import StepModule, StepPlan
from tremula.frontends.popart.sessions.weights import SessionModel, SessionWeights
from tremula.frontends.shared.program import AttachedDevice, StepProgram, compile_program
from tremula.ir.capture.capture import model_tensors
from tremula.ir.group_values import GroupValues
from tremula.ir.optim.grouped_rule import AutomaticLossScaling, GroupedRule
from tremula.ir.run.compiled_step import StepSettings, StepToCompile
from tremula.ir.step import BUFFER, OUTPUT, PARAMETER

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.ir.run.tile_cache import StoredTileProgram

_PREFIX = "onnx."  # of names of weights in the module that is compiled


class SessionProgram:
    """What a session holds on its device, in the names of its model."""

    def __init__(
        self,
        model: SessionModel,
        imported: ImportedModel,
        inputs: Sequence[StepInput],
        plan: StepPlan,
        optimizer: Optimizer | None,
        options: SessionOptions,
    ):
        self.model, self.inputs, self.plan, self.optimizer = model, inputs, plan, optimizer
        self.options = options
        self.module = StepModule(imported, [wanted.id for wanted in inputs], plan)
        places = self.module.onnx.name_of
        self.id_of = {f"{_PREFIX}{place}": id for id, place in places.items()}
        for id, whole in model.whole.items():
            weight = self.module.onnx.initialiser(id)
            weight.data = torch.from_numpy(np.array(whole)).to(weight.dtype)
        self.weights = SessionWeights(
            {id: getattr(self.module.onnx, place) for id, place in places.items()}
        )
        parameters = dict(self.module.onnx.named_parameters(recurse=False))
        self.trained = [id for id, place in places.items() if place in parameters]
        self._program: StepProgram | None = None  # once it is compiled

    @property
    def groupings(self) -> dict[str, GroupValues]:
        """Weights that differ between replicas, by their names in the module."""
        names = {id: name for name, id in self.id_of.items()}
        return {names[id]: grouping for id, grouping in self.model.groupings.items()}

    def compile(
        self,
        settings: StepSettings,
        device: AttachedDevice,
        name: str,
        stored: "StoredTileProgram | None" = None,
    ) -> None:
        """Capture the step and open it on the device, with the weights it begins with."""
        zeros = [torch.zeros(i.info.shape(), dtype=i.dtype) for i in self.inputs]

        def run_forward(flat: list[Tensor]) -> tuple[list[Tensor], None]:
            return self.module(*flat), None

        names = [wanted.id for wanted in self.inputs]
        request = StepToCompile(self.module, run_forward, zeros, names, self._rule())
        with popart_errors():
            self._program = compile_program(
                request, settings, stored=stored, device=device, report_name=name
            )
        self.to_device()
        if self.rule is not None:
            self._write_first_states(self._program.n_replicas)
            self.set_numbers()

    @property
    def program(self) -> StepProgram:
        assert self._program is not None, "sessions compile before they use this"
        return self._program

    # -- the optimiser -----------------------------------------------------------------------------

    @property
    def rule(self) -> GroupedRule | None:
        """The rule of the weights that have a gradient."""
        result = self.program.step.rule
        assert result is None or isinstance(result, GroupedRule), "the rule of this session"
        return result

    def _rule(self) -> GroupedRule | None:
        if self.optimizer is None:
            return None
        places = self.module.onnx.name_of
        weights = {
            id: (f"{_PREFIX}{places[id]}", self.weights.tensors[id].dtype) for id in self.trained
        }
        accumulates = self.options.enableGradientAccumulation
        rule = rule_of(self.optimizer, weights, accumulates=accumulates)
        automatic = self.options.automaticLossScalingSettings
        if not automatic.enabled:
            return rule
        how = AutomaticLossScaling(
            automatic.binEdgeLocation, automatic.thresholdUpperCountProportion
        )
        return rule.scaled_automatically(how)

    def set_numbers(self, optimizer: Optimizer | None = None) -> None:
        """The variable numbers of an optimiser, to the device."""
        self.optimizer = optimizer or self.optimizer
        assert self.optimizer is not None, "only training has an optimiser"
        rule = self.rule
        assert rule is not None, "only training has a rule"
        self.program.session.set_hyper(hyper_values(self.optimizer, self.trained, rule))

    def _write_first_states(self, n_replicas: int) -> None:
        rule = self.rule
        assert rule is not None, "only training has states"
        assert self.optimizer is not None, "and an optimiser"
        ids = [self.id_of[name] for name in rule.names]
        hyper = hyperparameters_by_weight(self.optimizer, ids)
        of_replicas = []
        for replica in range(n_replicas):
            params = [self._slice(id, replica, n_replicas) for id in ids]
            of_replicas.append(first_states(rule, params, hyper))
        states = []
        for i, (slot, name) in enumerate(zip(rule.slots, rule.state_names(ids), strict=True)):
            is_grouped = ids[slot.param] in self.model.groupings and not slot.is_step
            own = [replica[i] for replica in of_replicas]
            state = torch.stack(own) if is_grouped else own[0]
            saved = self.model.states.get(name)
            states.append(state if saved is None else _like(saved, state))
        self.program.session.write_states(states)

    def _slice(self, id: str, replica: int, n_replicas: int) -> Tensor:
        value, grouping = self.weights.tensors[id].detach(), self.model.groupings.get(id)
        return value if grouping is None else grouping.slice_of(value, replica, n_replicas)

    def states(self) -> dict[str, np.ndarray]:
        """States of the optimiser by name."""
        rule = self.rule
        if rule is None:
            return {}
        ids = [self.id_of[name] for name in rule.names]
        values = self.program.session.read_states()
        return {n: array_of(v) for n, v in zip(rule.state_names(ids), values, strict=True)}

    # -- weights -----------------------------------------------------------------------------------

    def to_device(self) -> None:
        """Host → device."""
        self.program.write_weights(
            [slot.tensor for slot in model_tensors(self.module, PARAMETER)],
            [slot.tensor for slot in model_tensors(self.module, BUFFER)],
        )

    def to_host(self) -> None:
        """Device → host."""
        parameters, buffers = self.program.read_weights()
        slots = [*model_tensors(self.module, PARAMETER), *model_tensors(self.module, BUFFER)]
        with torch.no_grad():
            for own, value in zip(slots, [*parameters, *buffers], strict=True):
                own.tensor.copy_(value)

    def weights_on_device(self) -> dict[str, Tensor]:
        """Weights by id as the device has them now; those of groups with all their slices."""
        parameters, buffers = self.program.read_weights()
        slots = [*model_tensors(self.module, PARAMETER), *model_tensors(self.module, BUFFER)]
        pairs = zip(slots, [*parameters, *buffers], strict=True)
        return {self.id_of[own.name]: value.detach().cpu() for own, value in pairs}

    # -- the rest ----------------------------------------------------------------------------------

    @cached_property
    def results(self) -> list[Tensor]:
        """What the step returns, as tensors without values: shapes and types."""
        step = self.program.step
        pairs = zip(step.outputs, step.results(), strict=True)
        return [node.meta["val"] for slot, node in pairs if slot.kind == OUTPUT]


def _like(array: np.ndarray, state: Tensor) -> Tensor:
    return torch.from_numpy(np.array(array)).to(state.dtype).reshape(state.shape)


def torch_type(number: int) -> torch.dtype:
    """How a step holds tensors of an element type."""
    dtype = element_type(number).tensor_type
    return torch.int64 if dtype in UNSIGNED else dtype
