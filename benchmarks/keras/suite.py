"""The Keras figures: `fit` of the slides' CIFAR model against Keras alone, first batch, import."""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures import Figure, Suite
from benchmarks.measure import ratio

if TYPE_CHECKING:  # Keras and PyTorch are loaded where they are used
    import keras

SUITE = Suite("keras")
_BATCH, _N_STEPS = 64, 4
_N_STEPS_GPU, _N_PER_EXECUTION = 128, 32

_IMPORTS = """
import os, time
os.environ["KERAS_BACKEND"] = "torch"
import keras
began = time.process_time()
import tremula.keras
print(time.process_time() - began)
"""


def cifar_model(**compiled: int) -> "keras.Model":
    """The slides' model, compiled."""
    from keras import Input, Sequential, layers, optimizers

    def convolutions(width: int, next_width: int) -> list:
        return [
            layers.Conv2D(width, (3, 3), padding="same", activation="relu"),
            layers.Conv2D(next_width, (3, 3), activation="relu"),
            layers.MaxPooling2D((2, 2)),
            layers.Dropout(0.25),
        ]

    model = Sequential(
        [
            Input((32, 32, 3)),
            *convolutions(32, 32),
            *convolutions(64, 32),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        loss="categorical_crossentropy",
        optimizer=optimizers.SGD(0.016),
        metrics=["accuracy"],
        **compiled,  # pyright: ignore[reportArgumentType] - steps_per_execution
    )
    return model


def _data(n_steps: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    n = n_steps * _BATCH
    classes = np.eye(10, dtype=np.float32)[rng.integers(0, 10, n)]
    return rng.random((n, 32, 32, 3), dtype=np.float32), classes


def _both(**compiled: int) -> tuple["keras.Model", "keras.Model"]:
    from tremula.keras import ipu

    with ipu.IPUStrategy().scope():
        ours = cifar_model(**compiled)
    return ours, cifar_model()


@SUITE.measurement("fit")
def fit() -> Iterator[Figure]:
    """Seconds of an epoch, ours ÷ Keras; on a GPU Keras ÷ ours, 32 steps in an execution."""
    import torch

    has_gpu = torch.cuda.is_available()
    ours, plain = _both(**({"steps_per_execution": _N_PER_EXECUTION} if has_gpu else {}))
    x, y = _data(_N_STEPS_GPU if has_gpu else _N_STEPS)
    began = time.process_time()
    ours.train_on_batch(x[:_BATCH], y[:_BATCH])
    if not has_gpu:  # there the first batch waits for a graph to be captured
        yield Figure.of("first-batch", time.process_time() - began, "CPU s", "<= 4")

    def epoch(model: "keras.Model") -> None:
        model.fit(x, y, batch_size=_BATCH, verbose=0)  # pyright: ignore[reportArgumentType] - Keras's stubs know names

    clock = None if has_gpu else time.process_time
    measured = ratio(lambda: epoch(ours), lambda: epoch(plain), rounds=5, clock=clock)
    if has_gpu:
        yield Figure.of("fit-gpu", 1 / measured.value, "× Keras", ">= 5")
    else:
        yield Figure.of("fit", measured.value, "of Keras", "<= 0.8")


@SUITE.measurement("import")
def import_time() -> Iterator[Figure]:
    """CPU seconds that `import tremula.keras` takes after Keras."""
    done = subprocess.run(
        [sys.executable, "-c", _IMPORTS], capture_output=True, text=True, check=True
    )
    yield Figure.of("import", float(done.stdout), "CPU s", "<= 0.5")
