"""Functions of JAX with operands, which between them use every primitive that has a translation."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.experimental.ode
import jax.numpy as jnp
import jax.scipy as jsp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name

import tremula.jax

_random = np.random.default_rng(0)
X = _random.standard_normal((4, 6)).astype(np.float32)
Y = _random.standard_normal((6, 5)).astype(np.float32)
POSITIVE = np.abs(X) + np.float32(0.1)
INTEGERS = _random.integers(-50, 50, (4, 6)).astype(np.int32)
UNSIGNED = _random.integers(0, 2**32, (4, 6), dtype=np.uint32)
IMAGES = _random.standard_normal((2, 8, 8, 3)).astype(np.float32)
WEIGHTS = _random.standard_normal((3, 3, 3, 4)).astype(np.float32)
SYMMETRIC = X @ X.T + 4 * np.eye(4, dtype=np.float32)
LONG = np.repeat(X, 5, axis=0)
PLACES = np.array([0, 3, 1])
NHWC = ("NHWC", "HWIO", "NHWC")


def key():
    return jax.random.key(3)


def convolved(x, weights, **options):
    options = {"window_strides": (2, 2), "padding": "SAME", **options}
    return lax.conv_general_dilated(x, weights, dimension_numbers=NHWC, **options)


def pooled(x, size=2, function=lax.max, start=-jnp.inf, padding="SAME"):
    return lax.reduce_window(x, start, function, (1, size, size, 1), (1, 2, 2, 1), padding)


def recurrent(x):
    return lax.scan(lambda c, row: (jnp.tanh(c * 0.9 + row), c.sum()), jnp.zeros(6), x)


def unsigned(x):
    order = jnp.sort(x), jnp.max(x), jnp.argmax(x), x < np.uint32(2**31), jnp.maximum(x, 9)
    whole = x // 7, x % 1000, x // np.uint32(2**31 + 5), x * x, x.astype(jnp.float32)
    return order, whole, x >> 3, x << 5, x ^ 5, lax.clz(x), jnp.float32(3e9).astype(jnp.uint32)


# Of each name a function and its operands.
SAMPLES = {
    "arithmetic": (lambda x: (x + 1) * 2 - x / 3 + x**3 + x**-2 + jnp.maximum(x, 0.2), POSITIVE),
    "unary": (lambda x: [f(x) for f in (
        jnp.exp, jnp.log, jnp.log1p, jnp.expm1, jnp.exp2, jnp.sqrt, lax.rsqrt, jnp.cbrt, jnp.sin,
        jnp.cos, jnp.tan, jnp.tanh, jnp.sinh, jnp.cosh, jnp.arcsinh, jnp.arctan, jnp.abs,
        jnp.square, jnp.floor, jnp.ceil, jnp.round, jnp.sign, jnp.negative, lax.logistic,
        lax.erf, lax.erfc,
        lax.lgamma, lax.digamma, lax.bessel_i0e, lax.bessel_i1e, jnp.isfinite, jnp.trunc)],
        POSITIVE),
    "inverse": (lambda x: [f(jnp.tanh(x)) for f in (
        jnp.arcsin, jnp.arccos, jnp.arctanh, lax.erf_inv)] + [jnp.arccosh(1 + x)], POSITIVE),
    "binary": (lambda x, y: [f(x, y) for f in (
        jnp.arctan2, jnp.power, lax.rem, jnp.minimum, jnp.nextafter, lax.max)], POSITIVE, POSITIVE),
    "comparisons": (lambda x: [x > 0, x < 1, x >= 0, x <= 1, x == X[0, 0], x != 0,
                               jnp.clip(x, -0.5, 0.5)], X),
    "integers": (lambda i: (i // 7, i % 7, i >> 2, abs(i), jnp.sign(i), ~i, i & 3, i | 8,
                            lax.population_count(i), lax.clz(i), i**3,
                            lax.shift_right_logical(i, 3)), INTEGERS),
    "computed shifts": (lambda i, n: (i << n, lax.shift_right_logical(i, n), i >> n),
                        INTEGERS, np.abs(INTEGERS)),
    "unsigned": (unsigned, UNSIGNED),
    "narrow": (lambda i: (i.astype(jnp.uint16) * 3 + 60000, i.astype(jnp.uint8) * 200,
                          i.astype(jnp.int8), i.astype(jnp.bfloat16) / 3, i.astype(jnp.float16),
                          i.astype(bool), X.astype(jnp.int8)), INTEGERS),
    "bits": (lambda x: (lax.bitcast_convert_type(x, jnp.int32), lax.reduce_precision(x, 5, 10),
                        lax.bitcast_convert_type(x.astype(jnp.float16), jnp.uint16)), X),
    "softmax's gradient": (jax.grad(lambda x: jax.nn.log_softmax(x)[:, 0].sum()), X),
    "layer's gradient": (jax.grad(lambda w, x: jnp.mean(jax.nn.relu(x @ w) ** 2)), Y, X),
    "activations": (jax.grad(lambda x: sum(f(x).sum() for f in (
        jax.nn.relu, jax.nn.silu, jax.nn.softplus, jax.nn.gelu))), X),
    "second derivatives": (jax.hessian(lambda x: jnp.sum(jnp.sin(x) * x**2)), X[0]),
    "recomputed": (jax.grad(jax.checkpoint(lambda y: jnp.sin(jnp.cos(y)).sum())), X),
    "attention": (lambda x: jax.nn.dot_product_attention(x, x, x, is_causal=True), IMAGES),
    "products": (lambda x, y: (x @ y, jnp.einsum("bi,bj->bij", x, x), jnp.vdot(x, x)), X, Y),
    "gradients of products": (lambda x: (jax.grad(lambda x: (x.prod(1) * x[:, 0]).sum())(x),
                                         jax.grad(lambda x: jnp.vdot(x, x) ** 2)(x)), X),
    "shapes": (lambda x: (x.T.reshape(3, 8)[None], jnp.roll(x, 2, 1)[::-1, ::2], jnp.stack([x, x]),
                          jnp.split(x, [1, 4], 1), jnp.tile(x, (2, 1)), jnp.concatenate([x, x], 1),
                          jnp.squeeze(x[:1], 0), jnp.repeat(x, 2, 0)), X),
    "padding": (lambda x: (jnp.pad(x, ((1, 2), (0, 3))), jnp.pad(x, 1, mode="reflect"),
                           lax.pad(x, x[0, 0], ((1, 1, 1), (0, -2, 0)))), X),
    "triangles": (lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.diag(x[:, :4]), jnp.trace(x)), X),
    "reductions": (lambda x: (x.sum(), x.prod(1), x.max(0), x.min(), x.var(), jnp.any(x > 1),
                              jnp.all(x > 1, 1), jnp.argmax(x, 1), jnp.argmin(x, 0)), X),
    "reduced bits": (lambda i: [lax.reduce(i, np.int32(start), f, (1,)) for start, f in (
        (0, lax.bitwise_or), (-1, lax.bitwise_and), (0, lax.bitwise_xor))]
        + [lax.reduce(i, np.int32(0), lambda a, b: a + b + 0 * a, (0,))], INTEGERS),
    "running": (lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 0),
                           lax.cummin(x, 1, reverse=True), lax.cumlogsumexp(x, 0)), X),
    "orders": (lambda x, i: (jnp.sort(x), jnp.argsort(x, 0), lax.top_k(x, 3), jnp.median(x),
                             lax.sort((i, x), num_keys=1), jnp.lexsort((x[0], i[0]))), X, INTEGERS),
    "choices": (lambda x, i: (jnp.where(x > 0, x, -1.0), jnp.select([x > 1, x > 0], [x, -x], 0.0),
                              lax.select_n(i % 3, x, x * 2, x * 3)), X, np.abs(INTEGERS)),
    "gathers": (lambda x, i: (x[i], x[:, i], jnp.take(x, i + 3, axis=1, mode="fill"), x[i, i],
                              x[i, ::2]), X, PLACES),
    "gathers of batches": (jax.vmap(lambda row, i: row[i]), X, PLACES[[0, 1, 2, 0]]),
    "scatters": (lambda x, i: (x.at[i].add(1.0), x.at[i, 1].set(5.0), x.at[:, i].max(0.3),
                               x.at[i].mul(2.0), x.at[i].min(0.1), x.at[i + 2].add(1.0),
                               x.at[i].subtract(2.0)), X, PLACES),
    "segments": (lambda x, i: jax.ops.segment_sum(x, i, 3), X, np.array([0, 2, 2, 1])),
    "computed slices": (lambda x, i: (lax.dynamic_slice(x, (i, i), (2, 3)),
                                      lax.dynamic_update_slice(x, jnp.ones((2, 3)), (i, i)),
                                      lax.dynamic_index_in_dim(x, i, 1)), X, np.int32(3)),
    "numbers": (lambda i: (jax.nn.one_hot(i, 5), jnp.arange(4) * i[0], jnp.eye(3)), PLACES),
    "convolution": (convolved, IMAGES, WEIGHTS),
    "its gradients": (jax.grad(lambda x, w: convolved(x, w).sum() ** 2, (0, 1)), IMAGES, WEIGHTS),
    "transposed": (lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), IMAGES, WEIGHTS),
    "by channel": (jax.grad(lambda w, x: (convolved(
        x, w, feature_group_count=3, window_strides=(1, 1)) ** 2).sum()),
        WEIGHTS[:, :, :1, :3], IMAGES),
    "pools": (lambda x: (pooled(x), pooled(x, 3, lax.add, 0.0, "VALID"),
                         pooled(x, 2, lax.min, jnp.inf),
                         pooled(x, 2, lambda a, b: a + 2 * b - b, 0.0, "VALID")), IMAGES),
    "gradient of a pool": (jax.grad(lambda x: (pooled(x, 3) ** 2).sum()), IMAGES),
    "tangents of a pool": (lambda x: jax.jvp(pooled, (x,), (x * 2,)), IMAGES),
    "factors": (lambda a: (jnp.linalg.cholesky(a), jnp.linalg.solve(a, a[:, 0]), jnp.linalg.inv(a),
                           jnp.linalg.det(a), jnp.linalg.eigvalsh(a), jsp.linalg.lu(a),
                           jsp.linalg.lu_solve(jsp.linalg.lu_factor(a), a)), SYMMETRIC),
    "vectors up to a sign": (lambda a: (jnp.abs(jnp.linalg.qr(a)[0]), jnp.linalg.svdvals(a),
                             jnp.abs(jnp.linalg.eigh(a)[1]), jnp.linalg.pinv(a)), SYMMETRIC),
    "triangular systems": (lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True),
                           SYMMETRIC, X),
    "least squares": (lambda a: jnp.linalg.lstsq(a, jnp.ones(6))[0], X.T.copy()),
    "tridiagonal systems": (lambda x: lax.linalg.tridiagonal_solve(
        jnp.ones(6).at[0].set(0), 4 + x[0] ** 2, jnp.ones(6).at[-1].set(0), x.T), X),
    "eigenvalues of any matrix": (lambda a: jnp.sort(jnp.abs(jnp.linalg.eigvals(a @ a[::-1]))),
                                  SYMMETRIC),
    "kept in order": (lambda x: (lax.optimization_barrier((x + 1, x * 2)),
                                 checkpoint_name(x, "kept") * 3), X),
    "Fourier": (lambda x: (jnp.abs(jnp.fft.rfft(x)), jnp.fft.irfft(jnp.fft.rfft(x)),
                           jnp.real(jnp.fft.ifft2(jnp.fft.fft2(x) * 2))), X),
    "complex": (lambda x: (jnp.real(jnp.exp(1j * x) * (x + 2j)), jnp.imag(jnp.conj(x + 1j)),
                           lax.complex(x, x)), X),
    "special": (lambda x: (jsp.special.polygamma(2, x), jsp.special.zeta(x + 1.5, x),
                           jsp.special.gammainc(x, x), jsp.special.gammaincc(x, x),
                           jsp.special.betainc(x, 2.0, x / 10)), POSITIVE),
    "gradient of gammainc": (jax.grad(lambda a, x: jsp.special.gammainc(a, x).sum()),
                             POSITIVE, POSITIVE),
    "scan": (recurrent, LONG),
    "gradient of a scan": (jax.grad(lambda x: recurrent(x)[1].sum()), LONG),
    "reversed scan": (lambda x: lax.scan(
        lambda c, r: (c + r, c * 2), jnp.zeros(6), x, reverse=True), LONG),
    "map": (lambda x: lax.map(lambda row: row.sum() * row, x), X),
    "associative scan": (lambda x: lax.associative_scan(jnp.multiply, x), X),
    "while": (lambda x: lax.while_loop(lambda v: v.sum() < 100, lambda v: v * 1.5 + 1, x),
              POSITIVE),
    "loop in a loop": (lambda x: lax.while_loop(
        lambda v: v.sum() < 100,
        lambda v: lax.while_loop(lambda w: w.sum() < 50, lambda w: w + 1, v) * 2, x), POSITIVE),
    "many loops": (jax.vmap(lambda x: lax.while_loop(
        lambda v: v < 5, lambda v: v * 1.5 + 0.1, x)), POSITIVE[0]),
    "fori": (lambda x: lax.fori_loop(0, 10, lambda i, v: v + i * x, x), X),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda a: a + 1, lambda a: a - 1, x), X),
    "switch": (lambda i, x: lax.switch(i, [lambda a: a, lambda a: a * 2, lambda a: a * 3], x),
               np.int32(2), X),
    "root": (lambda x: lax.custom_root(
        lambda y: y**2 - x, jnp.ones_like(x),
        lambda f, y: lax.fori_loop(0, 20, lambda _, y: y - f(y) / (2 * y), y),
        lambda g, y: y / g(jnp.ones_like(y))), POSITIVE),
    "conjugate gradients": (lambda a, b: jsp.sparse.linalg.cg(a, b)[0], SYMMETRIC, X[:, 0]),
    "differential equation": (lambda x: jax.experimental.ode.odeint(
        lambda y, t: -y * t, x, jnp.linspace(0.0, 1.0, 4)), X[0]),
    "over replicas": (jax.vmap(lambda x: (x / lax.psum(x, "i"), lax.pmax(x, "i"), lax.pmin(x, "i"),
                                          lax.axis_index("i"), lax.all_gather(x, "i")),
                               axis_name="i"), POSITIVE),
    "random": (lambda k: (jax.random.normal(k, (5, 3)), jax.random.uniform(k, (4,)),
                          jax.random.randint(k, (6,), 0, 100), jax.random.bernoulli(k, 0.3, (8,)),
                          jax.random.permutation(k, 7), jax.random.bits(k, (3,), jnp.uint8)),
               key()),
    "keys": (lambda k: (jax.random.split(k, 3), jax.random.fold_in(k, 7), jax.random.key_data(k),
                        jax.vmap(jax.random.normal)(jax.random.split(k, 3)),
                        jax.random.normal(jax.random.PRNGKey(4), (3,))), key()),
    "keys in a scan": (lambda k: lax.scan(
        lambda c, _: (jax.random.split(c)[0], jax.random.normal(c)), k, length=30)[1], key()),
    "random by rejection": (lambda k: (
        jax.random.gamma(k, 2.0, (3,)), jax.random.poisson(k, 3.0, (4,)),
        jax.random.categorical(k, jnp.ones((3, 4)))), key()),
}  # fmt: skip


def differences(function: Callable, *operands: Any) -> list[str]:
    """Where our results differ from JAX's, in words; none if all types, shapes and values agree."""
    expected = jax.tree_util.tree_leaves(jax.jit(function)(*operands))
    got = jax.tree_util.tree_leaves(tremula.jax.jit(function)(*operands))
    result = [f"{len(got)} results, expected {len(expected)}"] * (len(got) != len(expected))
    for i, (ours, theirs) in enumerate(zip(got, expected, strict=False)):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            result.append(f"result {i} is {ours.aval}, expected {theirs.aval}")
        elif not np.allclose(_numbers(ours), _numbers(theirs), 2e-4, 2e-4, equal_nan=True):
            result.append(f"result {i}: {ours}, expected {theirs}")
    return result


def _numbers(array: jax.Array) -> np.ndarray:
    if jnp.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    values = np.asarray(array)
    return values.astype(np.complex128 if np.iscomplexobj(values) else np.float64)


def primitives_of(jaxpr: Any) -> Iterator[str]:
    """The names of all primitives in a jaxpr and in those inside it."""
    for line in jaxpr.eqns:
        yield line.primitive.name
        for value in line.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                inner = getattr(part, "jaxpr", part)
                if hasattr(inner, "eqns"):
                    yield from primitives_of(inner)
