"""Expressions in JAX: a step with gradients, scan over micro-batches, vmap, checkpoints, pmap."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

import tremula
import tremula.jax
from tools.fuzz.case import Case
from tools.fuzz.expressions.operations import evaluate
from tools.fuzz.expressions.reference import LEARNING_RATE, data_of

Array = jax.Array
AXIS = "replicas"


class JaxAlgebra:
    """The primitive operations of jax.numpy."""

    def shape(self, x: Array) -> tuple[int, ...]:
        return tuple(x.shape)

    def constant(self, number: float, like: Array) -> Array:
        return jnp.array(number, like.dtype)

    def add(self, x: Array, y: Array) -> Array:
        return x + y

    def sub(self, x: Array, y: Array) -> Array:
        return x - y

    def mul(self, x: Array, y: Array) -> Array:
        return x * y

    def div(self, x: Array, y: Array) -> Array:
        return x / y

    def maximum(self, x: Array, y: Array) -> Array:
        return jnp.maximum(x, y)

    def unary(self, name: str, x: Array) -> Array:
        special = {"relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid, "neg": jnp.negative}
        return special[name](x) if name in special else getattr(jnp, name)(x)

    def matmul(self, x: Array, y: Array) -> Array:
        return x @ y

    def reshape(self, x: Array, shape: Sequence[int]) -> Array:
        return x.reshape(shape)

    def transpose(self, x: Array, order: Sequence[int]) -> Array:
        return x.transpose(order)

    def reduce(self, name: str, x: Array, axis: int) -> Array:
        return getattr(jnp, name)(x, axis=axis, keepdims=True)

    def softmax(self, x: Array, axis: int) -> Array:
        return jax.nn.softmax(x, axis)

    def concat(self, parts: Sequence[Array], axis: int) -> Array:
        return jnp.concatenate(list(parts), axis)

    def slice(self, x: Array, axis: int, begin: int, end: int) -> Array:
        return jax.lax.slice_in_dim(x, begin, end, axis=axis)


def run(case: Case, *, on_tiles: bool) -> list[np.ndarray]:
    """Outputs of each step, then the weights."""
    data, first = data_of(case)
    weights = [jnp.asarray(w) for w in first]
    speeds = [w * 0 for w in weights]
    step = _compiled(case)
    outputs = []
    with tremula.configured(tiles="run" if on_tiles else "lazy", chip="gc2", device="cpu"):
        for samples in data:
            x = jnp.asarray(samples)
            if case["replicas"] > 1:
                x = x.reshape(case["replicas"], -1, *x.shape[1:])
            if case["training"]:
                out, weights, speeds = step(weights, speeds, x)
            else:
                out = step(weights, x)
            made = np.array(out)
            outputs.append(made.reshape(-1, *made.shape[2:]) if case["replicas"] > 1 else made)
    return [*outputs, *(np.array(w) for w in weights)] if case["training"] else outputs


def _compiled(case: Case) -> Callable:
    """The step for one chip, or for a chip for each replica."""
    step = _training(case) if case["training"] else _forward(case)
    if case["replicas"] == 1:
        return tremula.jax.jit(step)
    ins, outs = ((None, None, 0), (0, None, None)) if case["training"] else ((None, 0), 0)
    return tremula.jax.pmap(step, axis_name=AXIS, in_axes=ins, out_axes=outs)


def _forward(case: Case) -> Callable:
    def whole(weights: list[Array], x: Array) -> Array:
        return evaluate(case, JaxAlgebra(), x, weights)

    def one(weights: list[Array], sample: Array) -> Array:
        return whole(weights, sample[None])[0]

    function = jax.vmap(one, (None, 0)) if case["mapped"] else whole
    return jax.checkpoint(function) if case["recompute"] else function


def _training(case: Case) -> Callable:
    forward, n = _forward(case), case["accumulation"]

    def loss(weights: list[Array], x: Array) -> tuple[Array, Array]:
        out = forward(weights, x)
        return jnp.mean(out * out), out

    def micro(sums: list[Array], args: tuple) -> tuple[list[Array], Array]:
        weights, x = args
        (_, out), grads = jax.value_and_grad(loss, has_aux=True)(weights, x)
        return [s + g / n for s, g in zip(sums, grads, strict=True)], out

    def step(weights: list[Array], speeds: list[Array], x: Array) -> tuple:
        parts = x.reshape(n, -1, *x.shape[1:])
        zeros = [jnp.zeros_like(w) for w in weights]
        if n == 1:
            sums, out = micro(zeros, (weights, parts[0]))
        else:
            sums, out = jax.lax.scan(lambda s, part: micro(s, (weights, part)), zeros, parts)
            out = out.reshape(-1, *out.shape[2:])
        if case["replicas"] > 1:
            sums = jax.lax.pmean(sums, AXIS)
        speeds = [case["momentum"] * v + s for v, s in zip(speeds, sums, strict=True)]
        weights = [w - LEARNING_RATE * v for w, v in zip(weights, speeds, strict=True)]
        return out, [w.astype(s.dtype) for w, s in zip(weights, sums, strict=True)], speeds

    return step
