"""Registry entries of products and convolutions: samples, NumPy references, errors."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs.poplin.bias import (
    add_bias,
    convolution_bias_update,
    convolution_weight_update,
    weights_transpose_chans_flip_xy,
)
from tremula.poplibs.poplin.conv_params import ConvParams, input_gradient_params
from tremula.poplibs.poplin.convolution import (
    acts_shape,
    calculate_weight_deltas,
    convolution,
    out_shape,
    weights_shape,
)
from tremula.poplibs.poplin.mat_mul import (
    create_mat_mul_output,
    mat_mul,
    mat_mul_acc,
    mat_mul_grouped,
    mat_mul_with_output,
)
from tremula.poplibs.poplin.turning import turn
from tremula.poplibs.poplin.vertices import conv_partial, conv_reduce
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

FAMILIES = (conv_partial, conv_reduce, turn)
TYPES = (FLOAT, HALF)
# Rounding of the result to half, and of partial sums where they are halfs.
TOLERANCE = {"FLOAT": 2e-5, "HALF": 5e-3}
# [m, k] x [k, n]: single elements, odd sizes, a row, a column, long sums, several tiles, nothing.
_SIZES = (
    (1, 1, 1), (3, 5, 7), (1, 40, 24), (40, 24, 1), (2, 300, 4), (33, 40, 21), (16, 64, 48),
    (4, 0, 3), (0, 4, 3),
)  # fmt: skip
_GROUPED = ((1, 2, 3, 4), (3, 5, 7, 9), (12, 4, 16, 4), (2, 16, 32, 8))


def _values(random: np.random.Generator, element: Type, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(element.dtype)


def _wide(*arrays: np.ndarray) -> list[np.ndarray]:
    return [a.astype(np.float64) for a in arrays]


def _plain(a: np.ndarray, b: np.ndarray, **_: object) -> np.ndarray:
    """The product in 64 bits, rounded once."""
    first, second = _wide(a, b)
    return (first @ second).astype(a.dtype)


def _mat_mul_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for m, k, n in _SIZES:
        yield Sample((_values(random, element, m, k), _values(random, element, k, n)))
    for options in ({"available_memory_proportion": 0.0}, {"partials_type": "half"}):
        operands = _values(random, element, 20, 36), _values(random, element, 36, 18)
        yield Sample(operands, options)


def _grouped_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for g, m, k, n in _GROUPED:
        yield Sample((_values(random, element, g, m, k), _values(random, element, g, k, n)))


def _with_output(graph: Graph, a: Tensor, b: Tensor, sequence: Sequence) -> Tensor:
    """Into a result laid out for it, and then into one that is not."""
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
        yield Sample(tuple(_values(random, element, *s) for s in shapes), {"scale": scale})


def _accumulated(c: np.ndarray, a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
    old, first, second = _wide(c, a, b)
    return (old + scale * (first @ second)).astype(c.dtype)


def _ones(*shapes: tuple[int, ...], dtype: type = np.float32) -> tuple[np.ndarray, ...]:
    return tuple(np.ones(shape, dtype) for shape in shapes)


_PRODUCT_ERRORS = (
    ErrorCase(Sample(_ones((2, 3), (4, 5))), "cannot multiply [1, 2, 3] by [1, 4, 5]"),
    ErrorCase(Sample(_ones((2, 3), (3,))), "expected rank 2"),
    ErrorCase(Sample(_ones((2, 3), (3, 2), dtype=np.int32)), "expected float or half"),
    ErrorCase(
        Sample((*_ones((2, 3)), *_ones((3, 2), dtype=np.float16))), "operands of float and half"
    ),
    ErrorCase(
        Sample(_ones((2, 3), (3, 2)), {"available_memory_proportion": -1.0}), "expected 0 to 2"
    ),
    ErrorCase(Sample(_ones((2, 3), (3, 2)), {"partials_type": "int"}), "expected float or half"),
)


def _register_products() -> None:
    common: dict[str, Any] = {"types": TYPES, "codelets": FAMILIES, "tolerance": TOLERANCE}
    register(Op(
        name="poplin.mat_mul", function=mat_mul, about="The product of two matrices.",
        samples=_mat_mul_samples, reference=_plain, errors=_PRODUCT_ERRORS, **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_grouped", function=mat_mul_grouped,
        about="Products of pairs of matrices.", samples=_grouped_samples, reference=_plain,
        errors=(ErrorCase(Sample(_ones((2, 2, 3), (3, 3, 2))), "equal groups"),), **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_with_output", function=_with_output,
        about="The product of two matrices into a given tensor.",
        samples=lambda element, random: (
            s for s in _mat_mul_samples(element, random) if not s.options
        ),
        reference=_plain, **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.mat_mul_acc", function=_accumulate,
        about="A scaled product of two matrices added to a third.",
        samples=_accumulate_samples, reference=_accumulated, is_in_place=True,
        errors=(ErrorCase(
            Sample(_ones((3, 3), (2, 3), (3, 2)), {"scale": 1.0}), "a result of shape [1, 3, 3]"
        ),), **common,
    ))  # fmt: skip


# -- convolutions

_BOTH = ("padding_lower", "padding_upper")
# batch, groups, in, out, field, kernel, further parameters
_CONVS: tuple[tuple[int, int, int, int, tuple, tuple, dict[str, tuple]], ...] = (
    (1, 1, 1, 1, (1, 1), (1, 1), {}),
    (2, 1, 4, 5, (5, 6), (3, 3), dict.fromkeys(_BOTH, (1, 1))),
    (1, 1, 20, 18, (8, 8), (1, 1), {}),
    (3, 1, 8, 3, (8, 7), (1, 1), {"stride": (2, 3)}),
    (2, 1, 3, 2, (9,), (3,), {"stride": (2,)}),
    (2, 2, 3, 2, (7, 9), (3, 2), {"stride": (2, 3), "padding_upper": (2, 1)}),
    (1, 1, 2, 3, (6, 6), (2, 3), {"kernel_dilation": (2, 2)}),
    (1, 1, 2, 3, (4, 4), (3, 3), {"input_dilation": (2, 3), "padding_lower": (1, 2)}),
    (1, 1, 2, 3, (3, 4, 5), (2, 2, 2), {}),
    (2, 9, 1, 1, (6, 5), (3, 3), {}),
    (2, 1, 5, 7, (), (), {}),
)
_FLIPPED: dict[str, tuple] = {
    "flip_kernel": (True, False), "flip_input": (False, True), "padding_lower": (2, 0),
    "padding_upper": (0, 1), "input_truncation_lower": (1, 0), "kernel_truncation_lower": (1, 0),
    "kernel_padding_upper": (0, 1), "output_truncation_lower": (0, 1),
    "output_padding_upper": (0, 2), "output_padding_lower": (1, 0),
}  # fmt: skip
_STRANGE = (1, 1, 2, 3, (9, 8), (4, 3), _FLIPPED)


def _params(element: Type, conv: tuple) -> ConvParams:
    batch, groups, n_in, n_out, field, kernel, more = conv
    return ConvParams(
        type=element, n_batch=batch, n_groups=groups, n_in_chans=n_in, n_out_chans=n_out,
        field_shape=field, kernel_shape=kernel, **more,
    )  # fmt: skip


def _conv_samples(shapes: tuple[Callable, ...], convs: tuple) -> Callable:
    """Samples with operands of the shapes that `shapes` say for each convolution."""

    def samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
        for conv in convs:
            params = _params(element, conv)
            operands = tuple(_values(random, element, *shape(params)) for shape in shapes)
            yield Sample(operands, {"params": params})

    return samples


def _transformed(values: np.ndarray, kind: str, params: ConvParams) -> np.ndarray:
    """Truncated, dilated, padded and flipped in dimensions 3 and on."""
    names = {"input": ("input_", ""), "kernel": ("kernel_", "kernel_")}[kind]
    for d in range(params.rank):
        axis = 3 + d
        low = getattr(params, f"{names[0]}truncation_lower")[d]
        high = values.shape[axis] - getattr(params, f"{names[0]}truncation_upper")[d]
        values = np.take(values, np.arange(low, high), axis)
        step = getattr(params, f"{names[0]}dilation")[d]
        shape = list(values.shape)
        shape[axis] = (shape[axis] - 1) * step + 1
        spread = np.zeros(shape)
        spread[(slice(None),) * axis + (slice(None, None, step),)] = values
        pad = [(0, 0)] * values.ndim
        pad[axis] = tuple(getattr(params, f"{names[1]}padding_{e}")[d] for e in ("lower", "upper"))
        values = np.pad(spread, pad)
        values = np.flip(values, axis) if getattr(params, f"flip_{kind}")[d] else values
    return values


def reference_convolution(
    acts: np.ndarray, weights: np.ndarray, params: ConvParams, dtype: np.dtype | None = None
) -> np.ndarray:
    """A convolution tap by tap, in 64 bits."""
    p = params
    dtype = acts.dtype if dtype is None else dtype
    grouped = acts.astype(np.float64).reshape(p.n_batch, p.n_groups, p.n_in_chans, *p.field_shape)
    inputs = _transformed(grouped, "input", p)
    kernel = _transformed(weights.astype(np.float64), "kernel", p)
    sizes = [n - k + 1 for n, k in zip(inputs.shape[3:], kernel.shape[3:], strict=True)]
    out = np.zeros((p.n_batch, p.n_groups, p.n_out_chans, *sizes))
    head = (slice(None),) * 3
    for tap in product(*(range(k) for k in kernel.shape[3:])):
        window = tuple(slice(t, t + n) for t, n in zip(tap, sizes, strict=True))
        out += np.einsum("bgi...,gci->bgc...", inputs[head + window], kernel[head + tap])
    for d in range(p.rank):
        high = out.shape[3 + d] - p.output_truncation_upper[d]
        kept = np.arange(p.output_truncation_lower[d], high, p.stride[d])
        out = np.take(out, kept, 3 + d)
    pads = zip(p.output_padding_lower, p.output_padding_upper, strict=True)
    out = np.pad(out, [(0, 0)] * 3 + list(pads))
    return out.reshape(p.n_batch, p.n_groups * p.n_out_chans, *out.shape[3:]).astype(dtype)


def reference_weight_deltas(deltas: np.ndarray, acts: np.ndarray, params: ConvParams) -> np.ndarray:
    """The gradient of each weight: the result of that weight alone, times deltas."""
    shape = weights_shape(params)
    found = np.zeros(shape)
    wide, n = deltas.astype(np.float64), params.n_out_chans
    one = replace(params, n_out_chans=1)
    for i, *tap in product(*(range(s) for s in shape[2:])):
        weights = np.zeros((shape[0], 1, *shape[2:]))
        weights[(slice(None), 0, i, *tap)] = 1
        seen = reference_convolution(acts, weights, one, np.dtype(np.float64))
        grouped = wide.reshape(params.n_batch, params.n_groups, n, -1)
        seen = seen.reshape(params.n_batch, params.n_groups, -1)
        found[(slice(None), slice(None), i, *tap)] = np.einsum("bgcp,bgp->gc", grouped, seen)
    return found.astype(acts.dtype)


def _input_gradient(
    graph: Graph, deltas: Tensor, weights: Tensor, sequence: Sequence, *, params: ConvParams
) -> Tensor:
    backwards = input_gradient_params(params)
    return convolution(graph, deltas, weights, backwards, sequence, transpose_and_flip_weights=True)


def _reference_input_gradient(
    deltas: np.ndarray, weights: np.ndarray, params: ConvParams
) -> np.ndarray:
    """The transpose of the linear map that the convolution is, column by column."""
    shape = acts_shape(params)
    found = np.zeros(shape)
    wide = deltas.astype(np.float64)
    for index in product(*(range(s) for s in shape[1:])):
        acts = np.zeros(shape)
        acts[(slice(None), *index)] = 1
        seen = reference_convolution(acts, weights, params)
        found[(slice(None), *index)] = (seen * wide).reshape(shape[0], -1).sum(1)
    return found.astype(deltas.dtype)


def _weight_update(
    graph: Graph, weights: Tensor, deltas: Tensor, acts: Tensor, sequence: Sequence, *,
    params: ConvParams,
) -> None:  # fmt: skip
    convolution_weight_update(graph, deltas, weights, acts, params, -0.5, sequence)


def _reference_weight_update(
    weights: np.ndarray, deltas: np.ndarray, acts: np.ndarray, params: ConvParams
) -> np.ndarray:
    found = reference_weight_deltas(deltas.astype(np.float64), acts.astype(np.float64), params)
    return (weights.astype(np.float64) - 0.5 * found).astype(weights.dtype)


_CONV_ERRORS = (
    ErrorCase(
        Sample(
            _ones((1, 2, 4), (1, 3, 2, 2)), {"params": _params(FLOAT, (1, 1, 2, 3, (4,), (3,), {}))}
        ),
        "got weights of shape [1, 3, 2, 2], expected [1, 3, 2, 3]",
    ),
    ErrorCase(
        Sample(
            _ones((1, 4, 4), (1, 3, 2, 3)), {"params": _params(FLOAT, (1, 1, 2, 3, (4,), (3,), {}))}
        ),
        "got acts of shape [1, 4, 4], expected [1, 2, 4]",
    ),
    ErrorCase(
        Sample(
            _ones((1, 2, 4), (1, 3, 2, 3), dtype=np.float16),
            {"params": _params(FLOAT, (1, 1, 2, 3, (4,), (3,), {}))},
        ),
        "got acts of half, expected float",
    ),
)


def _register_convolutions() -> None:
    common: dict[str, Any] = {"types": TYPES, "codelets": FAMILIES, "tolerance": TOLERANCE}
    register(Op(
        name="poplin.convolution", function=convolution,
        about="A convolution of any rank.", reference=reference_convolution,
        samples=_conv_samples((acts_shape, weights_shape), (*_CONVS, _STRANGE)),
        errors=_CONV_ERRORS, **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.input_gradient", function=_input_gradient,
        about="The gradient of a convolution's input: a convolution with flipped weights.",
        samples=_conv_samples((out_shape, weights_shape), _CONVS),
        reference=_reference_input_gradient,
        **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.calculate_weight_deltas", function=calculate_weight_deltas,
        about="The gradient of a convolution's weights.", reference=reference_weight_deltas,
        samples=_conv_samples((out_shape, acts_shape), (*_CONVS, _STRANGE)), **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.convolution_weight_update", function=_weight_update,
        about="A convolution's weights moved by their scaled gradient.",
        samples=_conv_samples((weights_shape, out_shape, acts_shape), _CONVS[1:5]),
        is_in_place=True, reference=_reference_weight_update, **common,
    ))  # fmt: skip


# -- biases


def _bias_samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
    for shape in ((1, 1), (2, 3, 4, 5), (4, 7, 6), (3, 16, 8, 8)):
        yield Sample((_values(random, element, *shape), _values(random, element, shape[1])))


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
    common: dict[str, Any] = {"types": TYPES, "codelets": FAMILIES, "tolerance": TOLERANCE}
    register(Op(
        name="poplin.add_bias", function=add_bias, about="Biases added to every channel.",
        samples=_bias_samples, reference=_with_bias, is_in_place=True,
        errors=(ErrorCase(Sample(_ones((2, 3, 4), (2,))), "expected [3]: one per channel"),
                ErrorCase(Sample(_ones((2,), (2,))), "expected [b, channels, field…]")),
        **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.convolution_bias_update", function=_bias_update,
        about="Biases moved by the scaled sum of gradients.", samples=_bias_update_samples,
        reference=_updated_bias, is_in_place=True, **common,
    ))  # fmt: skip
    register(Op(
        name="poplin.weights_transpose_chans_flip_xy", function=_flip,
        about="Weights with channels exchanged and kernels reversed.",
        samples=lambda element, random: iter([Sample((_values(random, element, 2, 3, 4, 2, 3),))]),
        reference=lambda w: np.flip(w.swapaxes(1, 2), axis=tuple(range(3, w.ndim))), **common,
    ))  # fmt: skip


_register_products()
_register_convolutions()
_register_biases()
