"""Registry entries of matrix products and biases: samples, NumPy references, errors."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.bias import (
    add_bias,
    convolution_bias_update,
    weights_transpose_chans_flip_xy,
)
from tremula.poplibs.poplin.product.mat_mul import (
    create_mat_mul_output,
    mat_mul,
    mat_mul_acc,
    mat_mul_grouped,
    mat_mul_with_output,
)
from tremula.poplibs.poplin.product.transpose_operand import turn
from tremula.poplibs.poplin.product.vertices import conv_partial, conv_reduce
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

FAMILIES = (conv_partial, conv_reduce, turn)
TYPES = (FLOAT, HALF)
# Rounding of the result to half, and of partial sums where they are halves.
TOLERANCE = {"FLOAT": 2e-5, "HALF": 5e-3}
COMMON: dict[str, Any] = {"types": TYPES, "codelets": FAMILIES, "tolerance": TOLERANCE}
# [m, k] x [k, n]: single elements, odd sizes, a row, a column, long sums, several tiles, empty.
_SIZES = (
    (1, 1, 1), (3, 5, 7), (1, 40, 24), (40, 24, 1), (2, 300, 4), (33, 40, 21), (16, 64, 48),
    (4, 0, 3), (0, 4, 3),
)  # fmt: skip
_GROUPED = ((1, 2, 3, 4), (3, 5, 7, 9), (12, 4, 16, 4), (2, 16, 32, 8))


def random_values(random: np.random.Generator, element: Type, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(element.dtype)


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


def _plain(a: np.ndarray, b: np.ndarray, **_: object) -> np.ndarray:
    """The product in 64 bits, rounded once."""
    first, second = _wide(a, b)
    return (first @ second).astype(a.dtype)


def _mat_mul_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for m, k, n in _SIZES:
        yield Sample((random_values(random, element, m, k), random_values(random, element, k, n)))
    for options in ({"available_memory_proportion": 0.0}, {"partials_type": "half"}):
        operands = random_values(random, element, 20, 36), random_values(random, element, 36, 18)
        yield Sample(operands, options)


def _grouped_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for g, m, k, n in _GROUPED:
        yield Sample(
            (random_values(random, element, g, m, k), random_values(random, element, g, k, n))
        )


def _with_output(graph: Graph, a: Tensor, b: Tensor, sequence: Sequence) -> Tensor:
    """Into a result laid out for the product, then into one that is not."""
    out = create_mat_mul_output(graph, a.type, a.shape, b.shape)
    mat_mul_with_output(graph, a, b, out, sequence)
    linear = graph.add_variable(a.type, out.shape, "linear", mapping="linear")
    mat_mul_with_output(graph, a, b, linear, sequence)
    return linear


def _accumulate(
    graph: Graph, c: Tensor, a: Tensor, b: Tensor, sequence: Sequence, *, scale: float
) -> None:
    mat_mul_acc(graph, c, scale, a, b, sequence)


def _accumulate_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for (m, k, n), scale in zip(_SIZES[:5], (1.0, -0.5, 2.0, 1.0, 0.25), strict=True):
        shapes = (m, n), (m, k), (k, n)
        yield Sample(tuple(random_values(random, element, *s) for s in shapes), {"scale": scale})


def _accumulated(c: np.ndarray, a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    old, first, second = _wide(c, a, b)
    return (old + scale * (first @ second)).astype(c.dtype)


def ones(*shapes: tuple[int, ...], dtype: type = np.float32) -> tuple[np.ndarray, ...]:
    return tuple(np.ones(shape, dtype) for shape in shapes)


_PRODUCT_ERRORS = (
    ErrorCase(Sample(ones((2, 3), (4, 5))), "cannot multiply [1, 2, 3] by [1, 4, 5]"),
    ErrorCase(Sample(ones((2, 3), (3,))), "expected rank 2"),
    ErrorCase(Sample(ones((2, 3), (3, 2), dtype=np.int32)), "expected float or half"),
    ErrorCase(
        Sample((*ones((2, 3)), *ones((3, 2), dtype=np.float16))), "operands of float and half"
    ),
    ErrorCase(
        Sample(ones((2, 3), (3, 2)), {"available_memory_proportion": -1.0}), "expected 0 to 2"
    ),
    ErrorCase(Sample(ones((2, 3), (3, 2)), {"partials_type": "int"}), "expected float or half"),
)


def _register_products() -> None:
    register(Op(
        name="poplin.mat_mul", function=mat_mul, about="The product of two matrices.",
        samples=_mat_mul_samples, reference=_plain, errors=_PRODUCT_ERRORS, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_grouped", function=mat_mul_grouped,
        about="Products of pairs of matrices.", samples=_grouped_samples, reference=_plain,
        errors=(ErrorCase(Sample(ones((2, 2, 3), (3, 3, 2))), "equal groups"),), **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_with_output", function=_with_output,
        about="The product of two matrices into a given tensor.",
        samples=lambda element, random: (
            s for s in _mat_mul_samples(element, random) if not s.options
        ),
        reference=_plain, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_acc", function=_accumulate,
        about="A scaled product of two matrices added to a third.",
        samples=_accumulate_samples, reference=_accumulated, is_in_place=True,
        errors=(ErrorCase(
            Sample(ones((3, 3), (2, 3), (3, 2)), {"scale": 1.0}), "a result of shape [1, 3, 3]"
        ),), **COMMON,
    ))  # fmt: skip


# -- biases


def _bias_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for shape in ((1, 1), (2, 3, 4, 5), (4, 7, 6), (3, 16, 8, 8)):
        yield Sample(
            (random_values(random, element, *shape), random_values(random, element, shape[1]))
        )


def _with_bias(acts: np.ndarray, biases: np.ndarray) -> np.ndarray:
    view = biases.reshape(1, -1, *(1,) * (acts.ndim - 2))
    return (acts.astype(np.float64) + view.astype(np.float64)).astype(acts.dtype)


def _bias_update(graph: Graph, biases: Tensor, deltas: Tensor, sequence: Sequence) -> None:
    convolution_bias_update(graph, deltas, biases, -0.25, sequence)


def _bias_update_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for sample in _bias_samples(element, random):
        yield Sample((sample.inputs[1], sample.inputs[0]))


def _updated_bias(biases: np.ndarray, deltas: np.ndarray) -> np.ndarray:
    total = deltas.astype(np.float64).sum(axis=(0, *range(2, deltas.ndim)))
    return (biases.astype(np.float64) - 0.25 * total).astype(biases.dtype)


def _flip(graph: Graph, weights: Tensor, sequence: Sequence) -> Tensor:
    groups, n_out, n_in, *kernel = weights.shape
    out = graph.add_variable(
        weights.type, (groups, n_in, n_out, *kernel), "flipped", mapping="linear"
    )
    weights_transpose_chans_flip_xy(graph, weights, out, sequence)
    return out


def _register_biases() -> None:
    register(Op(
        name="poplin.add_bias", function=add_bias, about="Biases added to every channel.",
        samples=_bias_samples, reference=_with_bias, is_in_place=True,
        errors=(ErrorCase(Sample(ones((2, 3, 4), (2,))), "expected [3]: one per channel"),
                ErrorCase(Sample(ones((2,), (2,))), "expected [b, channels, field…]")),
        **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.convolution_bias_update", function=_bias_update,
        about="Biases moved by the scaled sum of gradients.", samples=_bias_update_samples,
        reference=_updated_bias, is_in_place=True, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.weights_transpose_chans_flip_xy", function=_flip,
        about="Weights with channels exchanged and kernels reversed.",
        samples=lambda element, random: (
            Sample((random_values(random, element, *shape),)) for shape in ((2, 3, 4, 2, 3),)
        ),
        reference=lambda w: np.flip(w.swapaxes(1, 2), axis=tuple(range(3, w.ndim))), **COMMON,
    ))  # fmt: skip


_register_products()
_register_biases()
