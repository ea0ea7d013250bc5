"""Random shapes and types against JAX: element by element, along dimensions, and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import tremula
import tremula.jax
from tests.frontends.jax.samples import SAMPLES
from tests.sampling import one_in

REAL = "float32 float16 bfloat16".split()
UNARY = {
    "any": [jnp.abs, jnp.sign, jnp.negative, jnp.square, lambda x: x.astype(jnp.float32),
            lambda x: x.astype(jnp.int32), lambda x: x > 1, lambda x: x[..., None].T],
    "real": [jnp.exp, jnp.sin, jnp.tanh, jnp.floor, jnp.round, lax.logistic, jnp.isfinite,
             lambda x: jnp.sqrt(jnp.abs(x)), lambda x: jnp.log1p(jnp.abs(x)), jnp.arctan],
    "whole": [lax.population_count, lax.clz, jnp.invert, lambda x: x >> 1, lambda x: x << 2,
              lambda x: lax.shift_right_logical(x, jnp.ones_like(x))],
}  # fmt: skip
BINARY = {
    "any": [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum, jnp.minimum, jnp.equal, jnp.less,
            lambda x, y: jnp.where(x > y, x, y)],
    "real": [jnp.divide, jnp.arctan2],
    "whole": [jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor, lambda x, y: x // (y | 1),
              lambda x, y: x % (y | 1)],
}  # fmt: skip
ALONG = [jnp.sum, jnp.max, jnp.min, jnp.argmax, jnp.sort, jnp.cumsum, jnp.flip]


def kind_of(dtype):
    return "real" if dtype in REAL else "whole"


def arrays(dtype):
    """Two arrays of random shapes that broadcast."""
    random = np.random.default_rng(sum(map(ord, dtype)))
    shape = tuple(random.integers(1, 5, random.integers(1, 4)))
    other = tuple(n if random.random() < 0.6 else 1 for n in shape)[random.integers(0, 2) :]
    made = []
    for size in (shape, other):
        if dtype in REAL:
            values = random.standard_normal(size)
        else:
            limits = np.iinfo(dtype)
            values = random.integers(limits.min, limits.max, size, endpoint=True)
        made.append(jnp.asarray(values).astype(dtype))
    return made


def everything(x, y):
    """All functions that the type has."""
    kind = kind_of(x.dtype.name)
    result = [f(x) for f in UNARY["any"] + UNARY[kind]]
    result += [f(x, y) for f in BINARY["any"] + BINARY[kind]]
    return result + [f(x, axis=axis) for f in ALONG for axis in range(x.ndim)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype",
    one_in(4, "float16 float32 bfloat16 uint32 int32 uint16 int16 int8 uint8".split()),
)
def test_types_and_shapes(dtype):
    """Every type that arrays may have, in shapes that broadcast."""
    x, y = arrays(dtype)
    for index, (ours, theirs) in enumerate(
        zip(tremula.jax.jit(everything)(x, y), jax.jit(everything)(x, y), strict=True)
    ):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape), index
        tolerance = {"float16": 2e-3, "bfloat16": 2e-2}.get(theirs.dtype.name, 2e-5)
        wide = [np.asarray(one).astype(np.float64) for one in (ours, theirs)]
        np.testing.assert_allclose(*wide, rtol=tolerance, atol=tolerance, err_msg=str(index))


def gradient_of(function, operands):
    """The gradient of a sum over all results, each with a weight; None where there is none."""
    places = tuple(i for i, x in enumerate(operands) if _is_real(x))

    def total(*args):
        leaves = [leaf for leaf in jax.tree_util.tree_leaves(function(*args)) if _is_real(leaf)]
        return sum((_weighed(leaf) for leaf in leaves), jnp.float32(0))

    gradient = jax.grad(total, places)
    try:
        jax.eval_shape(gradient, *operands)
    except (TypeError, ValueError, NotImplementedError):  # JAX has none
        return None
    return gradient if places else None


def _is_real(x):
    return jnp.issubdtype(jnp.result_type(x), jnp.floating)


def _weighed(x):
    weights = jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape)
    return jnp.sum(jnp.where(jnp.isfinite(x), x, 0).astype(jnp.float32) * weights)


@pytest.mark.wide
@pytest.mark.parametrize("name", SAMPLES)
def test_gradients_of_samples(name):
    """What JAX makes of the derivatives of each sample is translated, too."""
    function, *operands = SAMPLES[name]
    gradient = gradient_of(function, operands)
    if gradient is None:
        return
    for ours, theirs in zip(
        tremula.jax.jit(gradient)(*operands), jax.jit(gradient)(*operands), strict=True
    ):
        tolerance = 2e-4 * max(1.0, float(jnp.abs(theirs).max()))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance)


@pytest.mark.slow
def test_trip_counts_depend_on_data():
    """One program runs as many rounds as its data ask for, none included, here and on tiles."""

    def collatz(n):
        def step(state):
            n, rounds = state
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), rounds + 1

        return lax.while_loop(lambda state: state[0] > 1, step, (n, 0))[1]

    for choices in ({}, {"tiles": "run", "chip": "gc2"}):
        with tremula.configured(**choices):
            function = tremula.jax.jit(collatz)
            assert [int(function(np.int32(n))) for n in (1, 6, 27)] == [0, 8, 111]
            assert len(function._programs) == 1
