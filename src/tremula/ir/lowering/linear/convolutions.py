"""Lowerings of convolutions: forwards, transposed, and all gradients, through poplin's planner."""

# ruff: noqa: PLR0913, PLR0917 - the signatures are ATen's
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import fx

from tremula.base.types import Type
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers, prefers_layout
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poplin, popops

Shape = tuple[int, ...]
Sizes = list[int] | Shape


@dataclass(frozen=True)
class _Convolution:
    """A convolution as ATen says it, brought to poplin's parameters.

    A transposed convolution is the gradient of a plain one's input: `plain` is that one, whose
    input is our output.
    """

    plain: poplin.ConvParams
    is_transposed: bool
    weight_shape: Shape

    def weights(self, weight: Tensor) -> Tensor:
        """ATen's [g·c, i, kernel…] as poplin's [g, c, i, kernel…]."""
        n_groups = self.plain.n_groups
        return weight.reshape_partial(0, 1, (n_groups, weight.shape[0] // n_groups))

    def from_weights(self, weights: Tensor) -> Tensor:
        return weights.reshape(list(self.weight_shape))


def _of(
    type: Type, x: Shape, weight: Shape, out: Shape, stride: Sizes, padding: Sizes,
    dilation: Sizes, transposed: bool, groups: int,
) -> _Convolution:  # fmt: skip
    """The parameters of a convolution of x [b, channels, field…] that gives `out`."""
    rank = len(x) - 2
    wide, narrow = (out, x) if transposed else (x, out)
    kernel = weight[2:]
    steps, pads, dilations = (_per_dim(v, rank) for v in (stride, padding, dilation))
    # Outputs beyond the last one wanted, which output_padding of a transposed convolution makes.
    spare = tuple(
        wide[2 + d] + 2 * pads[d] - (kernel[d] - 1) * dilations[d] - 1
        - (narrow[2 + d] - 1) * steps[d]
        for d in range(rank)
    )  # fmt: skip
    params = poplin.ConvParams(
        type=type, n_batch=x[0], field_shape=wide[2:], kernel_shape=kernel,
        n_in_chans=wide[1] // groups, n_out_chans=narrow[1] // groups, n_groups=groups,
        stride=steps, padding_lower=pads, padding_upper=pads, kernel_dilation=dilations,
        output_truncation_upper=spare,
    )  # fmt: skip
    return _Convolution(params, transposed, weight)


def params_of(
    type: Type, x: Shape, weight: Shape, out: Shape, stride: Sizes, padding: Sizes,
    dilation: Sizes, groups: int,
) -> poplin.ConvParams:  # fmt: skip
    """Parameters for poplin of a plain convolution of x [b, channels, field…] that gives `out`."""
    return _of(type, x, weight, out, stride, padding, dilation, False, groups).plain


def _per_dim(values: Sizes, rank: int) -> Shape:
    return tuple(values) * rank if len(values) == 1 else tuple(values)


@lowers("convolution", calls="poplin.convolution, poplin.add_bias")
def convolution(
    tiles: Tiles, x: Tensor, weight: Tensor, bias: Tensor | None, stride: list[int],
    padding: list[int], dilation: list[int], transposed: bool, _output_padding: list[int],
    groups: int,
) -> Tensor:  # fmt: skip
    """Biases are added to the result in place."""
    if not prod(tiles.out_shape):
        return tiles.new(tiles.out_shape, tiles.out_type)
    conv = _of(
        x.type, x.shape, weight.shape, tiles.out_shape, stride, padding, dilation, transposed,
        groups,
    )  # fmt: skip
    forward = _input_gradient if transposed else _forward
    result = forward(tiles, conv, x, conv.weights(weight))
    if bias is not None:
        poplin.add_bias(tiles.graph, result, bias, tiles.sequence, f"{tiles.name}/bias")
    return result


def convolution_options(tiles: Tiles) -> dict[str, Any]:
    """The user's choices for a convolution: those for products, and where it begins."""
    options = tiles.product_options()
    dithers = tiles.choices.dithers
    if tiles.options.dithers_convolutions if dithers is None else dithers:
        options["enable_conv_dithering"] = True
    return options


def _forward(tiles: Tiles, conv: _Convolution, x: Tensor, weights: Tensor) -> Tensor:
    return poplin.convolution(
        tiles.graph,
        x,
        weights,
        conv.plain,
        tiles.sequence,
        tiles.name,
        **convolution_options(tiles),
    )


def _input_gradient(tiles: Tiles, conv: _Convolution, x: Tensor, weights: Tensor) -> Tensor:
    params = poplin.input_gradient_params(conv.plain)
    return poplin.convolution(
        tiles.graph, x, weights, params, tiles.sequence, tiles.name,
        transpose_and_flip_weights=True, **convolution_options(tiles),
    )  # fmt: skip


@lowers(
    "convolution_backward",
    calls="poplin.convolution, poplin.calculate_weight_deltas, popops.reduce",
)
def convolution_backward(
    tiles: Tiles, gradient: Tensor, x: Tensor, weight: Tensor, _bias_sizes: object,
    stride: list[int], padding: list[int], dilation: list[int], transposed: bool,
    _output_padding: list[int], groups: int, output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of input, weight and bias, as far as they are requested."""
    conv = _of(
        x.type, x.shape, weight.shape, gradient.shape, stride, padding, dilation, transposed,
        groups,
    )  # fmt: skip
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        back = _forward if transposed else _input_gradient
        of_x = back(tiles, conv, gradient, conv.weights(weight))
    if output_mask[1]:
        acts, deltas = (gradient, x) if transposed else (x, gradient)
        of_weight = _weight_gradient(tiles, conv, acts, deltas)
    if output_mask[2]:
        dims = [d for d in range(gradient.rank) if d != 1]
        name = f"{tiles.name}/bias"
        of_bias = popops.reduce(tiles.graph, gradient, dims, "ADD", tiles.sequence, name)
    return of_x, of_weight, of_bias


def _weight_gradient(tiles: Tiles, conv: _Convolution, acts: Tensor, deltas: Tensor) -> Tensor:
    result = poplin.calculate_weight_deltas(
        tiles.graph, deltas, acts, conv.plain, tiles.sequence, f"{tiles.name}/weights",
        **convolution_options(tiles),
    )  # fmt: skip
    return conv.from_weights(result)


# -- preferred layouts of operands -----------------------------------------------------------------


def _of_node(tiles: Tiles, node: fx.Node) -> _Convolution:
    arguments: Any = node.args
    stride, padding, dilation, transposed, _, groups = arguments[3:9]
    shapes = tiles.shape_of(0), tiles.shape_of(1), tiles.out_shape
    return _of(tiles.type_of(0), *shapes, stride, padding, dilation, transposed, groups)


@prefers_layout("convolution", 0)
def convolution_input(tiles: Tiles, node: fx.Node) -> Tensor | None:
    if not prod(tiles.out_shape):
        return None
    conv = _of_node(tiles, node)
    params = poplin.input_gradient_params(conv.plain) if conv.is_transposed else conv.plain
    return poplin.create_input(tiles.graph, params, tiles.name, **convolution_options(tiles))


@prefers_layout("convolution", 1)
def convolution_weight(tiles: Tiles, node: fx.Node) -> Tensor | None:
    """Weights as the forward pass wants them; transposed ones are created flipped."""
    if not prod(tiles.out_shape):
        return None
    conv = _of_node(tiles, node)
    options = convolution_options(tiles)
    if not conv.is_transposed:
        created = poplin.create_weights(tiles.graph, conv.plain, tiles.name, **options)
        return conv.from_weights(created)
    params = poplin.input_gradient_params(conv.plain)
    created = poplin.create_weights(tiles.graph, params, tiles.name, **options)
    turned = created.dim_shuffle([0, 2, 1, *range(3, created.rank)])
    for d in range(3, turned.rank):
        turned = turned.reverse(d)
    return conv.from_weights(turned)
