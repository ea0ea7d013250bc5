"""Norm statistics per channel, whitening, parameters, and their gradients: [batch, channels, …]."""

from collections.abc import Iterator

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs.poplin import norm_math
from tremula.poplibs.poplin.norm_math import check_norm_operands
from tremula.poplibs.popops.cast import cast_codelet
from tremula.poplibs.popops.element_codelets import element_codelet
from tremula.poplibs.popops.reduce_codelets import reduce_vertex
from tremula.poplibs.poputil import create_broadcast_operand
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

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

    `is_unbiased` divides by one less than the number of values; `is_stable` takes the mean off
    before squaring, at the price of another pass.
    """
    check_norm_operands("norm_statistics", acts, [], 0)
    return norm_math.statistics(
        graph, acts, PER_CHANNEL, epsilon, sequence, name,
        is_unbiased=is_unbiased, is_stable=is_stable,
    )  # fmt: skip


def norm_whiten(
    graph: Graph, acts: Tensor, mean: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "norm_whiten",
) -> Tensor:  # fmt: skip
    """Activations with mean 0 and deviation 1 in each channel."""
    check_norm_operands("norm_whiten", acts, [mean, inv_std_dev], acts.shape[1])
    return norm_math.whiten(graph, acts, PER_CHANNEL, mean, inv_std_dev, sequence, name)


def normalise(
    graph: Graph, whitened: Tensor, gamma: Tensor, beta: Tensor, sequence: Sequence,
    name: str = "normalise",
) -> Tensor:  # fmt: skip
    """Gamma · whitened + beta."""
    check_norm_operands("normalise", whitened, [gamma, beta], whitened.shape[1])
    return norm_math.scale_and_shift(graph, whitened, gamma, beta, sequence, name)


def norm_param_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, sequence: Sequence,
    name: str = "norm_param_gradients",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of gamma and beta."""
    check_norm_operands("norm_param_gradients", whitened, [gradient], whitened.n_elems)
    return norm_math.parameter_gradients(graph, whitened, gradient, sequence, name)


def norm_gradients(
    graph: Graph, gradient: Tensor, gamma: Tensor, sequence: Sequence,
    name: str = "norm_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the whitened activations from that of the normalised ones."""
    check_norm_operands("norm_gradients", gradient, [gamma], gradient.shape[1])
    return norm_math.scaled_gradient(graph, gradient, gamma, sequence, name)


def norm_statistics_gradients(
    graph: Graph, whitened: Tensor, gradient: Tensor, inv_std_dev: Tensor, sequence: Sequence,
    name: str = "norm_statistics_gradients",
) -> Tensor:  # fmt: skip
    """The gradient of the activations from that of the whitened ones."""
    op = "norm_statistics_gradients"
    check_norm_operands(op, whitened, [gradient], whitened.n_elems)
    check_norm_operands(op, whitened, [inv_std_dev], whitened.shape[1])
    return norm_math.statistics_gradients(
        graph, whitened, gradient, PER_CHANNEL, inv_std_dev, sequence, name
    )


# -- references; popnn's norms use them too ------------------------------------------------------


def reference_statistics(
    x: np.ndarray, axes: tuple[int, ...], epsilon: float, is_unbiased: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Flat mean and inverse deviation in float64."""
    wide = x.astype(np.float64)
    variance = wide.var(axis=axes, ddof=int(is_unbiased))
    return wide.mean(axis=axes).ravel(), (1 / np.sqrt(variance + epsilon)).ravel()


def per_channel(values: np.ndarray, rank: int) -> np.ndarray:
    """A value per channel, shaped to be repeated over [batch, channels, …]."""
    return values.astype(np.float64).reshape([-1 if d == 1 else 1 for d in range(rank)])


def all_but_channels(rank: int) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != 1)


def reference_input_gradient(
    whitened: np.ndarray, gradient: np.ndarray, axes: tuple[int, ...], inverse: np.ndarray
) -> np.ndarray:
    """The gradient through the statistics, in float64; `inverse` is shaped to be repeated."""
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
