"""Keras's trainer with compiled steps: its data adapters, callbacks, metrics and history stay.

A model built inside `IPUStrategy.scope()`, or used there for the first time, is *bound*: it gets
options and, as instance attributes, the methods below, so it also runs compiled after the scope.
Inside a scope the classes of Keras are patched to bind models; plain models, and other threads, see
Keras as it is. Everything else of `fit`, `evaluate` and `predict` is Keras's.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from types import MethodType
from typing import Any

import keras
from keras.src.backend.torch import trainer as torch_trainer

from tremula.base.context_values import pushed
from tremula.base.libraries.patching import replaced, replaced_for_all, wrapped
from tremula.base.processes import TORCH_GENERATORS
from tremula.frontends.keras.errors import keras_error
from tremula.frontends.keras.extensions import METHODS
from tremula.frontends.keras.options import (
    PREDICT,
    TEST,
    TRAIN,
    ModelOptions,
    bind,
    options_of,
)
from tremula.frontends.keras.step_callbacks import callbacks_of_steps

Trainer = torch_trainer.TorchTrainer
_PlainIterator = torch_trainer.TorchEpochIterator
_RUNS = ("fit", "evaluate", "predict")
NewOptions = Callable[[], ModelOptions]
# What makes the options of new models, for the scopes of this thread, the innermost last.
_new_options: ContextVar[tuple[NewOptions, ...]] = ContextVar("new_options", default=())


@contextmanager
def scope_of(new_options: NewOptions) -> Iterator[None]:
    """Models that are built inside the block, or first used there, run as compiled steps."""
    with ExitStack() as stack:
        stack.enter_context(pushed(_new_options, new_options))
        stack.enter_context(wrapped(Trainer, "__init__", _binding_init))
        for name in (*(f"make_{kind}_function" for kind in (TRAIN, TEST, PREDICT)), *_RUNS):
            stack.enter_context(wrapped(Trainer, name, functools.partial(_binding, name)))
        for method in METHODS:  # those of a plain model say what is missing
            stack.enter_context(replaced_for_all(keras.Model, method.__name__, method))
        yield


def _binding_init(plain: Callable) -> Callable:
    """`Trainer.__init__` that binds the new model."""

    def __init__(self: keras.Model, *args: object, **kwargs: object) -> None:  # noqa: N807
        plain(self, *args, **kwargs)
        _bind(self)

    return __init__


def _binding(name: str, plain: Callable) -> Callable:
    """A method of `Trainer` that binds a model which was built outside of any scope."""

    def call(self: keras.Model, *args: object, **kwargs: object) -> object:
        if options_of(self) is not None:
            return plain(self, *args, **kwargs)
        _bind(self)
        return getattr(self, name)(*args, **kwargs)

    return call


def _bind(model: keras.Model) -> None:
    """Make a model one that compiles; `__dict__`, since Keras tracks what is set by attribute."""
    scopes = _new_options.get()
    if not scopes:  # Trainer.__init__ is called for this model after the scope has ended
        return
    bind(model, scopes[-1]())
    for kind in (TRAIN, TEST, PREDICT):
        make = functools.partial(_make_function, kind)
        model.__dict__[f"make_{kind}_function"] = MethodType(make, model)
    for name in _RUNS:
        model.__dict__[name] = MethodType(functools.partial(_run_static, name), model)
    for method in METHODS:
        model.__dict__[method.__name__] = MethodType(method, model)


def _bound_options(model: keras.Model) -> ModelOptions:
    options = options_of(model)
    assert options is not None, "its methods are those of a bound model"
    return options


def _make_function(kind: str, model: keras.Model, force: bool = False) -> Callable:
    """`model.make_train_function` and the like: the function that runs a compiled step."""
    name = f"{kind}_function"
    known = getattr(model, name)
    if known is None or force or not getattr(known, "is_compiled", False):
        setattr(model, name, _function(model, _bound_options(model), kind))
    return getattr(model, name)


def _run_static(name: str, model: keras.Model, *args: object, **kwargs: object) -> object:
    """`model.fit`, `evaluate` or `predict`: Keras's, on batches of one shape."""
    options = _bound_options(model)
    with (
        replaced(torch_trainer, "TorchEpochIterator", StaticEpochIterator),
        _batches_of_replicas(model, options.n_replicas(model)),
        callbacks_of_steps(options),
    ):
        return getattr(type(model), name)(model, *args, **kwargs)


class StaticEpochIterator(_PlainIterator):
    """Batches of an epoch, rejected at once if their number or size does not fit."""

    def __init__(self, *args: Any, **kwargs: Any):  # noqa: ANN401
        super().__init__(*args, **kwargs)
        adapter, n = self.data_adapter, self.num_batches
        reaches_end = not self.steps_per_epoch or self.steps_per_epoch >= (adapter.num_batches or 0)
        if adapter.has_partial_batch and adapter.partial_batch_size and n != 1 and reaches_end:
            raise keras_error(
                f"the last batch has {adapter.partial_batch_size} samples, fewer than the others:"
                " a compiled step has static shapes.",
                hint="batch the data set with drop_remainder=True, choose a batch_size that"
                " divides the number of samples, or give steps_per_epoch",
            )
        if n is not None and 0 < n < self.steps_per_execution:
            self.steps_per_execution = n  # an execution ends with its epoch
        if n is not None and n % self.steps_per_execution:
            raise keras_error(
                f"{n} steps of an epoch are not a multiple of the {self.steps_per_execution} of an"
                " execution (steps_per_execution × replicas).",
                hint="change compile(steps_per_execution=…), steps_per_epoch or the batch size",
            )

    def _get_iterator(self) -> Iterator[object]:
        return _alike(super()._get_iterator())


def _alike(batches: Iterable[object]) -> Iterator[object]:
    """The batches as they come, while all have the shapes of the first."""
    first: list[tuple[int, ...]] | None = None
    with TORCH_GENERATORS:  # a loader draws a seed
        iterator = iter(batches)
    for number, batch in enumerate(iterator):
        shapes = [tuple(part.shape) for part in keras.tree.flatten(batch)]
        first = shapes if first is None else first
        if shapes != first:
            raise keras_error(
                f"batch {number} has the shapes {shapes}, the first has {first}: a compiled step"
                " has static shapes.",
                hint="batch the data set with drop_remainder=True",
            )
        yield batch


def _function(model: keras.Model, options: ModelOptions, kind: str) -> Callable:
    def run(data: list[object]) -> object:
        from tremula.frontends.keras.execution import execute  # loads the compiler

        results = execute(model, options, kind, data)
        if kind == PREDICT:
            return _joined(results)
        options.step_logs = results
        return results[-1]

    run.is_compiled = True  # pyright: ignore[reportFunctionMemberAccess] - a mark of ours
    return run


def _joined(results: list[object]) -> object:
    """Predictions of all steps, one after another."""
    if len(results) == 1:
        return results[0]
    return keras.tree.map_structure(lambda *parts: keras.ops.concatenate(parts), *results)


@contextmanager
def _batches_of_replicas(model: keras.Model, n_replicas: int) -> Iterator[None]:
    """`steps_per_execution` counts the steps of one replica; each takes a separate batch."""
    requested = model.steps_per_execution
    if n_replicas == 1 or getattr(model, "_tremula_is_running", False):
        yield
        return
    model.__dict__["_tremula_is_running"] = True
    model.steps_per_execution = requested * n_replicas
    try:
        yield
    finally:
        model.steps_per_execution = requested
        del model.__dict__["_tremula_is_running"]
