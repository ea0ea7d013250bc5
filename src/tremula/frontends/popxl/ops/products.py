"""Matrix products, convolutions and pooling."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from tremula.frontends.popxl.core.table import Operand, operation
from tremula.frontends.popxl.dtypes import dtype


@operation(
    "MatMul",
    same=("lhs", "rhs"),
    types=lambda inputs, attributes: attributes["output_type"] or inputs[0],
)
def matmul(
    lhs: Operand,
    rhs: Operand,
    available_memory_proportion: float | None = None,  # noqa: ARG001
    output_type: dtype | None = None,
    partials_type: dtype | None = None,  # noqa: ARG001
) -> Tensor:
    """The matrix product, as NumPy's `@`."""
    result = torch.matmul(lhs, rhs)
    return result if output_type is None else result.to(output_type.carrier)


# -- convolutions ----------------------------------------------------------------------------------

PadType = Literal["not_set", "same_lower", "same_upper", "valid"]
PAD_TYPES = ("not_set", "same_lower", "same_upper", "valid")


def conv_pads(
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    pad_type: str,
) -> list[tuple[int, int]]:
    """How many elements are added before and behind each dimension."""
    if pad_type not in PAD_TYPES:
        raise ValueError(f"pad_type must be one of {PAD_TYPES}, got {pad_type!r}")
    n = len(size)
    if pad_type == "not_set":
        return [(padding[i], padding[i + n]) for i in range(n)]
    if pad_type == "valid":
        return [(0, 0)] * n
    pads = []
    for i in range(n):
        extent = dilation[i] * (kernel[i] - 1) + 1
        whole = max((-(-size[i] // stride[i]) - 1) * stride[i] + extent - size[i], 0)
        small, large = whole // 2, whole - whole // 2
        pads.append((small, large) if pad_type == "same_upper" else (large, small))
    return pads


def padded(t: Tensor, pads: Sequence[tuple[int, int]], value: float = 0.0) -> Tensor:
    flat = [n for pair in reversed(pads) for n in pair]
    return functional.pad(t, flat, value=value) if any(flat) else t


_CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_CONV_TRANSPOSE = {
    1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d,
}  # fmt: skip


@operation("Conv", same=("t", "weight"))
def conv(
    t: Operand,
    weight: Operand,
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    pad_type: str = "not_set",
    available_memory_proportions: Any = None,  # noqa: ARG001
    partials_types: Any = None,  # noqa: ARG001
    enable_conv_dithering: Any = None,  # noqa: ARG001
) -> Tensor:
    """A convolution; padding is given before all dimensions, then behind all."""
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
    n = t.dim() - 2
    pads = conv_pads(t.shape[2:], weight.shape[2:], stride, padding, dilation, pad_type)
    return _CONV[n](padded(t, pads), weight, None, tuple(stride), 0, tuple(dilation), groups)


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
    available_memory_proportions: Any = None,  # noqa: ARG001
    partials_types: Any = None,  # noqa: ARG001
    enable_conv_dithering: Any = None,  # noqa: ARG001
) -> Tensor:
    """The transpose of a convolution."""
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
    """The whole transpose, of which padding takes elements away at both ends."""
    if pad_type not in PAD_TYPES:
        raise ValueError(f"pad_type must be one of {PAD_TYPES}, got {pad_type!r}")
    n = t.dim() - 2
    extra = list(output_padding) or [0] * n
    whole = _CONV_TRANSPOSE[n](t, weight, None, tuple(stride), 0, 0, groups, tuple(dilation))
    sizes = list(whole.shape[2:])
    if output_shape:
        wanted = list(output_shape)[-n:]
        cut = [sizes[i] + extra[i] - wanted[i] for i in range(n)]
        ends = [_halves(c, pad_type) for c in cut]
    elif pad_type == "not_set":
        ends = [(padding[i], padding[i + n]) for i in range(n)]
    elif pad_type == "valid":
        ends = [(0, 0)] * n
    else:
        cut = [sizes[i] - t.shape[2 + i] * stride[i] for i in range(n)]
        ends = [_halves(c, pad_type) for c in cut]
    pads = [(-before, extra[i] - behind) for i, (before, behind) in enumerate(ends)]
    return padded(whole, pads)


def _halves(n: int, pad_type: str) -> tuple[int, int]:
    small, large = n // 2, n - n // 2
    return (large, small) if pad_type == "same_lower" else (small, large)


# -- pooling ---------------------------------------------------------------------------------------


def _windows(
    t: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] | None,
    padding: Sequence[int] | None,
    out_pads: Sequence[int] | None,
    dilation: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: bool,
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Strides, dilations and pads of pooling windows."""
    n = len(kernel)
    strides = list(stride) if stride else [1] * n
    steps = list(dilation) if dilation else [1] * n
    pads = conv_pads(t.shape[-n:], kernel, strides, padding or [0] * 2 * n, steps, auto_pad)
    if out_pads:
        pads = [(a + out_pads[i], b + out_pads[i + n]) for i, (a, b) in enumerate(pads)]
    if ceil_mode:
        pads = [
            (a, b + _missing(t.shape[i - n] + a + b, kernel[i], strides[i], steps[i]))
            for i, (a, b) in enumerate(pads)
        ]
    return strides, steps, pads


def _missing(size: int, kernel: int, stride: int, step: int) -> int:
    """Elements that the last, incomplete window lacks."""
    rest = (size - (step * (kernel - 1) + 1)) % stride
    return stride - rest if rest else 0


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
    _check_in_dilations(in_dilations)
    kernel = list(kernel_size)
    strides, steps, pads = _windows(
        t, kernel, stride, padding, out_pads, dilation, auto_pad, ceil_mode
    )
    ones = torch.ones_like(t[:1, :1])
    total = _summed(padded(t, pads), kernel, strides, steps)
    return total / _summed(padded(ones, pads), kernel, strides, steps)


def _summed(t: Tensor, kernel: list[int], strides: list[int], steps: list[int]) -> Tensor:
    """Sums of windows: a convolution of each channel with ones."""
    n, channels = len(kernel), t.shape[1]
    weight = torch.ones([channels, 1, *kernel], dtype=t.dtype, device=t.device)
    return _CONV[n](t, weight, None, strides, 0, steps, channels)


_MAX_POOL = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}


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
    _check_in_dilations(in_dilations)
    if storage_order not in {"row", "column"}:
        raise ValueError(f"storage_order must be 'row' or 'column', got {storage_order!r}")
    kernel = list(kernel_size)
    strides, steps, pads = _windows(
        t, kernel, stride, padding, out_pads, dilation, auto_pad, ceil_mode
    )
    lowest = torch.finfo(t.dtype).min
    return _MAX_POOL[len(kernel)](padded(t, pads, lowest), kernel, strides, 0, steps)


def _check_in_dilations(in_dilations: Sequence[int] | None) -> None:
    if in_dilations is not None and any(n != 1 for n in in_dilations):
        raise ValueError(f"Dilations of a pool's input are not supported, got {in_dilations}")
