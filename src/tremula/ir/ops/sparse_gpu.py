"""Products of fixed sparsity on a GPU: a Triton kernel for blocks, ATen for the rest."""

import importlib.util
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LEAST_SIDE = 16  # rows that tensor cores multiply at once
_AT_ONCE = 4  # blocks of a row whose products are one


def block_product(values: Tensor, row_start: Tensor, columns: Tensor, dense: Tensor) -> Tensor:
    """[m, n]: blocks [blocks, side, side] by dense [k, n]; rows of blocks are in order."""
    side, n = values.shape[-1], dense.shape[1]
    n_rows = len(row_start) - 1
    if side < _LEAST_SIDE or importlib.util.find_spec("triton") is None:
        return _gathered_product(values, row_start, columns, dense)
    out = dense.new_empty(n_rows * side, n)
    dense = dense.contiguous()
    width = 128 if n >= 128 else max(16, 1 << (n - 1).bit_length())
    exact = dense.dtype is torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    _kernel()[(n_rows, -(-n // width))](
        values.contiguous(), row_start, columns, dense, out, n,
        SIDE=side, WIDTH=width, AT_ONCE=_AT_ONCE, PRECISION="ieee" if exact else "tf32",
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out


def _gathered_product(values: Tensor, row_start: Tensor, columns: Tensor, dense: Tensor) -> Tensor:
    """Dense rows gathered for every block, multiplied, added up: three times the memory traffic."""
    side, n = values.shape[-1], dense.shape[1]
    n_rows = len(row_start) - 1
    rows = torch.repeat_interleave(
        torch.arange(n_rows, device=dense.device), row_start.diff(), output_size=len(columns)
    )
    products = torch.bmm(values, dense.view(-1, side, n)[columns.long()])
    out = dense.new_zeros(n_rows, side, n, dtype=torch.float32)
    return out.index_add_(0, rows, products.float()).to(dense.dtype).view(-1, n)


def sampled_product(
    gradient: Tensor, dense: Tensor, rows: Tensor, columns: Tensor, side: int
) -> Tensor:
    """[blocks, side, side]: rows of gradient [m, n] by rows of dense [k, n], at a pattern."""
    n = dense.shape[1]
    left = gradient.reshape(-1, side, n)[rows.long()]
    right = dense.reshape(-1, side, n)[columns.long()]
    return torch.bmm(left, right.mT)


# ruff: noqa: ANN001, ANN202, N803, PLR0913, PLR0917 - Triton's language: annotations are constants, in capitals
@cache
def _kernel() -> Any:  # noqa: ANN401
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]

    @triton.jit
    def kernel(
        values, row_start, columns, dense, out, n,
        SIDE: tl.constexpr, WIDTH: tl.constexpr, AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0)
        begin = tl.load(row_start + row)
        end = tl.load(row_start + row + 1)
        lines = tl.arange(0, SIDE)
        inner = tl.arange(0, AT_ONCE * SIDE)
        own_block, own_line = inner // SIDE, inner % SIDE
        strip = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        sums = tl.zeros([SIDE, WIDTH], dtype=tl.float32)
        for first in range(begin, end, AT_ONCE):
            block = first + own_block
            is_there = block < end
            column = tl.load(columns + block, mask=is_there, other=0)
            places = block[None, :] * (SIDE * SIDE) + lines[:, None] * SIDE + own_line[None, :]
            left = tl.load(values + places, mask=is_there[None, :], other=0.0)
            at = (column * SIDE + own_line)[:, None].to(tl.int64) * n + strip[None, :]
            is_in = is_there[:, None] & (strip[None, :] < n)
            right = tl.load(dense + at, mask=is_in, other=0.0)
            sums += tl.dot(left, right, input_precision=PRECISION)
        to = (row * SIDE + lines)[:, None].to(tl.int64) * n + strip[None, :]
        tl.store(out + to, sums.to(out.dtype.element_ty), mask=strip[None, :] < n)

    return kernel
