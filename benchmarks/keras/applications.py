"""The models of `keras.applications`: a step of training here, a prediction compiled for tiles.

A separate suite (`tremula bench keras-applications`), since it takes hours on two cores. Images
are as small as each model takes; layers, and so operations, are the same as for large ones.
"""

import gc
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.figures import Figure, Suite

SUITE = Suite("keras-applications")
_SMALLEST = {"InceptionV3": 75, "InceptionResNetV2": 75, "Xception": 71}  # pixels
_OTHERS = 32
N_CLASSES = 10


@dataclass(frozen=True)
class Outcome:
    """What became of one model: an error's first line, or nothing, and CPU seconds."""

    name: str
    error: str
    cpu_s: float


def names() -> list[str]:
    """The classes of `keras.applications` that Keras itself has on PyTorch: NASNet is not one."""
    from keras import applications

    result = [n for n, v in vars(applications).items() if n[0].isupper() and inspect.isfunction(v)]
    return [name for name in result if not name.startswith("NASNet")]


def train_step(name: str) -> Outcome:
    """One step of `fit` on this computer; the loss must be a number."""
    began = time.process_time()
    try:
        model, images = _model(name)
        model.compile("sgd", "sparse_categorical_crossentropy")
        loss = model.train_on_batch(images, np.arange(len(images)) % N_CLASSES)
        error = "" if np.isfinite(loss) else f"the loss is {loss}"
    except Exception as failure:  # noqa: BLE001 - whatever it is, it is the outcome
        error = _first_line(failure)
    gc.collect()
    return Outcome(name, error, time.process_time() - began)


def compile_for_tiles(name: str) -> Outcome:
    """A prediction of one image, compiled for the tiles of one chip, not run."""
    from tremula import configured

    began = time.process_time()
    try:
        with configured(tiles="ahead"):
            model, images = _model(name)
            model.predict_on_batch(images[:1])
        error = "" if model.ipu_report().total_cycles > 0 else "its program takes no time"
    except Exception as failure:  # noqa: BLE001 - whatever it is, it is the outcome
        error = _first_line(failure)
    gc.collect()
    return Outcome(name, error, time.process_time() - began)


def _model(name: str) -> tuple:
    from keras import applications

    from tremula.keras import ipu

    size = _SMALLEST.get(name, _OTHERS)
    with ipu.IPUStrategy().scope():
        model = getattr(applications, name)(
            weights=None, input_shape=(size, size, 3), classes=N_CLASSES
        )
    images = np.random.default_rng(0).random((2, size, size, 3), dtype=np.float32)
    return model, images


def _first_line(failure: Exception) -> str:
    lines = [line for line in str(failure).splitlines() if line.strip()]
    return f"{type(failure).__name__}: {lines[0] if lines else ''}"


def _share(attempt: Callable[[str], Outcome]) -> float:
    outcomes = []
    for name in names():
        outcomes.append(attempt(name))
        print(f"{name}: {outcomes[-1].error or 'yes'} ({outcomes[-1].cpu_s:.0f} CPU s)", flush=True)
    return sum(not outcome.error for outcome in outcomes) / len(outcomes)


@SUITE.measurement("host")
def host() -> Iterator[Figure]:
    """Classes whose step of training runs on this computer."""
    yield Figure.of("applications-host", _share(train_step), "of classes", ">= 1")


@SUITE.measurement("tiles")
def tiles() -> Iterator[Figure]:
    """Classes whose prediction compiles for tiles."""
    yield Figure.of("applications-tiles", _share(compile_for_tiles), "of classes", ">= 0.9")
