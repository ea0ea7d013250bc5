"""Keras's trainer with compiled steps: its data adapters, callbacks, metrics and history stay.

Models built (or trained) inside `IPUStrategy.scope()` get their `train_function`, `test_function`
and `predict_function` from here. Everything else of `fit`, `evaluate` and `predict` is Keras's.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import keras
from keras.src.backend.torch import trainer as torch_trainer

from tremula.frontends.keras.errors import refuse
from tremula.frontends.keras.extensions import inject
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
_new_options: list[Callable[[], ModelOptions]] = []  # of the scopes entered, the innermost last


@contextmanager
def scope_of(new_options: Callable[[], ModelOptions]) -> Iterator[None]:
    """Models that are built inside the block run as compiled steps."""
    install()
    _new_options.append(new_options)
    try:
        yield
    finally:
        _new_options.pop()


class StaticEpochIterator(_PlainIterator):
    """Batches of an epoch, refused at once if their number or size does not fit."""

    def __init__(self, *args: Any, **kwargs: Any):  # noqa: ANN401
        super().__init__(*args, **kwargs)
        adapter, n = self.data_adapter, self.num_batches
        reaches_end = not self.steps_per_epoch or self.steps_per_epoch >= (adapter.num_batches or 0)
        if adapter.has_partial_batch and adapter.partial_batch_size and n != 1 and reaches_end:
            raise refuse(
                f"the last batch has {adapter.partial_batch_size} samples, fewer than the others:"
                " a compiled step has static shapes.",
                hint="batch the data set with drop_remainder=True, choose a batch_size that"
                " divides the number of samples, or give steps_per_epoch",
            )
        if n is not None and n % self.steps_per_execution:
            raise refuse(
                f"{n} steps of an epoch are no multiple of the {self.steps_per_execution} of an"
                " execution (steps_per_execution × replicas).",
                hint="change compile(steps_per_execution=…), steps_per_epoch or the batch size",
            )

    def _get_iterator(self) -> Iterator[Any]:
        return _alike(super()._get_iterator())


def _alike(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches as they come, while all have the shapes of the first."""
    first: list[tuple[int, ...]] | None = None
    for number, batch in enumerate(batches):
        shapes = [tuple(part.shape) for part in keras.tree.flatten(batch)]
        first = shapes if first is None else first
        if shapes != first:
            raise refuse(
                f"batch {number} has the shapes {shapes}, the first has {first}: a compiled step"
                " has static shapes.",
                hint="batch the data set with drop_remainder=True",
            )
        yield batch


@functools.cache
def install() -> None:
    """Teach Keras's trainer about models with options; others run as before."""
    Trainer.__init__ = _remembering(Trainer.__init__)
    for kind in (TRAIN, TEST, PREDICT):
        name = f"make_{kind}_function"
        setattr(Trainer, name, _making(getattr(Trainer, name), kind))
    for name in ("fit", "evaluate", "predict"):
        setattr(Trainer, name, _static(getattr(Trainer, name)))
    inject()


def _remembering(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, N807
        plain(self, *args, **kwargs)
        if _new_options:
            bind(self, _new_options[-1]())

    return __init__


def _making(plain: Callable, kind: str) -> Callable:
    name = f"{kind}_function"

    @functools.wraps(plain)
    def make(self: keras.Model, force: bool = False) -> Callable:
        options = _options(self)
        if options is None:
            return plain(self, force)
        known = getattr(self, name)
        if known is None or force or not getattr(known, "is_compiled", False):
            setattr(self, name, _function(self, options, kind))
        return getattr(self, name)

    return make


def _options(model: keras.Model) -> ModelOptions | None:
    """Those of a model; one that is built outside a scope and used inside gets new ones."""
    options = options_of(model)
    if options is None and _new_options:
        options = _new_options[-1]()
        bind(model, options)
    return options


def _function(model: keras.Model, options: ModelOptions, kind: str) -> Callable:
    def run(data: list[Any]) -> Any:  # noqa: ANN401
        from tremula.frontends.keras.execution import execute  # loads the compiler

        results = execute(model, options, kind, data)
        if kind == PREDICT:
            return _joined(results)
        options.step_logs = results
        return results[-1]

    run.is_compiled = True  # pyright: ignore[reportFunctionMemberAccess] - a mark of ours
    return run


def _joined(results: list[Any]) -> Any:  # noqa: ANN401
    """Predictions of all steps, one after another."""
    if len(results) == 1:
        return results[0]
    return keras.tree.map_structure(lambda *parts: keras.ops.concatenate(parts), *results)


def _static(plain: Callable) -> Callable:
    @functools.wraps(plain)
    def call(self: keras.Model, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        options = _options(self)
        if options is None:
            return plain(self, *args, **kwargs)
        with (
            patch.object(torch_trainer, "TorchEpochIterator", StaticEpochIterator),
            _batches_of_replicas(self, options.n_replicas(self)),
            callbacks_of_steps(options),
        ):
            return plain(self, *args, **kwargs)

    return call


@contextmanager
def _batches_of_replicas(model: keras.Model, n_replicas: int) -> Iterator[None]:
    """`steps_per_execution` counts the steps of one replica; each takes a batch of its own."""
    asked = model.steps_per_execution
    if n_replicas == 1 or getattr(model, "_tremula_is_running", False):
        yield
        return
    model.__dict__["_tremula_is_running"] = True
    model.steps_per_execution = asked * n_replicas
    try:
        yield
    finally:
        model.steps_per_execution = asked
        del model.__dict__["_tremula_is_running"]
