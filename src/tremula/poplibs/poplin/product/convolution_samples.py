"""Registry entries of convolutions: samples, NumPy references, errors."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.bias import convolution_weight_update
from tremula.poplibs.poplin.product.conv_params import ConvParams, input_gradient_params
from tremula.poplibs.poplin.product.convolution import (
    acts_shape,
    calculate_weight_deltas,
    convolution,
    out_shape,
    weights_shape,
)
from tremula.poplibs.poplin.product.mat_mul_samples import COMMON, ones, random_values
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

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
    """Samples whose operands have the shapes that `shapes` gives for each convolution."""

    def samples(element: Type, random: np.random.Generator) -> Iterator[Sample]:
        for conv in convs:
            params = _params(element, conv)
            operands = tuple(random_values(random, element, *shape(params)) for shape in shapes)
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
            ones((1, 2, 4), (1, 3, 2, 2)), {"params": _params(FLOAT, (1, 1, 2, 3, (4,), (3,), {}))}
        ),
        "got weights of shape [1, 3, 2, 2], expected [1, 3, 2, 3]",
    ),
    ErrorCase(
        Sample(
            ones((1, 4, 4), (1, 3, 2, 3)), {"params": _params(FLOAT, (1, 1, 2, 3, (4,), (3,), {}))}
        ),
        "got acts of shape [1, 4, 4], expected [1, 2, 4]",
    ),
    ErrorCase(
        Sample(
            ones((1, 2, 4), (1, 3, 2, 3), dtype=np.float16),
            {"params": _params(FLOAT, (1, 1, 2, 3, (4,), (3,), {}))},
        ),
        "got acts of half, expected float",
    ),
)


def _register_convolutions() -> None:
    register(Op(
        name="poplin.convolution", function=convolution,
        about="A convolution of any rank.", reference=reference_convolution,
        samples=_conv_samples((acts_shape, weights_shape), (*_CONVS, _STRANGE)),
        errors=_CONV_ERRORS, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.input_gradient", function=_input_gradient,
        about="The gradient of a convolution's input: a convolution with flipped weights.",
        samples=_conv_samples((out_shape, weights_shape), _CONVS),
        reference=_reference_input_gradient,
        **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.calculate_weight_deltas", function=calculate_weight_deltas,
        about="The gradient of a convolution's weights.", reference=reference_weight_deltas,
        samples=_conv_samples((out_shape, acts_shape), (*_CONVS, _STRANGE)), **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.convolution_weight_update", function=_weight_update,
        about="A convolution's weights moved by their scaled gradient.",
        samples=_conv_samples((weights_shape, out_shape, acts_shape), _CONVS[1:5]),
        is_in_place=True, reference=_reference_weight_update, **COMMON,
    ))  # fmt: skip


_register_convolutions()
