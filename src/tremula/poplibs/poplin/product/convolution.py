"""Convolutions of any rank, forwards and backwards, through the planner of products."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.build import add_product, create_operand
from tremula.poplibs.poplin.product.conv_params import (
    ConvParams,
    FieldDim,
    ProductProblem,
    conv_problem,
    deferred_dilation,
    flattened,
    input_gradient_params,
    without_strides,
)
from tremula.poplibs.poplin.product.mat_mul import (
    COMMON,
    ProductOptions,
    ones,
    plan_options,
    random_values,
)
from tremula.poplibs.poplin.product.plan import ProductPlan
from tremula.poplibs.poplin.product.planner import plan_product
from tremula.poplibs.popops import zero
from tremula.poplibs.poputil import replayed
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

Shape = tuple[int, ...]


class _ConvForm:
    """A convolution in its plain form, and the views that lead there and back."""

    def __init__(self, params: ConvParams, is_update: bool) -> None:
        self.params = params
        whole = conv_problem(params, is_update)
        pairs = [without_strides(f) for f in whole.fields]
        fields: tuple[FieldDim, ...] = tuple(f for f, _ in pairs)
        self.picked = [part for _, part in pairs]
        self.unflattened = ProductProblem(
            is_update, whole.n_groups, whole.n_batch, fields, whole.n_in, whole.n_out,
            whole.type, whole.out_type,
        )  # fmt: skip
        self.problem = flattened(self.unflattened)
        self.n_dims = max(params.rank, 1)

    def acts(self, tensor: Tensor) -> Tensor:
        """[b, g*i, field…] as [g, b, field…, i], truncated, flipped, and without strides."""
        p = self.params
        view = _with_field(tensor.reshape_partial(1, 2, (p.n_groups, p.n_in_chans)), 3)
        for d in range(p.rank):
            n = p.field_shape[d]
            low, high = p.input_truncation_lower[d], n - p.input_truncation_upper[d]
            view = view.slice(low, high, 3 + d)
            view = view.reverse(3 + d) if p.flip_input[d] else view
        for d, part in enumerate(self.picked):
            view = view[(slice(None),) * (3 + d) + (part,)]
        return self._as_field(_channels_last(view), tuple(f.n_in for f in self.problem.fields))

    def deltas(self, tensor: Tensor) -> Tensor:
        """[b, g*c, field…] as [g, b, field…, c], without padding of the output."""
        p = self.params
        view = _with_field(tensor.reshape_partial(1, 2, (p.n_groups, p.n_out_chans)), 3)
        for d in range(p.rank):
            high = view.shape[3 + d] - p.output_padding_upper[d]
            view = view.slice(p.output_padding_lower[d], high, 3 + d)
        return self._as_field(_channels_last(view), tuple(f.n_out for f in self.problem.fields))

    def _as_field(self, view: Tensor, fields: Shape) -> Tensor:
        return view.reshape((view.shape[0], self.problem.n_batch, *fields, view.shape[-1]))

    def weights(self, tensor: Tensor) -> Tensor:
        """[g, c, i, kernel…] as [g, kernel…, i, c], truncated and flipped."""
        p = self.params
        view = _with_field(tensor, 3)
        for d in range(p.rank):
            low = p.kernel_truncation_lower[d]
            view = view.slice(low, p.kernel_shape[d] - p.kernel_truncation_upper[d], 3 + d)
            view = view.reverse(3 + d) if p.flip_kernel[d] else view
        view = view.dim_shuffle([0, *range(3, view.rank), 2, 1])
        kernel = tuple(f.n_kernel for f in self.problem.fields)
        return view.reshape((view.shape[0], *kernel, *view.shape[-2:]))

    # -- back to the user's order of dimensions

    def from_acts(self, view: Tensor, n_chans: int, fields: Shape) -> Tensor:
        """[g, b, field…, channel] as [b, g*channel, field…]."""
        view = view.dim_shuffle([*range(1, view.rank - 1), 0, view.rank - 1])
        p = self.params
        view = view.reshape((p.n_batch, *fields, p.n_groups * n_chans))
        return view.dim_roll(view.rank - 1, 1)

    def from_weights(self, view: Tensor) -> Tensor:
        p = self.params
        kernel = tuple(f.n_kernel for f in self.unflattened.fields)[: p.rank]
        view = view.reshape((p.n_groups, *kernel, p.n_in_chans, p.n_out_chans))
        return view.dim_shuffle([0, view.rank - 1, view.rank - 2, *range(1, view.rank - 2)])

    @property
    def channel_order(self) -> Shape:
        """Dimensions of acts with groups beside channels, so that the two can merge."""
        rank = 3 + len(self.problem.fields)
        return (*range(1, rank - 1), 0, rank - 1)


def _with_field(tensor: Tensor, before: int) -> Tensor:
    """A field dimension of size 1 where there is none."""
    return tensor if tensor.rank > before else tensor.expand([before])


def _channels_last(view: Tensor) -> Tensor:
    """[b, g, channel, field…] as [g, b, field…, channel]."""
    return view.dim_shuffle([1, 0, *range(3, view.rank), 2])


@replayed
def convolution(
    graph: Graph, acts: Tensor, weights: Tensor, params: ConvParams, sequence: Sequence,
    name: str = "", *, transpose_and_flip_weights: bool = False,
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """[b, g*i, field…] with weights [g, c, i, kernel…]: a new tensor [b, g*c, field…].

    With `transpose_and_flip_weights` they are those of the forward pass, [g, i, c, kernel…], as the
    gradient of the input needs them: see input_gradient_params.
    """
    name = name or "convolution"
    if transpose_and_flip_weights:
        weights = transposed_and_flipped(weights)
    _check_shape("convolution", "acts", acts, acts_shape(params), params)
    _check_shape("convolution", "weights", weights, weights_shape(params), params)
    deferred = deferred_dilation(params)
    if deferred is not None:
        result = convolution(graph, acts, weights, deferred, sequence, name, **options)
        return _dilated(graph, result, params, sequence, name, options)
    form = _ConvForm(params, is_update=False)
    plan = _plan(graph, form, options)
    operands = form.acts(acts), form.weights(weights)
    out = add_product(graph, plan, *operands, sequence, name, form.channel_order)
    fields = tuple(f.n_out for f in form.unflattened.fields)[: params.rank]
    result = form.from_acts(out, params.n_out_chans, fields)
    return _padded_output(graph, result, params, sequence, name)


def _dilated(
    graph: Graph, result: Tensor, params: ConvParams, sequence: Sequence, name: str,
    options: ProductOptions,
) -> Tensor:  # fmt: skip
    """A result at positions that lie apart by the dilation, with zeros between.

    It lies where the convolution would leave it that has all of them.
    """
    form = _ConvForm(params, is_update=False)
    plan = _plan(graph, form, options)
    stored = create_operand(graph, plan, "result", f"{name}/dilated", form.channel_order)
    dilated = form.from_acts(stored, params.n_out_chans, params.output_field_shape)
    zero(graph, dilated, sequence, f"{name}/zero")
    index = (slice(None), slice(None), *(slice(0, None, n) for n in params.input_dilation))
    sequence.add(Copy(result, dilated[index]))
    return dilated


def _padded_output(
    graph: Graph, result: Tensor, params: ConvParams, sequence: Sequence, name: str
) -> Tensor:
    """Padded with zeros, if the parameters say so."""
    if not any(params.output_padding_lower) and not any(params.output_padding_upper):
        return result
    shape = (*result.shape[:2], *params.output_field_shape)
    padded = graph.add_variable(result.type, shape, f"{name}/padded", mapping="linear")
    zero(graph, padded, sequence, f"{name}/zero")
    inside = padded
    for d in range(params.rank):
        low = params.output_padding_lower[d]
        inside = inside.slice(low, low + result.shape[2 + d], 2 + d)
    sequence.add(Copy(result, inside))
    return padded


@replayed
def calculate_weight_deltas(
    graph: Graph, deltas: Tensor, acts: Tensor, params: ConvParams, sequence: Sequence,
    name: str = "", **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """The gradient of the weights, [g, c, i, kernel…], from that of the result and the input."""
    name = name or "weightDeltas"
    _check_shape("calculate_weight_deltas", "deltas", deltas, out_shape(params), params)
    _check_shape("calculate_weight_deltas", "acts", acts, acts_shape(params), params)
    form = _ConvForm(params, is_update=True)
    plan = _plan(graph, form, options)
    operands = form.acts(acts), form.deltas(deltas)
    view = form.from_weights(add_product(graph, plan, *operands, sequence, name))
    for d in range(params.rank):
        view = view.reverse(3 + d) if params.flip_kernel[d] else view
    return _untruncated(graph, view, params, sequence, name)


def _untruncated(
    graph: Graph, view: Tensor, params: ConvParams, sequence: Sequence, name: str
) -> Tensor:
    """Weights that were cut off have a gradient of zero."""
    if view.shape[3:] == params.kernel_shape:
        return view
    shape = weights_shape(params)
    whole = graph.add_variable(view.type, shape, f"{name}/whole", mapping="linear")
    zero(graph, whole, sequence, f"{name}/zero")
    inside = whole
    for d in range(params.rank):
        low = params.kernel_truncation_lower[d]
        inside = inside.slice(low, low + view.shape[3 + d], 3 + d)
    sequence.add(Copy(view, inside))
    return whole


# -- operands laid out for a convolution


@replayed
def create_weights(
    graph: Graph, params: ConvParams, name: str = "", *, metadata: Tensor | None = None,
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """New weights [g, c, i, kernel…] laid out for the convolution; 8-bit ones need `metadata`."""
    form = _ConvForm(params, is_update=False)
    whole = tuple(f.n_kernel for f in form.unflattened.fields)[: params.rank]
    if whole != params.kernel_shape:  # truncated weights are never multiplied
        shape, name = weights_shape(params), name or "weights"
        return graph.add_variable(params.type, shape, name, mapping="linear", metadata=metadata)
    plan = _plan(graph, form, options)
    created = create_operand(graph, plan, "right", name or "weights", metadata=metadata)
    view = form.from_weights(created)
    for d in range(params.rank):
        view = view.reverse(3 + d) if params.flip_kernel[d] else view
    return view


@replayed
def create_input(
    graph: Graph, params: ConvParams, name: str = "", *, metadata: Tensor | None = None,
    **options: Unpack[ProductOptions],
) -> Tensor:  # fmt: skip
    """A new input [b, g*i, field…] laid out for the convolution; 8-bit ones need `metadata`."""
    form = _ConvForm(params, is_update=False)
    fields = tuple(f.n_in for f in form.unflattened.fields)[: params.rank]
    if fields != params.field_shape:  # parts of it are never multiplied
        shape, name = acts_shape(params), name or "in"
        return graph.add_variable(params.type, shape, name, mapping="linear", metadata=metadata)
    plan = _plan(graph, form, options)
    order = form.channel_order
    view = create_operand(graph, plan, "left", name or "in", order, metadata=metadata)
    view = form.from_acts(view, params.n_in_chans, fields)
    for d in range(params.rank):
        view = view.reverse(2 + d) if params.flip_input[d] else view
    return view


def convolution_plan(
    graph: Graph, params: ConvParams, *, is_update: bool = False, **options: Unpack[ProductOptions]
) -> ProductPlan:
    """The plan of a convolution, or of the update of its weights; see plan_report."""
    return _plan(graph, _ConvForm(params, is_update), options)


def _plan(graph: Graph, form: _ConvForm, options: ProductOptions) -> ProductPlan:
    return plan_product(graph, form.problem, plan_options(options))


# -- shapes


def acts_shape(params: ConvParams) -> Shape:
    return (params.n_batch, params.n_groups * params.n_in_chans, *params.field_shape)


def weights_shape(params: ConvParams) -> Shape:
    return (params.n_groups, params.n_out_chans, params.n_in_chans, *params.kernel_shape)


def out_shape(params: ConvParams) -> Shape:
    return (params.n_batch, params.n_groups * params.n_out_chans, *params.output_field_shape)


def transposed_and_flipped(weights: Tensor) -> Tensor:
    """[g, c, i, kernel…] as [g, i, c, kernel…] with every kernel dimension reversed."""
    if weights.rank < 3:
        return weights
    view = weights.dim_shuffle([0, 2, 1, *range(3, weights.rank)])
    for d in range(3, weights.rank):
        view = view.reverse(d)
    return view


def _check_shape(
    what: str, operand: str, tensor: Tensor, expected: Shape, params: ConvParams
) -> None:
    if tensor.shape != expected:
        raise PoplibsError(
            f"{what} got {operand} of shape {list(tensor.shape)}, expected {list(expected)}.",
            source=user_source(),
            hint="give tensors as the parameters describe them",
        )
    if tensor.type != params.type:
        raise PoplibsError(
            f"{what} got {operand} of {tensor.type}, expected {params.type}.",
            source=user_source(),
            hint="cast it, or change the type of the parameters",
        )


__all__ = [
    "acts_shape", "calculate_weight_deltas", "convolution", "convolution_plan", "create_input",
    "create_weights", "out_shape", "transposed_and_flipped", "weights_shape",
]  # fmt: skip


# -- registry: samples, NumPy references, errors ---------------------------------------------------


_BOTH = ("padding_lower", "padding_upper")
# batch, groups, in, out, field, kernel, further parameters
CONVS: tuple[tuple[int, int, int, int, tuple, tuple, dict[str, tuple]], ...] = (
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
    (2, 1, 4, 6, (3, 4), (1, 1), {"input_dilation": (2, 3), "padding_upper": (1, 2)}),
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


def conv_samples(shapes: tuple[Callable, ...], convs: tuple) -> Callable:
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
        indices = np.arange(p.output_truncation_lower[d], high, p.stride[d])
        out = np.take(out, indices, 3 + d)
    pads = zip(p.output_padding_lower, p.output_padding_upper, strict=True)
    out = np.pad(out, [(0, 0)] * 3 + list(pads))
    return out.reshape(p.n_batch, p.n_groups * p.n_out_chans, *out.shape[3:]).astype(dtype)


def reference_weight_deltas(deltas: np.ndarray, acts: np.ndarray, params: ConvParams) -> np.ndarray:
    """The gradient of each weight: the result of that weight alone, times deltas."""
    shape = weights_shape(params)
    n_weights = math.prod(shape[2:])  # of one output channel: each is an output channel here
    alone = np.broadcast_to(np.eye(n_weights), (shape[0], n_weights, n_weights))
    alone = alone.reshape(shape[0], n_weights, *shape[2:])
    seen = reference_convolution(
        acts, alone, replace(params, n_out_chans=n_weights), np.dtype(np.float64)
    ).reshape(params.n_batch, params.n_groups, n_weights, -1)
    wide = deltas.astype(np.float64)
    grouped = wide.reshape(params.n_batch, params.n_groups, params.n_out_chans, -1)
    result = np.einsum("bgcp,bgwp->gcw", grouped, seen)
    return result.reshape(shape).astype(acts.dtype)


def _input_gradient(
    graph: Graph, deltas: Tensor, weights: Tensor, sequence: Sequence, *, params: ConvParams
) -> Tensor:
    backwards = input_gradient_params(params)
    return convolution(graph, deltas, weights, backwards, sequence, transpose_and_flip_weights=True)


def _reference_input_gradient(
    deltas: np.ndarray, weights: np.ndarray, params: ConvParams
) -> np.ndarray:
    """The transpose of the linear map that the convolution is: its columns are one batch."""
    shape = acts_shape(params)
    n_inputs = math.prod(shape[1:])
    columns = np.eye(n_inputs).reshape(n_inputs, *shape[1:])
    seen = reference_convolution(columns, weights, replace(params, n_batch=n_inputs))
    wide = deltas.astype(np.float64).reshape(shape[0], -1)
    return (wide @ seen.reshape(n_inputs, -1).T).reshape(shape).astype(deltas.dtype)


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
        samples=conv_samples((acts_shape, weights_shape), (*CONVS, _STRANGE)),
        errors=_CONV_ERRORS, **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.input_gradient", function=_input_gradient,
        about="The gradient of a convolution's input: a convolution with flipped weights.",
        samples=conv_samples((out_shape, weights_shape), CONVS),
        reference=_reference_input_gradient,
        **COMMON,
    ))  # fmt: skip
    register(Op(
        name="poplin.calculate_weight_deltas", function=calculate_weight_deltas,
        about="The gradient of a convolution's weights.", reference=reference_weight_deltas,
        samples=conv_samples((out_shape, acts_shape), (*CONVS, _STRANGE)), **COMMON,
    ))  # fmt: skip


_register_convolutions()
