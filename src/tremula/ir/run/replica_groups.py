"""Weights that differ between groups of replicas.

On the host a grouped parameter has one more dimension, the first: one slice per group or, after
all replicas were read back, one per replica. The model sees the remaining dimensions. Its gradients
are summed within a group, those of other parameters over all replicas; the mean divides both by the
number of all replicas, as the loss is the mean over all of them. Four replicas in groups of two,
with a weight of shape (3,) in the model and (2, 3) on the host:

    replica               0  1  2  3
    neighbours            a  a  b  b      slice a = value[0], slice b = value[1]
    orthogonal groups     a  b  a  b
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tremula.ir.capture.capture import ModelTensor
from tremula.ir.errors import UnsuitableModel
from tremula.ir.group_values import GroupValues
from tremula.ir.host.programs.program import DeviceState, Gradients
from tremula.ir.repetition import Repetition
from tremula.ir.run.session import Give, Handles, HostSession, TileSession
from tremula.ir.settings import HostSettings
from tremula.ir.step import BUFFER, PARAMETER, STATE, CapturedStep

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.runtime.engine import Engine


@contextmanager
def one_slice_of(
    parameters: Sequence[ModelTensor], groupings: Mapping[str, GroupValues], n_replicas: int
) -> Iterator[None]:
    """Inside, a grouped parameter has the shape and value that one replica sees."""
    grouped = [parameter.tensor for parameter in parameters if parameter.name in groupings]
    for parameter in parameters:
        if parameter.name in groupings:
            _check_slices(parameter, groupings[parameter.name], n_replicas)
    whole = [tensor.data for tensor in grouped]
    for tensor in grouped:
        tensor.data = tensor.data[0]
    try:
        yield
    finally:
        for tensor, data in zip(grouped, whole, strict=True):
            tensor.data = data


def _check_slices(tensor: ModelTensor, grouping: GroupValues, n_replicas: int) -> None:
    n_groups = grouping.replicas.n_groups(n_replicas)
    if tensor.tensor.shape[0] not in (n_groups, n_replicas):
        raise UnsuitableModel(
            f"The parameter {tensor.name} is grouped: its first dimension must be the number of "
            f"groups ({n_groups}), got {tensor.tensor.shape[0]}"
        )


class _Slices:
    """Cuts the host's parameters and states into those of each replica, and joins them again."""

    def __init__(
        self, step: CapturedStep, repetition: Repetition, groupings: Mapping[str, GroupValues]
    ):
        if repetition.n_processes > 1:
            raise UnsuitableModel("replicaGrouping works within one process only")
        self.n_replicas = repetition.n_replicas
        self.grouping_of = {
            slot.index: groupings[slot.name]
            for slot in step.inputs
            if slot.kind == PARAMETER and slot.name in groupings
        }
        states = [slot for slot in step.inputs if slot.kind == STATE]
        self._state_is_grouped = [slot.owner in groupings for slot in states]
        placeholders = zip(step.inputs, step.placeholders(), strict=True)
        self._state_dims = [n.meta["val"].dim() for slot, n in placeholders if slot.kind == STATE]

    def parameters_of(self, replica: int, parameters: Sequence[Tensor]) -> list[Tensor]:
        return [
            g.slice_of(value, replica, self.n_replicas) if (g := self.grouping_of.get(i)) else value
            for i, value in enumerate(parameters)
        ]

    def joined_parameters(self, of_replicas: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        return [
            g.joined([own[i] for own in of_replicas]) if (g := self.grouping_of.get(i)) else value
            for i, value in enumerate(of_replicas[0])
        ]

    def states_of(self, replica: int, states: Sequence[Tensor]) -> list[Tensor]:
        """A state of a grouped parameter has a slice for each replica, or is the same for all."""
        return [
            state[replica] if state.dim() > n_dims else state
            for state, n_dims in zip(states, self._state_dims, strict=True)
        ]

    def joined_states(self, of_replicas: Sequence[Sequence[Tensor]]) -> list[Tensor]:
        return [
            torch.stack([own[i] for own in of_replicas]) if is_grouped else of_replicas[0][i]
            for i, is_grouped in enumerate(self._state_is_grouped)
        ]


class GroupedTileSession(TileSession):
    """The step on tiles with weights and optimiser states for each replica."""

    def __init__(
        self,
        step: CapturedStep,
        built: Handles,
        engine: "Engine",
        repetition: Repetition,
        groupings: Mapping[str, GroupValues],
    ):
        super().__init__(step, built, engine, repetition)
        self.slices = _Slices(step, repetition, groupings)

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        self._write(BUFFER, buffers)
        for r in self._replicas:
            self._write(PARAMETER, self.slices.parameters_of(r, parameters), r)

    def read_weights(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        own = [self._read(PARAMETER, r) for r in self._replicas]
        return self.slices.joined_parameters(own), [self._read(BUFFER, r) for r in self._replicas]

    def write_states(self, states: list[Tensor]) -> None:
        for r in self._replicas:
            self._write(STATE, self.slices.states_of(r, states), r)

    def read_states(self) -> list[Tensor]:
        return self.slices.joined_states([self._read(STATE, r) for r in self._replicas])

    @property
    def _replicas(self) -> range:
        return range(self.repetition.n_replicas)


class GroupedSession(HostSession):
    """The step on this computer with weights and optimiser states for each replica."""

    def __init__(
        self,
        step: CapturedStep,
        repetition: Repetition,
        settings: HostSettings,
        groupings: Mapping[str, GroupValues],
    ):
        self.slices = _Slices(step, repetition, groupings)
        super().__init__(step, repetition, replace(settings, host="eager"))
        self.replicas = [DeviceState([], [], [], [], []) for _ in range(self.n_replicas)]

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        super().write_weights([], buffers)
        for r, own in enumerate(self.replicas):
            own.parameters = self._stored(own.parameters, self.slices.parameters_of(r, parameters))
            own.buffers = self.state.buffers

    def read_weights(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        own = [replica.parameters for replica in self.replicas]
        return self.slices.joined_parameters(own), self.state.buffers

    def write_states(self, states: list[Tensor]) -> None:
        for r, own in enumerate(self.replicas):
            own.states = self._stored(own.states, self.slices.states_of(r, states))

    def read_states(self) -> list[Tensor]:
        return self.slices.joined_states([own.states for own in self.replicas])

    def set_hyper(self, values: Sequence[float]) -> None:
        """Each replica has copies: automatic loss scaling changes its own after its update."""
        super().set_hyper(values)
        for own in self.replicas:
            own.hyper_tensors = [tensor.clone() for tensor in self.state.hyper_tensors]
            own.hyper_floats = list(self.state.hyper_floats)

    def read_hyper(self) -> list[float]:
        return [float(tensor) for tensor in self.replicas[0].hyper_tensors]

    def run(self, inputs: Sequence[Sequence[Tensor]], give: Give) -> None:
        program = self.program
        with torch.no_grad():
            number = 0
            for _ in range(program.repetition.n_iterations):
                result = [program.no_gradients() for _ in self.replicas]
                for _ in range(program.repetition.n_accumulation):
                    for r, own in enumerate(self.replicas):
                        outputs, gradients = program.run_micro(own, r, inputs[number])
                        give(number, outputs)
                        result[r].add(gradients)
                        number += 1
                if program.rule is not None:
                    self._update(result)

    def _update(self, of_replicas: list[Gradients]) -> None:
        """Shared weights have the same gradient everywhere, so they stay the same."""
        for r, own in enumerate(self.replicas):
            reduced = copy(of_replicas[r])
            reduced.replace(
                [
                    self._reduced(place, [gradients.total[k] for gradients in of_replicas], r)
                    for k, place in enumerate(self.program.trained)
                ]
            )
            self.program.update(own, reduced)

    def _reduced(self, parameter: int, gradients: list[Tensor], replica: int) -> Tensor:
        grouping = self.slices.grouping_of.get(parameter)
        if grouping is None:
            return torch.stack(gradients).sum(0)
        group = grouping.replicas
        members = group.members(group.group_of(replica))
        return torch.stack([gradients[r] for r in members]).sum(0)
