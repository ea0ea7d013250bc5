"""8-bit floats in PopTorch: tensors of codes with a format and a scale, their products, layers.

The machine's formats are `torch.float8_e4m3fnuz` (1.4.3) and `torch.float8_e5m2fnuz` (1.5.2); they
name the formats here. A number is its code's value times 2^scale.
"""

# ruff: noqa: ANN401 - arguments of layers are PyTorch's, contexts autograd's

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tremula.base.floats import MAX_SCALE, MIN_SCALE
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.ir.ops.low_precision import quarter_format

F143, F152 = torch.float8_e4m3fnuz, torch.float8_e5m2fnuz
_OTHERS = {torch.float8_e4m3fn: F143, torch.float8_e5m2: F152}
_ops = torch.ops.tremula


def _is_143(format: torch.dtype) -> bool:
    if format in (F143, F152):
        return format is F143
    meant = _OTHERS.get(format)
    advice = f"use {meant}" if meant else f"use {F143} or {F152}"
    raise createPoptorchError(
        f"{format} is not one of the machine's 8-bit floats, whose biases are 8 and 16 and which "
        f"have no infinity and no negative zero: {advice}"
    )


@dataclass(frozen=True)
class Float8Tensor:
    """Codes of 8-bit floats, and what they mean."""

    codes: Tensor  # uint8
    format: torch.dtype = F143
    scale: int = 0

    def __post_init__(self) -> None:
        _is_143(self.format)
        if not MIN_SCALE <= self.scale <= MAX_SCALE:
            raise createPoptorchError(
                f"the scale of 8-bit floats must be {MIN_SCALE} … {MAX_SCALE}, got {self.scale}"
            )

    @property
    def shape(self) -> torch.Size:
        return self.codes.shape

    @property
    def mT(self) -> "Float8Tensor":  # noqa: N802 - PyTorch's name
        """Its matrices transposed."""
        return Float8Tensor(self.codes.mT, self.format, self.scale)

    def to(self, dtype: torch.dtype) -> Tensor:
        """The numbers, as float16 or float32."""
        return _ops.from_float8(self.codes, _is_143(self.format), self.scale, dtype)


def cast(
    x: Tensor, format: torch.dtype = F143, scale: int = 0, *, saturates: bool = False
) -> Float8Tensor:
    """Numbers as 8-bit floats; those out of range are NaN, or clamped if it `saturates`."""
    codes = _ops.to_float8(x, _is_143(format), scale, saturates)
    return Float8Tensor(codes, format, scale)


def best_scale(x: Tensor, format: torch.dtype = F143) -> int:
    """The least scale at which no number of a tensor overflows."""
    largest = quarter_format(_is_143(format)).largest
    top = float(x.detach().abs().max()) if x.numel() else 0.0
    wanted = math.ceil(math.log2(top / largest)) if 0 < top < math.inf else 0
    return max(MIN_SCALE, min(MAX_SCALE, wanted))


def matmul(a: Float8Tensor, b: Float8Tensor) -> Tensor:
    """The product of matrices [m, k] and [k, n], or of as many as both have, in float16."""
    _check_pair("matmul", a, b)
    if a.codes.dim() < 2 or b.codes.dim() < 2 or a.shape[-1] != b.shape[-2]:
        raise createPoptorchError(
            f"matmul of 8-bit floats of shapes {list(a.shape)} and {list(b.shape)}: expected "
            "[…, m, k] and [k, n], or the same leading dimensions"
        )
    return _ops.float8_matmul(a.codes, b.codes, *_meanings(a, b))


def conv2d(
    x: Float8Tensor,
    weight: Float8Tensor,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution of images [b, channels, h, w], in float16."""
    _check_pair("conv2d", x, weight)
    sizes = [[v, v] if isinstance(v, int) else list(v) for v in (stride, padding, dilation)]
    return _ops.float8_convolution(x.codes, weight.codes, *_meanings(x, weight), *sizes, groups)


def _check_pair(what: str, a: object, b: object) -> None:
    for value in (a, b):
        if not isinstance(value, Float8Tensor):
            raise createPoptorchError(
                f"{what} of 8-bit floats got {type(value).__name__}: cast it with "
                "poptorch.float8.cast(x, format, scale)"
            )


def _meanings(a: Float8Tensor, b: Float8Tensor) -> tuple[list[bool], list[int]]:
    return [_is_143(a.format), _is_143(b.format)], [a.scale, b.scale]


# -- layers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Float8Formats:
    """How a layer casts: formats and scales of its input, weight and gradient.

    By default weights and activations have more mantissa, gradients more range, as is usual.
    """

    input: torch.dtype = F143
    weight: torch.dtype = F143
    gradient: torch.dtype = F152
    input_scale: int = 0
    weight_scale: int = 0
    gradient_scale: int = 0
    saturates: bool = True

    def of_input(self, x: Tensor) -> Float8Tensor:
        return cast(x, self.input, self.input_scale, saturates=self.saturates)

    def of_weight(self, weight: Tensor) -> Float8Tensor:
        return cast(weight, self.weight, self.weight_scale, saturates=self.saturates)

    def of_gradient(self, gradient: Tensor) -> Float8Tensor:
        return cast(gradient, self.gradient, self.gradient_scale, saturates=self.saturates)


class _Float8Product(torch.autograd.Function):
    """x · weightᵀ; all three products, forwards and backwards, are of 8-bit floats."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, formats: Float8Formats) -> Tensor:
        small_x, small_weight = formats.of_input(x), formats.of_weight(weight)
        ctx.save_for_backward(small_x.codes, small_weight.codes)
        ctx.formats, ctx.dtypes = formats, (x.dtype, weight.dtype)
        return matmul(small_x, small_weight.mT).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        formats, (x_codes, weight_codes) = ctx.formats, ctx.saved_tensors
        small = formats.of_gradient(gradients[0])
        of_x = matmul(small, Float8Tensor(weight_codes, formats.weight, formats.weight_scale))
        rows = Float8Tensor(small.codes.flatten(0, -2), small.format, small.scale)
        x = Float8Tensor(x_codes.flatten(0, -2), formats.input, formats.input_scale)
        of_weight = matmul(rows.mT, x)
        return of_x.to(ctx.dtypes[0]), of_weight.to(ctx.dtypes[1]), None


def linear(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, formats: Float8Formats | None = None
) -> Tensor:
    """torch.nn.functional.linear with operands, and gradients, cast to 8 bits."""
    result = _Float8Product.apply(x, weight, formats or Float8Formats())
    assert isinstance(result, Tensor), "one result"
    return result if bias is None else result + bias


class Linear(nn.Linear):
    """torch.nn.Linear whose products are of 8-bit floats; weights are stored in their own type."""

    def __init__(self, *args: Any, formats: Float8Formats | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.formats = formats or Float8Formats()

    def forward(self, input: Tensor) -> Tensor:
        return linear(input, self.weight, self.bias, self.formats)


class FrozenLinear(nn.Module):
    """A linear layer for inference whose weights are stored in 8 bits, at their best scale."""

    codes: Tensor

    def __init__(self, layer: nn.Linear, format: torch.dtype = F143, input_scale: int = 0) -> None:
        super().__init__()
        self.format, self.input_scale = format, input_scale
        self.weight_scale = best_scale(layer.weight, format)
        self.register_buffer("codes", cast(layer.weight, format, self.weight_scale).codes)
        self.bias = layer.bias

    def forward(self, input: Tensor) -> Tensor:
        x = cast(input, self.format, self.input_scale, saturates=True)
        weight = Float8Tensor(self.codes, self.format, self.weight_scale)
        result = matmul(x, weight.mT).to(input.dtype)
        return result if self.bias is None else result + self.bias


class Conv2d(nn.Conv2d):
    """torch.nn.Conv2d whose forward pass multiplies 8-bit floats; gradients are in its own type."""

    def __init__(self, *args: Any, formats: Float8Formats | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.formats = formats or Float8Formats()
        if self.padding_mode != "zeros" or isinstance(self.padding, str):
            raise createPoptorchError(
                f"a convolution of 8-bit floats pads with zeros, by numbers; got padding="
                f"{self.padding!r}, padding_mode={self.padding_mode!r}"
            )

    def forward(self, input: Tensor) -> Tensor:
        sizes = (self.stride, self.padding, self.dilation, self.groups)
        result = _Float8Convolution.apply(input, self.weight, self.formats, sizes)
        assert isinstance(result, Tensor), "one result"
        return result if self.bias is None else result + self.bias.reshape(1, -1, 1, 1)


class _Float8Convolution(torch.autograd.Function):
    """A convolution of 8-bit floats; gradients are those of the values that these represent."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, formats: Float8Formats, sizes: tuple
    ) -> Tensor:
        small_x, small_weight = formats.of_input(x), formats.of_weight(weight)
        ctx.save_for_backward(small_x.codes, small_weight.codes)
        ctx.formats, ctx.sizes, ctx.dtype = formats, sizes, x.dtype
        return conv2d(small_x, small_weight, *sizes).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        formats, (x_codes, weight_codes) = ctx.formats, ctx.saved_tensors
        x = Float8Tensor(x_codes, formats.input, formats.input_scale).to(ctx.dtype)
        weight = Float8Tensor(weight_codes, formats.weight, formats.weight_scale).to(ctx.dtype)
        stride, padding, dilation, groups = ctx.sizes
        of_x, of_weight, _ = torch.ops.aten.convolution_backward(
            gradients[0], x, weight, None, list(stride), list(padding), list(dilation), False,
            [0, 0], groups, [True, True, False],
        )  # fmt: skip
        return of_x, of_weight, None, None


__all__ = [
    "F143", "F152", "Conv2d", "Float8Formats", "Float8Tensor", "FrozenLinear", "Linear",
    "best_scale", "cast", "conv2d", "linear", "matmul",
]  # fmt: skip
