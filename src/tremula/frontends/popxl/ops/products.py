"""Matrix products, convolutions and pooling."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from tremula.frontends.popxl.core.context import get_current_graph
from tremula.frontends.popxl.core.table import Operand, operation
from tremula.frontends.popxl.core.tensor import Tensor as PopxlTensor
from tremula.frontends.popxl.dtypes import dtype
from tremula.frontends.popxl.ops.choices import check_choices
from tremula.frontends.shared.kinds import windows
from tremula.frontends.shared.kinds.windows import Window

PAGE_SECTION = (4, "Products, convolutions, pooling")


def _with_partials(make: Callable) -> Callable:
    """The type of partial sums is by default the session's."""

    @functools.wraps(make)
    def matmul(
        lhs: PopxlTensor,
        rhs: PopxlTensor,
        available_memory_proportion: float | None = None,
        output_type: dtype | None = None,
        partials_type: dtype | None = None,
    ) -> PopxlTensor:
        if partials_type is None:
            name = get_current_graph().ir.session_options.partialsTypeMatMuls.lower()
            if name not in {"", "float", "half"}:
                raise ValueError(
                    "The session option partialsTypeMatMuls must be 'float' or 'half', got"
                    f" {name!r}"
                )
        elif partials_type.name not in {"float16", "float32"}:
            raise ValueError(f"partials_type must be float16 or float32, got {partials_type!r}")
        check_choices(available_memory_proportion)
        return make(lhs, rhs, available_memory_proportion, output_type, partials_type)

    return matmul


@operation(
    "MatMul",
    around=_with_partials,
    same=("lhs", "rhs"),
    types=lambda inputs, attributes: attributes["output_type"] or inputs[0],
)
def matmul(
    lhs: Operand,
    rhs: Operand,
    available_memory_proportion: float | None = None,  # noqa: ARG001 - read by `choices_of`
    output_type: dtype | None = None,
    partials_type: dtype | None = None,  # noqa: ARG001 - read by `choices_of`
) -> Tensor:
    """The matrix product, as NumPy's `@`.

    `available_memory_proportion` is the share of a tile's memory that it and its gradients may
    take, `partials_type` the type of their partial sums; without them the session's options count.
    """
    result = torch.matmul(lhs, rhs)
    return result if output_type is None else result.to(output_type.carrier)


# -- convolutions ----------------------------------------------------------------------------------

PadType = Literal["not_set", "same_lower", "same_upper", "valid"]
_AUTO_PADS = {
    "not_set": "NOTSET", "same_lower": "SAME_LOWER", "same_upper": "SAME_UPPER", "valid": "VALID",
}  # fmt: skip


def _window(
    stride: Sequence[int] | None,
    padding: Sequence[int] | None,
    dilation: Sequence[int] | None,
    pad_type: str,
) -> Window:
    if pad_type not in _AUTO_PADS:
        raise ValueError(f"pad_type must be one of {tuple(_AUTO_PADS)}, got {pad_type!r}")
    return Window(stride, dilation, padding, _AUTO_PADS[pad_type])


@operation("Conv", same=("t", "weight"))
def conv(
    t: Operand,
    weight: Operand,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """A convolution; padding is given before all dimensions, then behind all.

    With `enable_conv_dithering=[1]` it and its gradients begin at a tile that its dimensions
    choose, with `[0]` at the first; without it `convolutionOptions` of the session count.
    `available_memory_proportions=[0.2]` is the share of a tile's memory that they may take,
    `partials_types=["half"]` the type of their partial sums, or "float".
    """
    check_choices(available_memory_proportions, partials_types, enable_conv_dithering)
    return convolved(t, weight, stride, padding, dilation, groups, pad_type)


def convolved(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_type: str,
) -> Tensor:
    return windows.conv(t, weight, None, _window(stride, padding, dilation, pad_type), groups)


@operation("ConvTranspose", same=("t", "weight"))
def conv_transpose(
    t: Operand,
    weight: Operand,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
    available_memory_proportions: Sequence[float] | None = None,
    partials_types: Sequence[str] | None = None,
    enable_conv_dithering: Sequence[int] | None = None,
) -> Tensor:
    """The transpose of a convolution."""
    check_choices(available_memory_proportions, partials_types, enable_conv_dithering)
    return conv_transposed(
        t, weight, stride, padding, dilation, groups, pad_type, output_padding, output_shape
    )


def conv_transposed(
    t: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    pad_type: str,
    output_padding: Sequence[int],
    output_shape: Sequence[int],
) -> Tensor:
    window = _window(stride, padding, dilation, pad_type)
    return windows.conv_transpose(t, weight, None, window, groups, output_padding, output_shape)


# -- pooling ---------------------------------------------------------------------------------------


def _pool_window(
    t: Tensor,
    kernel: Sequence[int],
    window: Window,
    out_pads: Sequence[int] | None,
    in_dilations: Sequence[int] | None,
) -> Window:
    """A window whose pads are numbers, those of the output added."""
    if in_dilations is not None and any(n != 1 for n in in_dilations):
        raise ValueError(f"Dilations of a pool's input are not supported, got {in_dilations}")
    pads = window.pads_for(t.shape[2:], kernel)
    if out_pads:
        pads = [a + b for a, b in zip(pads, out_pads, strict=True)]
    return replace(window, pads=pads, auto_pad="NOTSET")


@operation("AveragePool")
def average_pool(
    t: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    out_pads: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    in_dilations: Sequence[int] | None = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
) -> Tensor:
    """The mean of each window; elements that padding added do not count."""
    window = _window(stride, padding, dilation, auto_pad)
    window = _pool_window(t, kernel_size, window, out_pads, in_dilations)
    return windows.average_pool(t, kernel_size, window, is_ceil=ceil_mode, counts_pads=False)


@operation("MaxPool")
def max_pool(
    t: Operand,
    kernel_size: Sequence[int],
    stride: Sequence[int] | None = None,
    padding: Sequence[int] | None = None,
    out_pads: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    in_dilations: Sequence[int] | None = None,
    auto_pad: str = "not_set",
    ceil_mode: bool = False,
    storage_order: str = "row",
) -> Tensor:
    """The largest element of each window."""
    if storage_order not in {"row", "column"}:
        raise ValueError(f"storage_order must be 'row' or 'column', got {storage_order!r}")
    window = _window(stride, padding, dilation, auto_pad)
    window = _pool_window(t, kernel_size, window, out_pads, in_dilations)
    return windows.max_pool(t, kernel_size, window, is_ceil=ceil_mode).values
