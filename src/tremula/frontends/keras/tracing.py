"""Keras while a step is recorded: functional updates, the machine's random numbers, its device."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

import keras
import torch
from keras.src.backend.common import global_state
from keras.src.backend.common.stateless_scope import get_stateless_scope
from keras.src.backend.torch import core as torch_core
from keras.src.backend.torch import random as torch_random
from keras.src.backend.torch.optimizers.torch_optimizer import TorchOptimizer
from keras.src.backend.torch.optimizers.torch_parallel_optimizer import TorchParallelOptimizer
from keras.src.random.seed_generator import SeedGenerator
from torch import Tensor

from tremula.base.libraries.patching import replaced, wrapped
from tremula.frontends.keras.pipelines.stages import StagesOfCalls
from tremula.ir.recorder import DEVICE
from tremula.ir.recording import active

_DEVICE_KEY = "torch_device"  # where Keras keeps the device that it makes tensors on


class ModelVariable(Protocol):
    """A variable of Keras with its tensor, or a buffer that is used like one."""

    @property
    def path(self) -> str: ...
    @property
    def _value(self) -> Tensor: ...


@contextmanager
def recorded_keras(stages: StagesOfCalls | None = None) -> Iterator[None]:
    """Keras as a step is made of it: for the model and, behind it, for the optimiser."""
    with ExitStack() as stack:
        stack.enter_context(_device(DEVICE))
        stack.enter_context(functional_updates())
        stack.enter_context(replaced(torch_random, "torch_seed_generator", _no_generator))
        stack.enter_context(replaced(torch_core, "scatter", _scattered))
        for name in ("rand", "randint"):
            stack.enter_context(wrapped(torch, name, _without_generator))
        stack.enter_context(wrapped(keras.layers.Layer, "__call__", partial(_named_call, stages)))
        yield


@contextmanager
def functional_updates() -> Iterator[None]:
    """Optimisers by Keras's formulas for one variable, which write nothing in place."""
    own = (
        (TorchParallelOptimizer, "_backend_update_step"),
        (TorchParallelOptimizer, "_backend_reset_gradient_accumulators"),
        (TorchParallelOptimizer, "_backend_increment_gradient_accumulators"),
        (TorchOptimizer, "_apply_weight_decay"),
    )
    with ExitStack() as stack:
        for owner, name in own:
            stack.enter_context(replaced(owner, name, _next_method(owner, name)))
        stack.enter_context(replaced(torch_core, "cond", both_branches))
        yield


def _next_method(owner: type, name: str) -> Callable[..., object]:
    """The method after a class's own in its resolution order, where Nadam, say, adds something."""

    def method(self: object, *args: object) -> object:
        return getattr(super(owner, self), name)(*args)

    return method


def both_branches(
    pred: object,
    true_fn: Callable[[], object],
    false_fn: Callable[[], object],
) -> object:
    """`keras.ops.cond` of a value that is not known: both are computed, and one is chosen.

    So it is with what they assign to variables.
    """
    if not isinstance(pred, Tensor):
        return true_fn() if pred else false_fn()
    pred = pred.to(torch.bool)
    scope = get_stateless_scope()
    assert scope is not None, "steps are recorded in a scope"
    before = dict(scope.state_mapping)
    chosen = true_fn()
    if_true = dict(scope.state_mapping)
    scope.state_mapping = dict(before)
    other = false_fn()
    if_false = scope.state_mapping
    for key, value in if_true.items():
        if value is not if_false[key]:
            if_false[key] = torch.where(pred, value, if_false[key])
    if chosen is None or other is None:
        return None
    return keras.tree.map_structure(lambda a, b: torch.where(pred, a, b), chosen, other)


@contextmanager
def variables_set_to(
    variables: Sequence[ModelVariable], values: Sequence[Tensor]
) -> Iterator[keras.StatelessScope]:
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


def _scattered(indices: object, values: object, shape: Sequence[int]) -> Tensor:
    """`keras.ops.scatter` without a loop over the values of indices."""
    updates, index = torch_core.convert_to_tensor(values), torch_core.convert_to_tensor(indices)
    n = index.shape[-1]
    rows = updates.reshape(-1, *shape[n:])
    zeros = torch.zeros(tuple(shape), dtype=updates.dtype, device=updates.device)
    return zeros.index_put(index.reshape(-1, n).long().unbind(1), rows, accumulate=True)


def _without_generator(plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that draws, called without a generator: Keras passes `None`."""

    def draw(*args: object, generator: None = None, **kwargs: object) -> Tensor:
        assert generator is None, "draws are the program's own"
        return plain(*args, **kwargs)

    return draw


def _named_call(
    stages: StagesOfCalls | None, plain: Callable[..., object]
) -> Callable[..., object]:
    """`Layer.__call__` that reports to the recording which layer runs."""

    def call(self: keras.layers.Layer, *args: object, **kwargs: object) -> object:
        recording = active()
        if recording is None:
            return plain(self, *args, **kwargs)
        path = recording.module_path
        path.append(f"{path[-1]}/{self.name}" if path else self.name)
        try:
            if stages is None:
                return plain(self, *args, **kwargs)
            with stages.calling(self):
                return plain(self, *args, **kwargs)
        finally:
            path.pop()

    return call
