"""Data sets by Keras's names: loaded, or generated where nothing can be downloaded."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import Any

import numpy as np

from tremula.base.libraries.patching import replaced_for_all
from tremula.frontends.keras.errors import keras_error

Arrays = tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
# Of images: shape of a sample, classes, and whether labels are columns, as Keras returns them.
_IMAGES = {
    "mnist": ((28, 28), 10, False),
    "fashion_mnist": ((28, 28), 10, False),
    "cifar10": ((32, 32, 3), 10, True),
    "cifar100": ((32, 32, 3), 100, True),
}
_TEXTS = {"imdb": 2, "reuters": 46}  # classes
_TABLES = {"boston_housing": 13, "california_housing": 8}  # columns
NAMES = (*_IMAGES, *_TEXTS, *_TABLES)
_SHARE_TESTED = 5  # one sample in this many
_N_WORDS = 10000
_state: dict[str, int | None] = {"n_samples": None}
_replaced = ExitStack()


def synthesize(n_samples: int | None) -> None:
    """Let data sets of this process have that many generated samples; None: load them again."""
    if n_samples is not None and n_samples < 1:
        raise keras_error(f"a data set has at least one sample; got {n_samples}.")
    _state["n_samples"] = n_samples
    _replaced.close()
    if n_samples is None:
        return
    for name in NAMES:
        module = import_module(f"keras.datasets.{name}")
        _replaced.enter_context(replaced_for_all(module, "load_data", loader(name)))


def loader(name: str) -> Callable[..., Arrays]:
    """`load_data` of a data set."""

    def load_data(*args: object, **kwargs: object) -> Arrays:
        n_samples = _state["n_samples"]
        if n_samples is not None:
            return generated(name, n_samples, *args, **kwargs)
        try:
            return import_module(f"keras.src.datasets.{name}").load_data(*args, **kwargs)
        except Exception as error:
            if "URL fetch failure" not in str(error):
                raise
            raise keras_error(
                f"the data set {name!r} cannot be downloaded: {error}",
                hint="generate one: tremula run --as-tensorflow --synthetic-data 640 script.py",
            ) from error

    return load_data


def generated(name: str, n_samples: int, *_args: object, **options: object) -> Arrays:
    """Samples of the shapes and types of a data set; classes differ by a pattern in noise."""
    rng = np.random.default_rng(0)
    if name in _IMAGES:
        return _images(rng, n_samples, *_IMAGES[name])
    if name in _TEXTS:
        return _texts(rng, n_samples, _TEXTS[name], options)
    return _tables(rng, n_samples, _TABLES[name])


def _sizes(n_samples: int) -> tuple[int, int]:
    return n_samples, max(n_samples // _SHARE_TESTED, 1)


def _images(
    rng: np.random.Generator,
    n_samples: int,
    shape: Sequence[int],
    n_classes: int,
    has_columns: bool,
) -> Arrays:
    patterns = rng.integers(0, 160, (n_classes, *shape))

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, n_classes, n)
        images = patterns[labels] + rng.integers(0, 96, (n, *shape))
        return images.astype(np.uint8), (labels[:, None] if has_columns else labels).astype(
            np.uint8
        )

    train, test = (part(n) for n in _sizes(n_samples))
    return train, test


def _texts(
    rng: np.random.Generator, n_samples: int, n_classes: int, options: dict[str, Any]
) -> Arrays:
    """Lists of words' numbers; each class prefers other words."""
    n_words = min(options.get("num_words") or _N_WORDS, _N_WORDS)
    first = options.get("index_from", 3) + 1
    longest = options.get("maxlen") or 200

    def text(label: int) -> list[int]:
        length = int(rng.integers(min(20, longest), longest + 1))
        words = rng.integers(first, max(n_words, first + 1), length)
        preferred = first + (np.arange(length) * n_classes + label) % max(n_words - first, 1)
        mixed = np.where(rng.random(length) < 0.5, words, preferred)
        return [options.get("start_char", 1), *mixed[1:].tolist()]

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels = rng.integers(0, n_classes, n)
        texts = np.empty(n, object)
        texts[:] = [text(int(label)) for label in labels]
        return texts, labels

    train, test = (part(n) for n in _sizes(n_samples))
    return train, test


def _tables(rng: np.random.Generator, n_samples: int, n_columns: int) -> Arrays:
    weights = rng.normal(size=n_columns)

    def part(n: int) -> tuple[np.ndarray, np.ndarray]:
        rows = rng.normal(size=(n, n_columns))
        return rows, rows @ weights + rng.normal(scale=0.1, size=n)

    train, test = (part(n) for n in _sizes(n_samples))
    return train, test


(
    load_mnist,
    load_fashion_mnist,
    load_cifar10,
    load_cifar100,
    load_imdb,
    load_reuters,
    load_boston_housing,
    load_california_housing,
) = map(loader, NAMES)
