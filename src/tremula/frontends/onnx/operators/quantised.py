"""Numbers of 8 and fewer bits with a scale: to and from them, and products of them."""

import torch
from onnx import TensorProto
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.element_types import OnnxType, element_type
from tremula.frontends.onnx.table import operator
from tremula.frontends.onnx.values import cast_to
from tremula.frontends.shared.kinds.windows import Window, conv

_BITS = {"UINT4": (0, 15), "INT4": (-8, 7), "UINT2": (0, 3), "INT2": (-2, 1)}


def _range(kind: OnnxType) -> tuple[int, int]:
    if kind.name in _BITS:
        return _BITS[kind.name]
    facts = torch.iinfo(kind.tensor_type)
    return facts.min, facts.max


def _spread(value: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """A scale or zero point as it is broadcast: one, one for each slice, or one for each block."""
    if value.dim() == 0 or value.numel() == 1:
        return value.reshape(())
    axis = axis % x.dim()
    if block_size:
        wide = value.repeat_interleave(block_size, axis)
        return wide.narrow(axis, 0, x.shape[axis])
    shape = [1] * x.dim()
    shape[axis] = -1
    return value.reshape(shape)


@operator("QuantizeLinear", since=10)
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    context: NodeContext,
) -> Tensor:
    """X / scale + zero point, rounded to the type of the zero point."""
    number = output_dtype or TensorProto.UINT8
    if zero_point is not None:
        number = context.input_types[2]
    kind = element_type(number)
    if precision:
        scale = cast_to(scale, precision)
    elif scale.dtype.itemsize == 1:
        scale = scale.to(torch.float32)
    ratio = x.to(scale.dtype) / _spread(scale, x, axis, block_size)
    if kind.is_floating:
        return cast_to(ratio, number, saturate=bool(saturate))
    low, high = _range(kind)
    whole = torch.round(ratio.to(torch.float32) if ratio.dtype.itemsize < 4 else ratio)
    if zero_point is not None:
        whole = whole + _spread(zero_point, x, axis, block_size).to(whole.dtype)
    return whole.clamp(low, high).to(kind.tensor_type)


@operator("DequantizeLinear", since=10)
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero_point: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    context: NodeContext,
) -> Tensor:
    """(x - zero point) · scale."""
    wide = x.to(torch.float32) if x.dtype is not torch.int32 else x
    if zero_point is not None:
        wide = wide - _spread(zero_point, x, axis, block_size).to(wide.dtype)
    result = wide.to(torch.float32) * _spread(scale, x, axis, block_size).to(torch.float32)
    number = output_dtype or context.input_types[1]
    return cast_to(result, number)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """To 8 bits, with the scale and zero point that the values themselves ask for."""
    high, low = x.amax().clamp(min=0), x.amin().clamp(max=0)
    scale = (high - low) / 255
    zero_point = torch.round(-low / scale).clamp(0, 255)
    result = (torch.round(x / scale) + zero_point).clamp(0, 255)
    return result.to(torch.uint8), scale, zero_point.to(torch.uint8)


def _centred(x: Tensor, zero_point: Tensor | None, axis: int) -> Tensor:
    wide = x.to(torch.float32)
    if zero_point is None:
        return wide
    if zero_point.dim() == 1 and zero_point.numel() > 1:
        shape = [1] * x.dim()
        shape[axis] = -1
        zero_point = zero_point.reshape(shape)
    elif zero_point.numel() == 1:
        zero_point = zero_point.reshape(())
    return wide - zero_point.to(torch.float32)


def _exact_product(a: Tensor, b: Tensor) -> Tensor:
    """Floats hold sums of few products of bytes exactly; doubles any."""
    if a.shape[-1] * 255 * 255 < 1 << 24:
        return a @ b
    return a.to(torch.float64) @ b.to(torch.float64)


@operator("MatMulInteger", since=10)
def matmul_integer(
    a: Tensor,
    b: Tensor,
    a_zero_point: Tensor | None = None,
    b_zero_point: Tensor | None = None,
) -> Tensor:
    """A product of bytes, as 32-bit numbers."""
    wide = _centred(a, a_zero_point, a.dim() - 2), _centred(b, b_zero_point, b.dim() - 1)
    return _exact_product(*wide).to(torch.int32)


@operator("ConvInteger", since=10)
def conv_integer(
    x: Tensor,
    weight: Tensor,
    x_zero_point: Tensor | None = None,
    w_zero_point: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """A convolution of bytes, as 32-bit numbers."""
    wide = _centred(x, x_zero_point, 1), _centred(weight, w_zero_point, 0)
    if weight[0].numel() * 255 * 255 >= 1 << 24:
        wide = (wide[0].to(torch.float64), wide[1].to(torch.float64))
    del kernel_shape  # of the weight
    window = Window(strides, dilations, pads, auto_pad)
    return conv(*wide, None, window, group).to(torch.int32)


def _requantised(product: Tensor, scale: Tensor, zero_point: Tensor, number: int) -> Tensor:
    low, high = _range(element_type(number))
    whole = torch.round(product * scale) + zero_point.to(product.dtype)
    return whole.clamp(low, high).to(element_type(number).tensor_type)


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero_point: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    *,
    context: NodeContext,
) -> Tensor:
    """A product of bytes with scales, as bytes."""
    wide = _centred(a, a_zero_point, a.dim() - 2), _centred(b, b_zero_point, b.dim() - 1)
    result = _exact_product(*wide).to(torch.float32)
    scales = [_row(a_scale, a.dim() - 2, a.dim()), _row(b_scale, b.dim() - 1, b.dim()), y_scale]
    a_size, b_size, y_size = (s.to(torch.float32) for s in scales)
    return _requantised(result, a_size * b_size / y_size, y_zero_point, context.input_types[7])


def _row(value: Tensor, axis: int, n_axes: int) -> Tensor:
    if value.dim() != 1 or value.numel() == 1:
        return value
    shape = [1] * n_axes
    shape[axis] = -1
    return value.reshape(shape)


@operator("QLinearConv", since=10)
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero_point: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero_point: Tensor,
    y_scale: Tensor,
    y_zero_point: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    context: NodeContext,
) -> Tensor:
    """A convolution of bytes with scales, as bytes."""
    sizes = {"dilations": dilations, "kernel_shape": kernel_shape, "pads": pads}
    whole = conv_integer(
        x, weight, x_zero_point, w_zero_point, auto_pad=auto_pad, group=group, strides=strides,
        **sizes,
    )  # fmt: skip
    if bias is not None:
        whole = whole + bias.reshape(-1, *[1] * (x.dim() - 2))
    per_channel = _row(w_scale, 1, x.dim())
    scale = x_scale * per_channel / y_scale
    return _requantised(whole.to(torch.float32), scale, y_zero_point, context.input_types[7])


@operator("BitCast", since=26)
def bit_cast(x: Tensor, *, to: int, context: NodeContext) -> Tensor:
    """Bits read as another type of equal size."""
    kind, own = element_type(to), element_type(context.input_types[0])
    if own.tensor_type.itemsize > 1 and x.dtype != own.tensor_type:
        x = x.to(own.tensor_type)
    if kind.is_narrow or own.is_narrow:
        return _bits_of_four(x, own, kind)
    return x.view(kind.tensor_type)


def _bits_of_four(x: Tensor, own: OnnxType, kind: OnnxType) -> Tensor:
    """Between whole numbers of few bits, signed or not."""
    if own.is_floating or kind.is_floating:
        raise ValueError(f"the bits of {own.name} as {kind.name}")
    return cast_to(x, kind.number)
