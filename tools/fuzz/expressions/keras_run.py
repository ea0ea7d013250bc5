"""Expressions in Keras: a layer of keras.ops, fitted and evaluated by compiled steps."""

from collections.abc import Sequence

import numpy as np

import tremula
from tools.fuzz.case import Case
from tools.fuzz.expressions.operations import evaluate, halves_of, n_weights
from tools.fuzz.expressions.reference import LEARNING_RATE, data_of
from tremula.keras import ipu

import keras  # isort: skip - after tremula.keras, which chooses its backend
from keras import ops  # isort: skip

Value = object


class KerasAlgebra:
    """The primitive operations of keras.ops."""

    def shape(self, x: Value) -> tuple[int, ...]:
        return tuple(x.shape)

    def constant(self, number: float, like: Value) -> Value:
        return ops.cast(number, like.dtype)

    def add(self, x: Value, y: Value) -> Value:
        return ops.add(x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return ops.subtract(x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return ops.multiply(x, y)

    def div(self, x: Value, y: Value) -> Value:
        return ops.divide(x, y)

    def maximum(self, x: Value, y: Value) -> Value:
        return ops.maximum(x, y)

    def unary(self, name: str, x: Value) -> Value:
        return getattr(ops, {"neg": "negative"}.get(name, name))(x)

    def matmul(self, x: Value, y: Value) -> Value:
        return ops.matmul(x, y)

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return ops.reshape(x, (-1, *shape[1:]))

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        return ops.transpose(x, tuple(order))

    def reduce(self, name: str, x: Value, axis: int) -> Value:
        return getattr(ops, name)(x, axis=axis, keepdims=True)

    def softmax(self, x: Value, axis: int) -> Value:
        return ops.softmax(x, axis)

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        return ops.concatenate(list(parts), axis)

    def slice(self, x: Value, axis: int, begin: int, end: int) -> Value:
        return x[(slice(None),) * axis + (slice(begin, end),)]


class Expression(keras.layers.Layer):
    """A case's expression, with its weights."""

    def __init__(self, case: Case, arrays: list[np.ndarray]):
        super().__init__(dtype="mixed_float16" if case["half"] else "float32")
        self.case = case
        self.arrays = [self.add_weight(shape=w.shape, name=f"w{i}") for i, w in enumerate(arrays)]
        self.set_weights(arrays)

    def call(self, x: Value) -> Value:
        return evaluate(self.case, KerasAlgebra(), x, self.arrays)


def mean_square(_: Value, out: Value) -> Value:
    return ops.mean(ops.square(out))


def run(case: Case, *, on_tiles: bool) -> list[np.ndarray]:
    """Outputs of each step, then the weights."""
    data, arrays = data_of(case)
    n_samples = data.shape[1]
    samples = data.reshape(-1, *case["shape"])
    keras.utils.clear_session(free_memory=False)
    _configure(case["replicas"] * (2 if case["pipelined"] else 1))
    place = tremula.configured(tiles="run" if on_tiles else "lazy", chip="gc2", device="cpu")
    with place, ipu.ipu_strategy.IPUStrategy().scope():
        model = _model(case, arrays)
        if case["training"]:
            return _trained(case, model, samples, n_samples)
        is_many = case["pipelined"] or case["executions"] > 1
        model.compile(steps_per_execution=case["steps"] if is_many else 1)
        made = model.predict(samples, batch_size=n_samples // case["replicas"], verbose=0)
        return list(np.asarray(made).reshape(case["steps"], n_samples, *made.shape[1:]))


def _configure(n_chips: int) -> None:
    config = ipu.config.IPUConfig()
    config.auto_select_ipus = n_chips
    config.configure_ipu_system()


def _model(case: Case, arrays: list[np.ndarray]) -> "keras.Model":
    """The expression as one layer, or as two that are stages of a pipeline."""
    first = keras.Input(tuple(case["shape"]), dtype="float16" if case["half"] else "float32")
    if not case["pipelined"]:
        return keras.Sequential([first, Expression(case, arrays)])
    halves = halves_of(case)
    n = n_weights(halves[0])
    parts = [Expression(halves[0], arrays[:n]), Expression(halves[1], arrays[n:])]
    model = keras.Sequential([first, *parts])
    model.set_pipeline_stage_assignment([0, 1])
    model.set_pipelining_options(
        gradient_accumulation_steps_per_replica=_batches_in_flight(case),
        gradient_accumulation_reduction_method="mean",
    )
    return model


def _batches_in_flight(case: Case) -> int:
    return case["accumulation"] if case["training"] else case["steps"]


def _trained(
    case: Case, model: "keras.Model", samples: np.ndarray, n_samples: int
) -> list[np.ndarray]:
    """Outputs before each step, where steps are executed one by one, then the weights."""
    n = case["accumulation"]
    n_steps = n * (case["steps"] if case["executions"] > 1 else 1)
    n_rows = n_samples // n // case["replicas"]  # of a batch
    optimizer = keras.optimizers.SGD(LEARNING_RATE, momentum=case["momentum"])
    model.compile(optimizer, mean_square, steps_per_execution=n_steps, auto_scale_loss=False)
    if n > 1 and not case["pipelined"]:
        model.set_gradient_accumulation_options(n, "mean")
    outputs = []
    nothing = np.zeros((len(samples), 1), np.float32)
    if case["executions"] > 1:
        model.fit(samples, nothing, batch_size=n_rows, shuffle=False, verbose=0)
    else:
        for begin in range(0, len(samples), n_samples):
            rows = slice(begin, begin + n_samples)
            outputs.append(np.asarray(model(samples[rows]).detach()))
            model.fit(samples[rows], nothing[rows], batch_size=n_rows, shuffle=False, verbose=0)
    return [*outputs, *(np.asarray(w) for w in model.get_weights())]
