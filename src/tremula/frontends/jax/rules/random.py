"""Random numbers: threefry in integer arithmetic, so that every bit is JAX's."""

from collections.abc import Callable
from typing import Any

import jax
import torch
from jax.extend.core.primitives import random_gamma_p
from torch import Tensor

from tremula.frontends.jax.carriers import Key, Value
from tremula.frontends.jax.errors import JaxError
from tremula.frontends.jax.evaluate import by_definition
from tremula.frontends.jax.rules.shapes import key_words
from tremula.frontends.jax.table import Equation, rule
from tremula.frontends.shared.threefry import threefry


@rule("threefry2x32")
def threefry2x32(_eqn: Equation, key0: Tensor, key1: Tensor, x: Tensor, y: Tensor) -> list[Value]:
    return list(torch.broadcast_tensors(*threefry((key0, key1), x, y)))


def _words(eqn: Equation) -> Any:  # noqa: ANN401
    return jax.ShapeDtypeStruct((*eqn.in_avals[0].shape, 2), "uint32")


def _for_each_key(function: Callable, n_dims: int) -> Callable:
    for _ in range(n_dims):
        function = jax.vmap(function)
    return function


def _impl(dtype: Any) -> Any:  # noqa: ANN401
    impl = dtype._impl
    if impl.key_shape != (2,):
        raise JaxError(
            f"random keys of {impl.name!r} cannot be used.",
            hint='use threefry2x32, the default: jax.random.key(seed, impl="threefry2x32")',
        )
    return impl


def _as_key(words: Value) -> Key:
    assert isinstance(words, Tensor), "words of keys are integers"
    return Key(words[..., 0], words[..., 1])


@rule("random_bits")
def random_bits(eqn: Equation, keys: Key) -> Value:
    width, shape = eqn.params["bit_width"], eqn.params["shape"]
    impl = _impl(eqn.in_dtype)
    draw = _for_each_key(lambda k: impl.random_bits(k, width, shape), len(eqn.in_avals[0].shape))
    return by_definition(draw, [_words(eqn)], [key_words(keys)])[0]


@rule("random_split")
def random_split(eqn: Equation, keys: Key) -> Value:
    impl, shape = _impl(eqn.in_dtype), eqn.params["shape"]
    split = _for_each_key(lambda k: impl.split(k, shape), len(eqn.in_avals[0].shape))
    return _as_key(by_definition(split, [_words(eqn)], [key_words(keys)])[0])


@rule("random_fold_in")
def random_fold_in(eqn: Equation, keys: Key, data: Tensor) -> Value:
    fold = _for_each_key(_impl(eqn.in_dtype).fold_in, len(eqn.in_avals[0].shape))
    avals = [_words(eqn), eqn.in_avals[1]]
    return _as_key(by_definition(fold, avals, [key_words(keys), data])[0])


@rule("random_seed")
def random_seed(eqn: Equation, seeds: Tensor) -> Value:
    seed = _for_each_key(eqn.params["impl"].seed, len(eqn.in_avals[0].shape))
    return _as_key(by_definition(seed, eqn.in_avals, [seeds])[0])


@rule("random_wrap")
def random_wrap(_eqn: Equation, words: Tensor) -> Value:
    return _as_key(words)


@rule("random_unwrap")
def random_unwrap(_eqn: Equation, keys: Key) -> Value:
    return key_words(keys)


@rule("random_gamma")
def random_gamma(eqn: Equation, keys: Key, shape: Tensor) -> Value:
    """By rejection, in JAX's own definition: a loop that ends when every element is accepted."""
    _impl(eqn.in_dtype)

    def draw(keys: object, shape: object) -> Any:  # noqa: ANN401
        return random_gamma_p.impl(keys, shape, use_vmap=True, **eqn.params)

    return by_definition(draw, eqn.in_avals, [keys, shape])[0]
