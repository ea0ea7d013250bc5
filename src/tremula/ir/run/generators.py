"""The random numbers of a compiled model: drawn from its own generators, not the script's."""

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch

from tremula.base.processes import TORCH_GENERATORS
from tremula.ir.errors import UnsuitableModel
from tremula.ir.passes.random_bits import initial_state
from tremula.ir.torch_generators import random_state, set_random_state

if TYPE_CHECKING:  # an engine imports Numba
    from tremula.runtime.engine import Engine


class DeviceRandom(Protocol):
    """A device's generators: a seed, and a state that continues from call to call."""

    seed: int

    def drawing(self) -> AbstractContextManager[None]: ...  # while the model runs
    def words(self) -> list[int]: ...
    def set_words(self, words: list[int]) -> None: ...
    def reseed(self, seed: int) -> None: ...  # as if the model had been given this seed


class BufferStore(Protocol):
    """What a counter in a buffer needs of a session."""

    def write_buffers(
        self, values: Mapping[int, torch.Tensor], replica: int | None = None
    ) -> None: ...
    def read_weights(self) -> tuple[list[torch.Tensor], list[list[torch.Tensor]]]: ...


def new_seed() -> int:
    """A fresh seed, for models that were given none."""
    return int.from_bytes(os.urandom(4), "little")


def state_of(random: DeviceRandom) -> list[int]:
    """The seed, then the state."""
    return [random.seed, *random.words()]


def restore(random: DeviceRandom, state: list[int]) -> None:
    """Continue from what `state_of` gave."""
    expected, got = len(random.words()), len(state) - 1
    if got != expected:
        raise UnsuitableModel(
            f"rng_state must be a list of {expected + 1} whole numbers, a seed and the state it "
            f"led to, as rng_state gave it; got {got + 1}"
        )
    random.seed = state[0]
    random.set_words(state[1:])


class HostRandom:
    """PyTorch's generators of the host and, if the model runs there, of the GPU."""

    def __init__(self, device: torch.device, seed: int, *, is_used: bool):
        self.seed = seed
        self._is_used = is_used
        kinds = ["cpu"] if device.type == "cpu" else ["cpu", device.type]
        self._devices = [torch.device(kind) for kind in kinds]
        self.reseed(seed)

    def reseed(self, seed: int) -> None:
        self.seed = seed
        self._states = [torch.Generator(d).manual_seed(seed).get_state() for d in self._devices]

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Inside, PyTorch draws the model's numbers; after it the script's continue undisturbed."""
        if not self._is_used:
            yield
            return
        with TORCH_GENERATORS:
            before = [random_state(device) for device in self._devices]
            self._set_all(self._states)
            try:
                yield
            finally:
                self._states = [random_state(device) for device in self._devices]
                self._set_all(before)

    def words(self) -> list[int]:
        return [int(word) for state in self._states for word in state.view(torch.int64)]

    def set_words(self, words: list[int]) -> None:
        sizes = [state.numel() // 8 for state in self._states]
        parts = torch.tensor(words, dtype=torch.int64).split(sizes)
        self._states = [part.clone().view(torch.uint8) for part in parts]

    def _set_all(self, states: list[torch.Tensor]) -> None:
        for device, state in zip(self._devices, states, strict=True):
            set_random_state(device, state)


class CountedRandom:
    """A seed and a counter in a buffer of the step: host and tiles draw the same numbers."""

    drawing = nullcontext  # no generator of the script's is touched

    def __init__(self, session: BufferStore, seed: int, counter: int):
        self.seed = seed
        self._session = session
        self._counter = counter
        self._is_written = False

    def words(self) -> list[int]:
        buffers = self._session.read_weights()[1]
        if self._is_written:
            states = [own[self._counter] for own in buffers]
        else:
            states = [initial_state(self.seed, replica) for replica in range(len(buffers))]
        return torch.cat([state.cpu() for state in states]).tolist()

    def set_words(self, words: list[int]) -> None:
        states = torch.tensor(words, dtype=torch.int32).view(-1, 2)
        for replica, state in enumerate(states):
            self._session.write_buffers({self._counter: state}, replica)
        self._is_written = True

    def reseed(self, seed: int) -> None:
        self.seed, n_replicas = seed, len(self._session.read_weights()[1])
        states = [initial_state(seed, replica) for replica in range(n_replicas)]
        self.set_words(torch.cat(states).tolist())


class TileRandom:
    """The generators of every worker of every tile."""

    drawing = nullcontext  # nothing of the script's is touched while tiles run

    def __init__(self, engine: "Engine", n_replicas: int, seed: int):
        self.seed = seed
        self._engine = engine
        self._n_replicas = n_replicas

    def words(self) -> list[int]:
        states = [self._seeds(replica) for replica in range(self._n_replicas)]
        return np.concatenate(states).tolist()

    def set_words(self, words: list[int]) -> None:
        storage = self._engine.loaded.storage
        for replica, part in enumerate(np.split(np.array(words, np.uint32), self._n_replicas)):
            storage.write_seeds(part.reshape(storage.read_seeds(replica).shape), replica)

    def reseed(self, seed: int) -> None:
        from tremula.codelets.python.random import STATE_WORDS, seeds_of  # imports Numba

        self.seed = seed
        n_records = len(self.words()) // (2 * STATE_WORDS)  # words here have 32 bits, there 64
        self.set_words(seeds_of(seed, n_records).reshape(-1).view(np.uint32).tolist())

    def _seeds(self, replica: int) -> np.ndarray:
        return self._engine.loaded.storage.read_seeds(replica).reshape(-1)
