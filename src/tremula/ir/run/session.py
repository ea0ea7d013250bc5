"""Sessions: a compiled step with its weights on a device: this computer, or tiles."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, fx

from tremula.ir.host.compiled.pool import PoolUse
from tremula.ir.host.passes.memory_format import device_copy, to_column_major
from tremula.ir.host.programs.backend_choice import backend_for
from tremula.ir.host.programs.cuda_graph import CudaGraphProgram, InductorCudaGraphProgram
from tremula.ir.host.programs.error_origin import note_operation
from tremula.ir.host.programs.fastest import FastestProgram
from tremula.ir.host.programs.inductor import InductorProgram
from tremula.ir.host.programs.program import DeviceState, HostProgram
from tremula.ir.locations import HostHandle
from tremula.ir.lowering.types import narrow, tile_shape, tile_type, widened
from tremula.ir.repetition import Repetition
from tremula.ir.run.generators import DeviceRandom, HostRandom, TileRandom
from tremula.ir.settings import HostSettings
from tremula.ir.step import BUFFER, HYPER, INPUT, OUTPUT, PARAMETER, STATE, CapturedStep, StepSlot

if TYPE_CHECKING:  # lazy: importing the tile compiler is slow
    from tremula.runtime.engine import Engine

Give = Callable[[int, list[Tensor]], None]
Rows = Sequence[Sequence[Tensor]]  # the inputs of each micro-batch of a call


class Handles(Protocol):
    """The names under which the host finds the tensors and streams of a tile program."""

    @property
    def state_handles(self) -> Mapping[tuple[str, int], HostHandle]: ...  # by kind and index
    @property
    def inputs(self) -> Sequence[str]: ...
    @property
    def outputs(self) -> Sequence[tuple[StepSlot, str]]: ...
    @property
    def host_functions(self) -> Mapping[str, Callable]: ...  # by handle


class StepSession(Protocol):
    """A device as the front end sees it. Lists are in the order of the step's slots."""

    @property
    def input_device(self) -> torch.device | None:
        """Where inputs must be before a run; None: anywhere, as the session copies them."""
        ...

    @property
    def shares_memory(self) -> bool:
        """Whether reading returns the tensors that the device itself uses, not copies of them."""
        ...

    def generators(self, seed: int) -> DeviceRandom:
        """The random number generators of the device, seeded."""
        ...

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None: ...
    def write_buffers(self, values: Mapping[int, Tensor], replica: int | None = None) -> None: ...
    def read_weights(self) -> tuple[list[Tensor], list[list[Tensor]]]: ...
    def trained_weights(self) -> list[Tensor]: ...
    def write_states(self, states: list[Tensor]) -> None: ...
    def read_states(self) -> list[Tensor]: ...
    def set_hyper(self, values: Sequence[float]) -> None: ...
    def read_hyper(self) -> list[float]: ...
    def run(self, inputs: Rows, give: Give) -> None: ...


class HostSession:
    """The step on this computer, with device copies of all weights."""

    shares_memory = True

    def __init__(
        self,
        step: CapturedStep,
        repetition: Repetition,
        settings: HostSettings,
        *,
        checks_floats: bool = False,
        rounds_stochastically: bool = False,
        returned: Collection[int] | None = None,
        pool_use: PoolUse | None = None,
    ):
        self.device = settings.torch_device()
        if checks_floats:  # fused operations cannot be looked into
            settings = replace(settings, host="eager")
        program = _PROGRAMS[backend_for(step, settings, repetition.n_processes)]
        if program is FastestProgram:
            program = partial(FastestProgram, pool_use=pool_use)
        elif pool_use is not None:
            pool_use.end()
        self.program: HostProgram = program(
            step,
            device=self.device,
            repetition=repetition,
            checks_floats=checks_floats,
            rounds_stochastically=rounds_stochastically,
            returned=returned,
        )
        self.n_replicas = repetition.n_replicas
        self.state = DeviceState([], [[] for _ in range(self.n_replicas)], [], [], [])

    @property
    def input_device(self) -> torch.device | None:
        is_here = self.device.type == "cpu" or self.program.copies_inputs
        return None if is_here else self.device

    def generators(self, seed: int) -> HostRandom:
        return HostRandom(self.device, seed, is_used=self.program.is_random)

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        is_new = not self.state.parameters
        self.state.parameters = self._stored(self.state.parameters, parameters)
        for index in self.program.column_major_weights if is_new else ():
            self.state.parameters[index] = to_column_major(self.state.parameters[index])
        self.state.buffers = [self._stored(own, buffers) for own in self.state.buffers]

    def write_buffers(self, values: Mapping[int, Tensor], replica: int | None = None) -> None:
        chosen = self.state.buffers if replica is None else [self.state.buffers[replica]]
        for own in chosen:
            for index, value in values.items():
                own[index].copy_(value.detach())

    def read_weights(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        return self.state.parameters, self.state.buffers

    def trained_weights(self) -> list[Tensor]:
        """The weights of the update rule, in its order; none before they were written."""
        if not self.state.parameters:
            return []
        return [self.state.parameters[index] for index in self.program.trained]

    def write_states(self, states: list[Tensor]) -> None:
        self.state.states = self._stored(self.state.states, states)

    def read_states(self) -> list[Tensor]:
        return self.state.states

    def set_hyper(self, values: Sequence[float]) -> None:
        numbers = [torch.tensor(float(value)) for value in values]
        self.state.hyper_tensors = self._stored(self.state.hyper_tensors, numbers)
        self.state.hyper_floats[:] = [float(value) for value in values]

    def read_hyper(self) -> list[float]:
        return [float(tensor) for tensor in self.state.hyper_tensors]

    def run(self, inputs: Rows, give: Give) -> None:
        try:
            self.program.run(self.state, inputs, give)
        except Exception as error:
            note_operation(error, self.program.micro)
            raise

    def _stored(self, own: list[Tensor], values: list[Tensor]) -> list[Tensor]:
        """Copy values to the device, into memory they already have there or into new memory."""
        if len(own) != len(values):
            images = self.program.image_format
            return [device_copy(value, self.device, images) for value in values]
        for target, value in zip(own, values, strict=True):
            target.copy_(value.detach())
        return own


_PROGRAMS: dict[str, type[HostProgram]] = {
    "eager": HostProgram,
    "inductor": InductorProgram,
    "cuda-graph": CudaGraphProgram,
    "inductor-cuda-graph": InductorCudaGraphProgram,
    "fastest": FastestProgram,
}


class TileSession:
    """The step executed vertex by vertex; weights live in the tiles' memory."""

    input_device = None  # streams copy inputs
    shares_memory = False

    def __init__(
        self, step: CapturedStep, built: Handles, engine: "Engine", repetition: Repetition
    ):
        self.step = step
        self.built = built
        self.engine = engine
        self.repetition = repetition
        for handle, function in built.host_functions.items():
            engine.connect_host_function(handle, function)

    def generators(self, seed: int) -> TileRandom:
        return TileRandom(self.engine, self.repetition.n_replicas, seed)

    def write_weights(self, parameters: list[Tensor], buffers: list[Tensor]) -> None:
        self._write(PARAMETER, parameters)
        self._write(BUFFER, buffers)

    def write_buffers(self, values: Mapping[int, Tensor], replica: int | None = None) -> None:
        for index, value in values.items():
            handle = self.built.state_handles[BUFFER, index].handle
            self.engine.write_tensor(handle, narrow(value), replica)

    def read_weights(self) -> tuple[list[Tensor], list[list[Tensor]]]:
        replicas = range(self.repetition.n_replicas)
        return self._read(PARAMETER, 0), [self._read(BUFFER, replica) for replica in replicas]

    def trained_weights(self) -> list[Tensor]:
        """None: weights are on tiles."""
        return []

    def write_states(self, states: list[Tensor]) -> None:
        self._write(STATE, states)

    def read_states(self) -> list[Tensor]:
        return self._read(STATE, 0)

    def set_hyper(self, values: Sequence[float]) -> None:
        self._write(HYPER, [torch.tensor(float(value)) for value in values])

    def read_hyper(self) -> list[float]:
        return [float(tensor) for tensor in self._read(HYPER, 0)]

    def run(self, inputs: Rows, give: Give) -> None:
        """Streams hold one replica's micro-batches, one after another."""
        n_replicas = self.repetition.n_replicas
        for replica in range(n_replicas):
            own = inputs[replica::n_replicas]
            for index, handle in enumerate(self.built.inputs):
                data = np.stack([narrow(micro[index]).reshape(-1) for micro in own])
                connect(self.engine, handle, data, replica)
        results = [self._connect_outputs(replica) for replica in range(n_replicas)]
        self.engine.run()
        for number in range(self.repetition.n_micro_batches):
            micro, replica = divmod(number, n_replicas)
            result = [
                (slot, widened(values[micro], dtype)) for slot, values, dtype in results[replica]
            ]
            for slot, value in result:
                if slot.kind == INPUT:  # written by the model: so is the caller's tensor
                    inputs[number][slot.index].copy_(value)
            give(number, [value for slot, value in result if slot.kind == OUTPUT])

    def _connect_outputs(self, replica: int) -> list:
        n_micro = self.repetition.n_micro_batches // self.repetition.n_replicas
        handles = dict(self.built.outputs)  # none with synthetic data: nothing comes back
        results = []
        for slot, node in zip(self.step.outputs, self.step.results(), strict=True):
            if slot.kind != OUTPUT and slot not in handles:
                continue
            value = node.meta["val"]
            type = tile_type(value.dtype)
            data = np.zeros((n_micro, *tile_shape(value)), type.dtype)
            if slot in handles:
                connect(self.engine, handles[slot], data, replica)
            results.append((slot, data, value.dtype))
        return results

    def _write(self, kind: str, tensors: list[Tensor], replica: int | None = None) -> None:
        """To one replica, or to all of them."""
        for index, tensor in enumerate(tensors):
            place, value = self.built.state_handles[kind, index], narrow(tensor)
            if not self._is_remote(place) and place.n_shards == 1:
                self.engine.write_tensor(place.handle, value, replica)
                continue
            shards = shards_of(value, place.n_shards)
            replicas = range(self.repetition.n_replicas) if replica is None else [replica]
            for each in replicas:
                self._write_one(place, shards[each % place.n_shards], each)

    def _write_one(self, place: HostHandle, values: np.ndarray, replica: int) -> None:
        if self._is_remote(place):
            self.engine.copy_to_remote_buffer(values, place.handle, place.row, replica)
        else:
            self.engine.write_tensor(place.handle, values, replica)

    def _is_remote(self, place: HostHandle) -> bool:
        return place.handle in self.engine.executable.host.buffers

    def _read(self, kind: str, replica: int) -> list[Tensor]:
        nodes = zip(self.step.inputs, self.step.placeholders(), strict=True)
        return [self._read_one(slot, node, replica) for slot, node in nodes if slot.kind == kind]

    def _read_one(self, slot: StepSlot, node: fx.Node, replica: int) -> Tensor:
        place, fake = self.built.state_handles[slot.kind, slot.index], node.meta["val"]
        replicas = range(place.n_shards) if place.n_shards > 1 else [replica]
        parts = [np.ravel(self._values_at(place, each)) for each in replicas]
        shape = tile_shape(fake)
        values = np.concatenate(parts)[: math.prod(shape)]
        return widened(np.reshape(values, shape), fake.dtype).to(fake.dtype)

    def _values_at(self, place: HostHandle, replica: int) -> np.ndarray:
        if self._is_remote(place):
            return self.engine.copy_from_remote_buffer(place.handle, place.row, replica)
        return self.engine.read_tensor(place.handle, replica=replica)


def copy_state(step: CapturedStep, source: StepSession, target: StepSession) -> None:
    """Give a session the weights, buffers, optimiser states and hyperparameters of another one.

    Nothing is copied from a source that has not been given its weights yet.
    """
    parameters, buffers = source.read_weights()
    kinds = {slot.kind for slot in step.inputs}
    n_expected = sum(slot.kind in (PARAMETER, BUFFER) for slot in step.inputs)
    if len(parameters) + len(buffers[0]) != n_expected:
        return
    target.write_weights([t.cpu() for t in parameters], [t.cpu() for t in buffers[0]])
    if STATE in kinds:
        target.write_states([t.cpu() for t in source.read_states()])
    if HYPER in kinds:
        target.set_hyper(source.read_hyper())


def shards_of(values: np.ndarray, n_shards: int) -> list[np.ndarray]:
    """Equal parts of the elements, the last ones padded with zeros."""
    flat = values.reshape(-1)
    n_missing = -len(flat) % n_shards
    return np.split(np.concatenate([flat, np.zeros(n_missing, flat.dtype)]), n_shards)


def connect(engine: "Engine", handle: str, data: np.ndarray, replica: int | None = None) -> None:
    """Let a stream carry an array; one without elements has nothing to carry."""
    if data.size:
        engine.connect_stream(handle, data.reshape(-1), replica)
