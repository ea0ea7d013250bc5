"""Keras while a step is recorded: functional updates, the machine's random numbers, its device."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import keras
from keras.src.backend.common import global_state
from keras.src.backend.torch import random as torch_random
from keras.src.backend.torch.optimizers.torch_optimizer import TorchOptimizer
from keras.src.backend.torch.optimizers.torch_parallel_optimizer import TorchParallelOptimizer
from keras.src.optimizers.base_optimizer import BaseOptimizer
from keras.src.random.seed_generator import SeedGenerator
from torch import Tensor

from tremula.ir.recorder import DEVICE
from tremula.ir.recording import active

_DEVICE_KEY = "torch_device"  # where Keras keeps the device that it makes tensors on


@contextmanager
def recorded_keras() -> Iterator[None]:
    """Keras as a step is made of it: for the model and, behind it, for the optimiser."""
    with ExitStack() as stack:
        stack.enter_context(_device(DEVICE))
        stack.enter_context(functional_updates())
        stack.enter_context(patch.object(torch_random, "torch_seed_generator", _no_generator))
        stack.enter_context(patch.object(keras.layers.Layer, "__call__", _named_call()))
        yield


@contextmanager
def functional_updates() -> Iterator[None]:
    """Optimisers by Keras's formulas for one variable, which write nothing in place."""
    own = (
        (TorchParallelOptimizer, "_backend_update_step"),
        (TorchOptimizer, "_apply_weight_decay"),
    )
    with ExitStack() as stack:
        for owner, name in own:
            stack.enter_context(patch.object(owner, name, getattr(BaseOptimizer, name)))
        yield


@contextmanager
def held_as(variables: Sequence[Any], values: Sequence[Tensor]) -> Iterator[keras.StatelessScope]:
    """Variables have these values inside the block; assigned ones stay in the scope."""
    scope = keras.StatelessScope(collect_losses=True, initialize_variables=False)
    scope.state_mapping.update(zip(map(id, variables), values, strict=True))
    with scope:
        yield scope


@contextmanager
def _device(device: object) -> Iterator[None]:
    before = global_state.get_global_attribute(_DEVICE_KEY, None)
    global_state.set_global_attribute(_DEVICE_KEY, device)
    try:
        yield
    finally:
        global_state.set_global_attribute(_DEVICE_KEY, before)


def _no_generator(seed: object) -> None:
    """The program draws by its own generators; that of a layer still counts its draws."""
    if isinstance(seed, SeedGenerator):
        seed.next()


def _named_call() -> Any:  # noqa: ANN401 - a method of Keras
    """`Layer.__call__` that tells the recording which layer runs."""
    plain = keras.layers.Layer.__call__

    def call(self: keras.layers.Layer, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        recording = active()
        if recording is None:
            return plain(self, *args, **kwargs)
        path = recording.module_path
        path.append(f"{path[-1]}/{self.name}" if path else self.name)
        try:
            return plain(self, *args, **kwargs)
        finally:
            path.pop()

    return call
