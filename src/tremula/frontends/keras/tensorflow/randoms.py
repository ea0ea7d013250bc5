"""`tf.random`: tensors of random numbers, by Keras's generators."""

import random
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import keras
import torch
from keras.src.backend.common import global_state
from keras.src.random import seed_generator
from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR, SeedGenerator

from tremula.base.libraries.patching import replaced_for_all
from tremula.frontends.keras.tensorflow.arrays import Value, _sizes, plain
from tremula.frontends.keras.tensorflow.types import as_dtype

__all__ = [
    "categorical",
    "gamma",
    "normal",
    "set_seed",
    "shuffle",
    "stateless_normal",
    "stateless_uniform",
    "truncated_normal",
    "uniform",
]

_replaced = ExitStack()


def set_seed(seed: int) -> None:
    """Start the generators of this process at a seed: models initialised later are the same."""
    torch.manual_seed(seed)
    _replaced.close()
    own = random.Random(seed)
    _replaced.enter_context(replaced_for_all(seed_generator, "python_random", own))
    global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, SeedGenerator(seed))


def forget_seed() -> None:
    """Let initialisers draw by Python's random module again, as Keras does."""
    _replaced.close()


def uniform(
    shape: object,
    minval: Value = 0,
    maxval: Value = None,
    dtype: object = "float32",
    seed: int | None = None,
    name: str = "",
) -> Value:
    """Numbers between two bounds, without the upper one; whole ones for integer types."""
    del name
    kind = as_dtype(dtype)
    if kind.is_integer:
        if maxval is None:
            raise ValueError("tf.random.uniform needs maxval for an integer type.")
        return keras.random.randint(_sizes(shape), minval, maxval, dtype=str(kind), seed=seed)
    high = 1.0 if maxval is None else maxval
    return keras.random.uniform(_sizes(shape), minval, high, dtype=str(kind), seed=seed)


def normal(
    shape: object,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: object = "float32",
    seed: int | None = None,
    name: str = "",
) -> Value:
    """Numbers of a normal distribution."""
    del name
    return keras.random.normal(_sizes(shape), mean, stddev, dtype=str(as_dtype(dtype)), seed=seed)


def truncated_normal(
    shape: object,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: object = "float32",
    seed: int | None = None,
    name: str = "",
) -> Value:
    """Numbers of a normal distribution, none further than two deviations from the mean."""
    del name
    kind = str(as_dtype(dtype))
    return keras.random.truncated_normal(_sizes(shape), mean, stddev, dtype=kind, seed=seed)


def shuffle(value: Value, seed: int | None = None, name: str = "") -> Value:
    """Rows in random order."""
    del name
    return keras.random.shuffle(plain(value), axis=0, seed=seed)


def categorical(
    logits: Value,
    num_samples: int,
    dtype: object = None,
    seed: int | None = None,
    name: str = "",
) -> Value:
    """Classes drawn by the logits of rows."""
    del name
    kind = "int64" if dtype is None else str(as_dtype(dtype))
    return keras.random.categorical(plain(logits), num_samples, dtype=kind, seed=seed)


def gamma(
    shape: object,
    alpha: Value,
    beta: Value = None,
    dtype: object = "float32",
    seed: int | None = None,
    name: str = "",
) -> Value:
    """Numbers of a gamma distribution."""
    del name
    result = keras.random.gamma(_sizes(shape), alpha, dtype=str(as_dtype(dtype)), seed=seed)
    return result if beta is None else result / plain(beta)


def stateless_uniform(
    shape: object,
    seed: Sequence[int],
    minval: Value = 0,
    maxval: Value = None,
    dtype: object = "float32",
    name: str = "",
    alg: str = "auto_select",
) -> Value:
    """`uniform`, the same for the same pair of seeds; not TensorFlow's numbers."""
    del alg
    return uniform(shape, minval, maxval, dtype, _one_seed(seed), name)


def stateless_normal(
    shape: object,
    seed: Sequence[int],
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: object = "float32",
    name: str = "",
    alg: str = "auto_select",
) -> Value:
    """`normal`, the same for the same pair of seeds; not TensorFlow's numbers."""
    del alg
    return normal(shape, mean, stddev, dtype, _one_seed(seed), name)


def _one_seed(seed: Any) -> int:
    first, second = (int(each) for each in seed)
    return (first * 1_000_003 + second) % (2**31)
