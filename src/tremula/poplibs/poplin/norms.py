"""Normalisation over any dimensions: statistics, whitening, and their gradients.

`kept_dims` are the dimensions that have separate statistics; all others are reduced. Sums are
float; statistics and results have the type of the activations.
"""

import math
from collections.abc import Iterator
from collections.abc import Sequence as ListOf

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops import Reduction
from tremula.poplibs.popops.elementwise.cast import cast_codelet
from tremula.poplibs.popops.elementwise.codelets import element_codelet
from tremula.poplibs.popops.elementwise.expr import (
    Cast,
    Expr,
    _1,
    _2,
    _3,
    _4,
    _5,
    maximum,
    rsqrt,
    square,
)
from tremula.poplibs.popops.reduction.codelets import reduce_vertex
from tremula.poplibs.poputil import create_broadcast_operand
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

KeptDims = tuple[int, ...]


def check_norm_operands(op: str, x: Tensor, others: ListOf[Tensor], n_each: int) -> None:
    """Refuse non-float activations, and statistics or parameters of the wrong size or type."""
    if x.type not in (FLOAT, HALF):
        raise PoplibsError(
            f"{op} does not work on {x.type}.",
            source=user_source(),
            hint="it works on float and half: cast the operand",
        )
    if x.rank < 2 or x.n_elems == 0:
        raise PoplibsError(
            f"{op} needs activations [batch, channels, …], got shape {list(x.shape)}.",
            source=user_source(),
            hint="give at least two dimensions, none of size 0",
        )
    for other in others:
        if other.n_elems != n_each or other.type is not x.type:
            raise PoplibsError(
                f"{op} of {x.type} {list(x.shape)} needs {n_each} elements of {x.type}, got "
                f"{other.type} {list(other.shape)}.",
                source=user_source(),
                hint="give statistics and parameters of the activations' type and number",
            )


def statistics(
    graph: Graph, x: Tensor, kept_dims: KeptDims, epsilon: float, sequence: Sequence, name: str,
    *, is_unbiased: bool, is_stable: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and 1 / sqrt(variance + epsilon), each flat.

    The stable way subtracts the mean before squaring; the other reads the data only once.
    """
    dims, n = _reduced(x, kept_dims)
    if is_unbiased and n == 1:
        raise PoplibsError(
            f"an unbiased variance needs two values or more, but shape {list(x.shape)} has one for "
            "each statistic.",
            source=user_source(),
            hint="use is_unbiased=False, or more data",
        )
    sums = Reduction(x, dims, "ADD", 1 / n, out_type=FLOAT)
    if is_stable:
        (mean,) = popops.reduce_many(graph, [sums], sequence, f"{name}/mean")
        centred = popops.map(
            graph,
            _wide(_1, x.type) - _2,
            [x, _beside(mean, x, kept_dims)],
            sequence,
            f"{name}/centre",
        )
        power = popops.reduce(
            graph, centred, dims, "SQUARE_ADD", sequence, f"{name}/power", scale=1 / n
        )
        variance = _2
    else:
        squares = Reduction(x, dims, "SQUARE_ADD", 1 / n, out_type=FLOAT)
        mean, power = popops.reduce_many(graph, [sums, squares], sequence, f"{name}/mean")
        variance = maximum(_2 - square(_1), 0.0)
    operands = [mean, power]
    if is_unbiased:
        # A literal in the expression would mean a new codelet for every batch size.
        correction = graph.add_constant(FLOAT, [1], n / (n - 1), f"{name}/correction", mapping=0)
        operands, variance = [*operands, correction], variance * _3
    deviation = _rounded(rsqrt(variance + epsilon), x.type)
    inv_std_dev = popops.map(graph, deviation, operands, sequence, f"{name}/inv_std_dev")
    if x.type is HALF:
        mean = popops.cast(graph, mean, HALF, sequence, f"{name}/mean")
    return mean.flatten(), inv_std_dev.flatten()


def whiten(
    graph: Graph, x: Tensor, kept_dims: KeptDims, mean: Tensor, inv_std_dev: Tensor,
    sequence: Sequence, name: str,
) -> Tensor:  # fmt: skip
    """(x - mean) · inv_std_dev."""
    both = [_beside(mean, x, kept_dims), _beside(inv_std_dev, x, kept_dims)]
    return popops.map(graph, (_1 - _2) * _3, [x, *both], sequence, name)


def scale_and_shift(
    graph: Graph, x: Tensor, gamma: Tensor, beta: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """Gamma · x + beta, one of each per channel."""
    both = [_beside(gamma, x, (1,)), _beside(beta, x, (1,))]
    return popops.map(graph, _1 * _2 + _3, [x, *both], sequence, name)


def parameter_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence, name: str
) -> tuple[Tensor, Tensor]:
    """Gradients of gamma and beta: sums of gradient · whitened and of gradient per channel."""
    dims, _ = _reduced(whitened, (1,))
    products = popops.mul(graph, whitened, gradient, sequence, name=f"{name}/product")
    both = [Reduction(products, dims, "ADD"), Reduction(gradient, dims, "ADD")]
    of_gamma, of_beta = popops.reduce_many(graph, both, sequence, name)
    return of_gamma, of_beta


def scaled_gradient(
    graph: Graph, gradient: Tensor, gamma: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """The gradient of what gamma multiplied."""
    return popops.mul(graph, gradient, _beside(gamma, gradient, (1,)), sequence, name=name)


def statistics_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, kept_dims: KeptDims, inv_std_dev: Tensor,
    sequence: Sequence, name: str,
) -> Tensor:  # fmt: skip
    """The gradient of what was whitened: (g - mean(g) - w · mean(g·w)) / deviation."""
    dims, n = _reduced(whitened, kept_dims)
    products = popops.mul(graph, whitened, gradient, sequence, name=f"{name}/product")
    both = [
        Reduction(products, dims, "ADD", -1 / n),
        Reduction(gradient, dims, "ADD", -1 / n),
    ]
    of_variance, of_mean = popops.reduce_many(graph, both, sequence, f"{name}/sums")
    per_group = [_beside(t, whitened, kept_dims) for t in (of_variance, of_mean, inv_std_dev)]
    expr = (_1 + _2 * _3 + _4) * _5
    return popops.map(graph, expr, [gradient, whitened, *per_group], sequence, name)


def _reduced(x: Tensor, kept_dims: KeptDims) -> tuple[list[int], int]:
    """The dimensions that are summed over, and how many elements that are."""
    dims = [d for d in range(x.rank) if d not in kept_dims]
    return dims, math.prod(x.shape[d] for d in dims)


def _beside(values: Tensor, x: Tensor, kept_dims: KeptDims) -> Tensor:
    """One value per statistic, shaped to broadcast over the reduced dimensions."""
    return values.reshape([x.shape[d] if d in kept_dims else 1 for d in range(x.rank)])


def _wide(value: Expr, type: Type) -> Expr:
    return Cast(value, FLOAT) if type is HALF else value


def _rounded(value: Expr, type: Type) -> Expr:
    return Cast(value, HALF) if type is HALF else value


# -- by channel: activations [batch, channels, …] --------------------------------------------------


PER_CHANNEL = (1,)


def create_norm_gamma(graph: Graph, acts: Tensor, name: str = "gamma") -> Tensor:
    """A scale per channel, of the activations' type, mapped where its channel is."""
    check_norm_operands("create_norm_gamma", acts, [], 0)
    return create_broadcast_operand(graph, acts, acts.type, 1, name)


def create_norm_beta(graph: Graph, acts: Tensor, name: str = "beta") -> Tensor:
    """A shift per channel, of the activations' type."""
    return create_norm_gamma(graph, acts, name)


def create_norm_params(graph: Graph, acts: Tensor, name: str = "norm") -> tuple[Tensor, Tensor]:
    """Gamma and beta."""
    gamma = create_norm_gamma(graph, acts, f"{name}/gamma")
    return gamma, create_norm_beta(graph, acts, f"{name}/beta")


def norm_statistics(
    graph: Graph, acts: Tensor, sequence: Sequence, name: str = "norm_statistics",
    *, epsilon: float, is_unbiased: bool = False, is_stable: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mean and inverse standard deviation of each channel.

    `is_unbiased` divides by one less than the number of values; `is_stable` subtracts the mean
    before squaring, at the cost of another pass.
    """
    check_norm_operands("norm_statistics", acts, [], 0)
    return statistics(
        graph, acts, PER_CHANNEL, epsilon, sequence, name,
        is_unbiased=is_unbiased, is_stable=is_stable,
    )  # fmt: skip


def _n_channels(x: Tensor) -> int:
    """How many channels [batch, channels, …] has; 0 of a tensor without that dimension."""
    return x.shape[1] if x.rank > 1 else 0


def norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "norm_whiten",
) -> Tensor:  # fmt: skip
    """Activations with mean 0 and deviation 1 in each channel."""
    check_norm_operands("norm_whiten", acts, [mean, inv_std_dev], _n_channels(acts))
    return whiten(graph, acts, PER_CHANNEL, mean, inv_std_dev, sequence, name)


def normalise(
    graph: Graph, whitened: Tensor, gamma: Tensor, beta: Tensor, sequence: Sequence,
    name: str = "normalise",
) -> Tensor:  # fmt: skip
    """Gamma · whitened + beta."""
    check_norm_operands("normalise", whitened, [gamma, beta], _n_channels(whitened))
    return scale_and_shift(graph, whitened, gamma, beta, sequence, name)


def norm_param_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "norm_param_gradients",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of gamma and beta."""
    check_norm_operands("norm_param_gradients", whitened, [gradient], whitened.n_elems)
    return parameter_gradients(graph, whitened, gradient, sequence, name)


def norm_gradients(
    graph: Graph, gradient: Tensor, gamma: Tensor, sequence: Sequence,
    name: str = "norm_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the whitened activations from that of the normalised ones."""
    check_norm_operands("norm_gradients", gradient, [gamma], _n_channels(gradient))
    return scaled_gradient(graph, gradient, gamma, sequence, name)


def norm_statistics_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "norm_statistics_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the whitened ones."""
    op = "norm_statistics_gradients"
    check_norm_operands(op, whitened, [gradient], whitened.n_elems)
    check_norm_operands(op, whitened, [inv_std_dev], _n_channels(whitened))
    return statistics_gradients(graph, whitened, gradient, PER_CHANNEL, inv_std_dev, sequence, name)


# -- references; popnn's norms use them too ------------------------------------------------------


def reference_statistics(
    x: np.ndarray, axes: tuple[int, ...], epsilon: float, is_unbiased: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Flat mean and inverse deviation in float64."""
    wide = x.astype(np.float64)
    variance = wide.var(axis=axes, ddof=int(is_unbiased))
    return wide.mean(axis=axes).ravel(), (1 / np.sqrt(variance + epsilon)).ravel()


def per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """A value per channel, shaped to broadcast over [batch, channels, …]."""
    return values.astype(np.float64).reshape([-1 if d == 1 else 1 for d in range(rank)])


def all_but_channels(rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != 1)


def reference_input_gradient(
    whitened: np.ndarray, gradient: np.ndarray, axes: tuple[int, ...], inverse: np.ndarray
) -> np.ndarray:
    """The gradient through the statistics, in float64; `inverse` is shaped to broadcast."""
    xhat, g = whitened.astype(np.float64), gradient.astype(np.float64)
    mean_g = g.mean(axis=axes, keepdims=True)
    mean_gx = (g * xhat).mean(axis=axes, keepdims=True)
    return (g - mean_g - xhat * mean_gx) * inverse


def _statistics_reference(
    x: np.ndarray, *, epsilon: float, is_unbiased: bool = False, is_stable: bool = False
) -> tuple[np.ndarray, ...]:
    del is_stable
    both = reference_statistics(x, all_but_channels(x.ndim), epsilon, is_unbiased)
    return tuple(s.astype(x.dtype) for s in both)


def _whiten_reference(x: np.ndarray, mean: np.ndarray, inverse: np.ndarray) -> np.ndarray:
    result = (x.astype(np.float64) - per_channel(mean, x.ndim)) * per_channel(inverse, x.ndim)
    return result.astype(x.dtype)


def reference_normalise(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    result = x.astype(np.float64) * per_channel(gamma, x.ndim) + per_channel(beta, x.ndim)
    return result.astype(x.dtype)


def reference_param_gradients(
    whitened: np.ndarray, gradient: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    axes = all_but_channels(whitened.ndim)
    wide = gradient.astype(np.float64)
    of_gamma = (wide * whitened).sum(axis=axes).astype(whitened.dtype)
    return of_gamma, wide.sum(axis=axes).astype(whitened.dtype)


def _gradients_reference(gradient: np.ndarray, gamma: np.ndarray) -> np.ndarray:
    return (gradient * per_channel(gamma, gradient.ndim)).astype(gradient.dtype)


def _statistics_gradients_reference(
    whitened: np.ndarray, gradient: np.ndarray, inverse: np.ndarray
) -> np.ndarray:
    axes = all_but_channels(whitened.ndim)
    column = per_channel(inverse, whitened.ndim)
    return reference_input_gradient(whitened, gradient, axes, column).astype(whitened.dtype)


# -- registry ----------------------------------------------------------------------------------

SHAPES = ((4, 6), (3, 5, 2, 7), (2, 1, 9))
TOLERANCE = {"FLOAT": 1e-4, "HALF": 2e-2}
CODELETS = (element_codelet, reduce_vertex, cast_codelet)


def _normal(rng: np.random.Generator, element: Type, *shape: int) -> np.ndarray:
    return rng.normal(0.3, 1, shape).astype(element.dtype)


def _statistics_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((_normal(rng, element, *shape),), {"epsilon": 1e-3})
    more = {"epsilon": 1e-3, "is_unbiased": True, "is_stable": True}
    yield Sample((_normal(rng, element, 3, 4, 5) + element.dtype.type(8),), more)
    yield Sample((_normal(rng, element, 5, 3),), {"epsilon": 1e-3, "is_unbiased": True})


def _with_two_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        vectors = (_normal(rng, element, shape[1]) for _ in range(2))
        yield Sample((_normal(rng, element, *shape), *vectors))


def _pair_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((_normal(rng, element, *shape), _normal(rng, element, *shape)))


def _gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for shape in SHAPES:
        yield Sample((_normal(rng, element, *shape), _normal(rng, element, shape[1])))


def _statistics_gradient_samples(element: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _pair_samples(element, rng):
        yield Sample((*sample.inputs, _normal(rng, element, sample.inputs[0].shape[1])))


_X = np.ones((2, 3), np.float32)
_INT = ErrorCase(Sample((_X.astype(np.int32),), {"epsilon": 1e-3}), "does not work on int")
_FLAT = ErrorCase(Sample((_X[0],), {"epsilon": 1e-3}), "needs activations [batch, channels, …]")
_ONE = ErrorCase(
    Sample((_X[:1],), {"epsilon": 1e-3, "is_unbiased": True}), "an unbiased variance needs two"
)
_FEW = ErrorCase(Sample((_X, _X[0, :2], _X[0])), "needs 3 elements of float, got float [2]")

for _name, _function, _about, _samples, _reference, _errors in (
    ("norm_statistics", norm_statistics, "Mean and inverse standard deviation of each channel.",
     _statistics_samples, _statistics_reference, (_INT, _FLAT, _ONE)),
    ("norm_whiten", norm_whiten, "Activations less the mean, times the inverse deviation.",
     _with_two_samples, _whiten_reference, (_FEW,)),
    ("normalise", normalise, "Whitened activations times gamma, plus beta.",
     _with_two_samples, reference_normalise, (_FEW,)),
    ("norm_param_gradients", norm_param_gradients, "Gradients of gamma and beta.",
     _pair_samples, reference_param_gradients, (ErrorCase(Sample((_X, _X[:1])), "needs 6"),)),
    ("norm_gradients", norm_gradients, "The gradient of whitened activations.",
     _gradient_samples, _gradients_reference, (ErrorCase(Sample((_X, _X)), "needs 3"),)),
    ("norm_statistics_gradients", norm_statistics_gradients,
     "The gradient of activations through their statistics.", _statistics_gradient_samples,
     _statistics_gradients_reference, (ErrorCase(Sample((_X, _X, _X)), "needs 3"),)),
):  # fmt: skip
    register(Op(
        name=f"poplin.{_name}", function=_function, about=_about, types=(FLOAT, HALF),
        samples=_samples, reference=_reference, codelets=CODELETS, errors=_errors,
        tolerance=TOLERANCE,
    ))  # fmt: skip
