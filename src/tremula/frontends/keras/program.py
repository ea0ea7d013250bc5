"""A step of a Keras model on a device, sharing its memory with the model's variables.

On this computer a variable of Keras *is* the tensor on the device: what a callback assigns is there
in the next step, what a checkpoint saves is what the last step left, and nothing is copied. Tiles
have separate memory: weights go there before an execution and come back after it.
"""

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import keras
import torch
from torch import Tensor

from tremula.compiler.report.report import ProgramReport
from tremula.frontends.keras.backend import tensor_of
from tremula.frontends.keras.errors import KerasError, keras_error
from tremula.frontends.keras.optimiser import KerasRule
from tremula.frontends.keras.step import ModelState, is_seed
from tremula.frontends.keras.tracing import ModelVariable
from tremula.frontends.shared.program import StepProgram, compile_program
from tremula.ir.placement import ReadsFromLater
from tremula.ir.run.compiled_step import StepSettings, StepToCompile


class RecordableStep(Protocol):
    """A step of a model, or a round of a loop."""

    @property
    def kind(self) -> str: ...
    @property
    def result(self) -> object: ...  # structure of results, once it is recorded
    @property
    def model_state(self) -> ModelState: ...
    @property
    def scale(self) -> keras.Variable | None: ...  # the scale of the loss
    @property
    def counted(
        self,
    ) -> Sequence[ModelVariable]: ...  # variables that replicas count for themselves
    def rule(self) -> KerasRule | None: ...
    def record(self, flat: list[Tensor]) -> tuple[list[Tensor], None]: ...


@dataclass(frozen=True)
class KerasProgram:
    """A step compiled for batches of one kind."""

    step: RecordableStep
    program: StepProgram
    metrics: tuple[ModelVariable, ...]  # variables that replicas count for themselves
    seeds: tuple[ModelVariable, ...] = ()  # states of the layers' generators
    keeps_last: bool = False  # metrics are those of the last replica, not of all

    def run(self, batches: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
        """Flat results of all batches of an execution."""
        self._write()
        self._seed()
        results = self.program.call(batches)
        self._read()
        return results

    def _seed(self) -> None:
        """Draw by the seeds of the layers and the number of updates: a checkpoint has both.

        Without an update, by how often each layer drew.
        """
        if not self.seeds:
            return
        states = [tensor_of(v).detach().cpu().numpy() for v in self.seeds]
        rule = self.program.step.rule
        if rule is not None:
            iterations = rule.optimizer.iterations  # pyright: ignore[reportAttributeAccessIssue] - a KerasRule
            states = [
                *(state[:1] for state in states),
                tensor_of(iterations).detach().cpu().numpy(),
            ]
        self.program.random.reseed(zlib.crc32(b"".join(state.tobytes() for state in states)))

    def report(self) -> ProgramReport:
        """Cycles and memory of the tile program."""
        return self.program.report()

    def save_report(self, folder: str | os.PathLike[str]) -> Path:
        """Write the report of the tile program for the analyser; the path of its file."""
        return self.program.save_report(folder, self.step.kind)

    @property
    def n_replicas(self) -> int:
        return self.program.n_replicas

    @property
    def _states(self) -> tuple[ModelVariable, ...]:
        rule = self.program.step.rule
        return () if rule is None else tuple(rule.state_variables)  # pyright: ignore[reportAttributeAccessIssue] - a KerasRule

    @property
    def _scale(self) -> keras.Variable | None:
        """The variable with the scale of the loss, if the optimiser has one."""
        rule = self.program.step.rule
        return self.step.scale if rule is not None and rule.loss_scaling is None else None

    def _write(self) -> None:
        """Variables → device, where they are not the same tensors."""
        tensors, session = self.step.model_state, self.program.session
        if not self._is_shared():
            self.program.write_weights(_values(tensors.trained), _values(tensors.others))
            if self._states:
                session.write_states(_values(self._states))
        if self._scale is not None:
            session.set_hyper([float(self._scale.numpy())])
        last = self.n_replicas - 1
        for replica in range(1, self.n_replicas):  # metrics are sums: others begin at zero
            goes_on = self.keeps_last and replica == last
            values = {
                i: tensor_of(v) if goes_on else torch.zeros_like(tensor_of(v))
                for i, v in self._counted()
            }
            session.write_buffers(values, replica)

    def _read(self) -> None:
        """Device → variables."""
        tensors, session = self.step.model_state, self.program.session
        parameters, buffers = session.read_weights()
        shares = session.shares_memory
        _put(tensors.trained, parameters, shares=shares)
        _put(tensors.others, buffers[0], shares=shares)
        if self._states:
            _put(self._states, session.read_states(), shares=shares)
        if self._scale is not None:
            self._scale.assign(session.read_hyper()[0])
        with torch.no_grad():
            for i, variable in self._counted():
                if self.keeps_last:
                    tensor_of(variable).copy_(buffers[-1][i])
                    continue
                for own in buffers[1:]:
                    tensor_of(variable).add_(own[i])

    def _is_shared(self) -> bool:
        session = self.program.session
        if not session.shares_memory:
            return False
        parameters, buffers = session.read_weights()
        pairs = (
            (self.step.model_state.trained, parameters),
            (self.step.model_state.others, buffers[0][: len(self.step.model_state.others)]),
            (self._states, session.read_states()),
        )
        return all(
            len(variables) == len(tensors)
            and all(
                tensor_of(v).data_ptr() == t.data_ptr()
                for v, t in zip(variables, tensors, strict=True)
            )
            for variables, tensors in pairs
        )

    def _counted(self) -> list[tuple[int, ModelVariable]]:
        if self.n_replicas == 1:
            return []
        ids = {id(variable) for variable in self.metrics}
        return [(i, v) for i, v in enumerate(self.step.model_state.others) if id(v) in ids]


def _values(variables: Sequence[ModelVariable]) -> list[Tensor]:
    return [tensor_of(variable).detach() for variable in variables]


def _put(variables: Sequence[ModelVariable], tensors: Sequence[Tensor], *, shares: bool) -> None:
    for variable, tensor in zip(variables, tensors, strict=False):
        own = tensor_of(variable)
        if shares and own.device == tensor.device:
            if own.data_ptr() != tensor.data_ptr():
                own.data = tensor
        else:
            own.data.copy_(tensor)


def _stage_error(error: ReadsFromLater) -> KerasError:
    assert error.place is not None, "blocks of pipelines have places"
    assert error.source_place is not None, "blocks of pipelines have places"
    return keras_error(
        f"layer {error.reader.module!r} of pipeline stage {error.place.order} reads what"
        f" {error.source_node.module!r} of the later stage {error.source_place.order} computes.",
        hint="number stages in the order in which the model runs its layers",
    )


def compile_keras(
    step: RecordableStep,
    batch: Sequence[Tensor],
    settings: StepSettings,
    *,
    keeps_last: bool = False,
) -> KerasProgram:
    """A program for batches like this one."""
    names = [f"{step.kind}_data_{i}" for i in range(len(batch))]
    request = StepToCompile(step.model_state, step.record, list(batch), names, step.rule())
    try:
        program = compile_program(request, settings, report_name=step.kind)
    except ReadsFromLater as error:
        raise _stage_error(error) from error
    seeds = tuple(v for v in step.model_state.others if is_seed(v))
    return KerasProgram(step, program, tuple(step.counted), seeds, keeps_last)
