"""8-bit floats and 4-bit weights as operations of PyTorch: casts, products, decompression.

Codes of 8-bit floats are tensors of uint8; format and scale are arguments. base/floats.py describes
the formats. On the host a product multiplies the numbers in float32 and rounds once to half.
"""

from functools import cache

import numpy as np
import torch
from torch import Tensor

from tremula.base.floats import QuarterFormat, quarter_to_float32

_library = torch.library.Library("tremula", "FRAGMENT")
_library.define("to_float8(Tensor x, bool is_143, int scale, bool saturates) -> Tensor")
_library.define("from_float8(Tensor codes, bool is_143, int scale, ScalarType dtype) -> Tensor")
_library.define("float8_matmul(Tensor a, Tensor b, bool[] are_143, int[] scales) -> Tensor")
_library.define(
    "float8_matmul_scaled(Tensor a, Tensor b, Tensor log2_scale, bool[] are_143) -> Tensor"
)
_library.define(
    "float8_convolution(Tensor x, Tensor weight, bool[] are_143, int[] scales, int[] stride,"
    " int[] padding, int[] dilation, int groups) -> Tensor"
)
_library.define("group_decompressed(Tensor packed, Tensor scale, Tensor bias) -> Tensor")

_TORCH_FORMATS = {True: torch.float8_e4m3fnuz, False: torch.float8_e5m2fnuz}
N_LEVELS = 16  # of a 4-bit code


def quarter_format(is_143: bool) -> QuarterFormat:
    return QuarterFormat.F143 if is_143 else QuarterFormat.F152


# -- 8-bit floats ----------------------------------------------------------------------------------


def _to_float8(x: Tensor, is_143: bool, scale: int, saturates: bool) -> Tensor:
    numbers = x.detach().float() * 2.0**-scale
    if saturates:
        largest = quarter_format(is_143).largest
        numbers = numbers.clamp(-largest, largest)
    return numbers.to(_TORCH_FORMATS[is_143]).view(torch.uint8)


@cache
def _table(is_143: bool, scale: int, device: torch.device) -> Tensor:
    numbers = quarter_to_float32(np.arange(256), quarter_format(is_143), scale)
    return torch.tensor(numbers.tolist(), device=device)


def _decoded(codes: Tensor, is_143: bool, scale: int) -> Tensor:
    table = _table(is_143, scale, codes.device)
    return torch.index_select(table, 0, codes.reshape(-1).int()).reshape(codes.shape)


def _from_float8(codes: Tensor, is_143: bool, scale: int, dtype: torch.dtype) -> Tensor:
    return _decoded(codes, is_143, scale).to(dtype)


def _operands(a: Tensor, b: Tensor, are_143: list[bool], scales: list[int]) -> tuple:
    return tuple(_decoded(*each) for each in zip((a, b), are_143, scales, strict=True))


def _matmul(a: Tensor, b: Tensor, are_143: list[bool], scales: list[int]) -> Tensor:
    first, second = _operands(a, b, are_143, scales)
    return (first @ second).half()


def _matmul_scaled(a: Tensor, b: Tensor, log2_scale: Tensor, are_143: list[bool]) -> Tensor:
    """A product whose scale is computed, too."""
    first, second = _operands(a, b, are_143, [0, 0])
    return (first @ second * torch.pow(2.0, log2_scale.float())).half()


def _convolution(  # noqa: PLR0917 - the operation's signature
    x: Tensor, weight: Tensor, are_143: list[bool], scales: list[int], stride: list[int],
    padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    first, second = _operands(x, weight, are_143, scales)
    return torch.convolution(
        first, second, None, stride, padding, dilation, False, [0] * len(stride), groups
    ).half()


# -- 4-bit weights ---------------------------------------------------------------------------------


def _group_decompressed(packed: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """[rows, columns]: codes · scale + bias; the even column is the low half of a byte."""
    n_rows, n_bytes = packed.shape
    codes = torch.stack([packed % N_LEVELS, packed // N_LEVELS], dim=-1)
    groups = codes.reshape(n_rows, scale.shape[1], -1).to(scale.dtype)
    result = groups * scale.unsqueeze(-1) + bias.unsqueeze(-1)
    return result.reshape(n_rows, 2 * n_bytes)


for _device in ("CPU", "CUDA"):
    _library.impl("to_float8", _to_float8, _device)
    _library.impl("from_float8", _from_float8, _device)
    _library.impl("float8_matmul", _matmul, _device)
    _library.impl("float8_matmul_scaled", _matmul_scaled, _device)
    _library.impl("float8_convolution", _convolution, _device)
    _library.impl("group_decompressed", _group_decompressed, _device)


@torch.library.register_fake("tremula::to_float8", lib=_library)
def _fake_to(x: Tensor, is_143: bool, scale: int, saturates: bool) -> Tensor:  # noqa: ARG001
    return x.new_empty(x.shape, dtype=torch.uint8)


@torch.library.register_fake("tremula::from_float8", lib=_library)
def _fake_from(codes: Tensor, is_143: bool, scale: int, dtype: torch.dtype) -> Tensor:  # noqa: ARG001
    return codes.new_empty(codes.shape, dtype=dtype)


@torch.library.register_fake("tremula::float8_matmul", lib=_library)
@torch.library.register_fake("tremula::float8_matmul_scaled", lib=_library)
def _fake_matmul(a: Tensor, b: Tensor, *_formats_and_scales: object) -> Tensor:
    return a.new_empty((*a.shape[:-1], b.shape[-1]), dtype=torch.float16)


@torch.library.register_fake("tremula::float8_convolution", lib=_library)
def _fake_convolution(  # noqa: PLR0917 - the operation's signature
    x: Tensor, weight: Tensor, are_143: list[bool], scales: list[int], stride: list[int],  # noqa: ARG001
    padding: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    first, second = (t.new_empty(t.shape, dtype=torch.float16) for t in (x, weight))
    return torch.convolution(
        first, second, None, stride, padding, dilation, False, [0] * len(stride), groups
    )


@torch.library.register_fake("tremula::group_decompressed", lib=_library)
def _fake_decompressed(packed: Tensor, scale: Tensor, bias: Tensor) -> Tensor:  # noqa: ARG001
    return scale.new_empty((packed.shape[0], 2 * packed.shape[1]))
