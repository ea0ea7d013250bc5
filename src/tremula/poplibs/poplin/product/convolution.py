"""Convolutions of any rank, forwards and backwards, through the planner of products."""

from typing import Unpack

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.poplin.product.build import add_product, create_operand
from tremula.poplibs.poplin.product.conv_params import (
    ConvParams,
    FieldDim,
    Problem,
    conv_problem,
    flattened,
    without_strides,
)
from tremula.poplibs.poplin.product.mat_mul import ProductOptions, plan_options
from tremula.poplibs.poplin.product.plan import Plan
from tremula.poplibs.poplin.product.planner import plan_product
from tremula.poplibs.popops import zero
from tremula.poplibs.poputil import replayed
from tremula.poplibs.registry import PoplibsError

Shape = tuple[int, ...]


class _Form:
    """A convolution in its plain form, and the views that lead there and back."""

    def __init__(self, params: ConvParams, is_update: bool) -> None:
        self.params = params
        whole = conv_problem(params, is_update)
        pairs = [without_strides(f) for f in whole.fields]
        fields: tuple[FieldDim, ...] = tuple(f for f, _ in pairs)
        self.picked = [part for _, part in pairs]
        self.unflattened = Problem(
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
    form = _Form(params, is_update=False)
    plan = _plan(graph, form, options)
    operands = form.acts(acts), form.weights(weights)
    out = add_product(graph, plan, *operands, sequence, name, form.channel_order)
    fields = tuple(f.n_out for f in form.unflattened.fields)[: params.rank]
    result = form.from_acts(out, params.n_out_chans, fields)
    return _padded_output(graph, result, params, sequence, name)


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
    form = _Form(params, is_update=True)
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
    graph: Graph, params: ConvParams, name: str = "", **options: Unpack[ProductOptions]
) -> Tensor:
    """New weights [g, c, i, kernel…] laid out for the convolution."""
    form = _Form(params, is_update=False)
    whole = tuple(f.n_kernel for f in form.unflattened.fields)[: params.rank]
    if whole != params.kernel_shape:  # truncated weights are never multiplied
        shape = weights_shape(params)
        return graph.add_variable(params.type, shape, name or "weights", mapping="linear")
    plan = _plan(graph, form, options)
    view = form.from_weights(create_operand(graph, plan, "right", name or "weights"))
    for d in range(params.rank):
        view = view.reverse(3 + d) if params.flip_kernel[d] else view
    return view


@replayed
def create_input(
    graph: Graph, params: ConvParams, name: str = "", **options: Unpack[ProductOptions]
) -> Tensor:
    """A new input [b, g*i, field…] laid out for the convolution."""
    form = _Form(params, is_update=False)
    fields = tuple(f.n_in for f in form.unflattened.fields)[: params.rank]
    if fields != params.field_shape:  # parts of it are never multiplied
        shape = acts_shape(params)
        return graph.add_variable(params.type, shape, name or "in", mapping="linear")
    plan = _plan(graph, form, options)
    view = create_operand(graph, plan, "left", name or "in", form.channel_order)
    view = form.from_acts(view, params.n_in_chans, fields)
    for d in range(params.rank):
        view = view.reverse(2 + d) if params.flip_input[d] else view
    return view


def convolution_plan(
    graph: Graph, params: ConvParams, *, is_update: bool = False, **options: Unpack[ProductOptions]
) -> Plan:
    """The plan of a convolution, or of the update of its weights; see plan_report."""
    return _plan(graph, _Form(params, is_update), options)


def _plan(graph: Graph, form: _Form, options: ProductOptions) -> Plan:
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
