"""Products of fixed sparsity on a GPU: a Triton kernel for blocks, ATen for the rest."""

import importlib.util
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tremula.ir.cuda_capture import capturing, milliseconds_of_replay

_LEAST_SIDE = 16  # rows that tensor cores multiply at once


@dataclass(frozen=True)
class Blocks:
    """A sparse operand: blocks [blocks, side, side], those of a row one behind the other."""

    values: Tensor
    row_start: Tensor
    columns: Tensor


@dataclass(frozen=True)
class SparseCut:
    """How the kernel is cut: columns of a program, blocks multiplied at once, warps, stages."""

    width: int
    at_once: int
    n_warps: int
    n_stages: int  # every second is for the columns, which say what rows to load


# The first is taken where nothing can be timed. Few warps leave room for many programs, which hide
# each other's waits; narrow ones have all blocks of a row on their way at once, for few columns.
_LAUNCHES = (
    SparseCut(128, 4, 4, 2), SparseCut(128, 2, 2, 2), SparseCut(256, 2, 2, 2),
    SparseCut(256, 2, 4, 2), SparseCut(128, 4, 2, 3), SparseCut(256, 4, 8, 3),
    SparseCut(64, 4, 2, 5), SparseCut(64, 4, 2, 3), SparseCut(64, 2, 2, 5),
    SparseCut(64, 8, 4, 2), SparseCut(64, 4, 1, 3), SparseCut(32, 4, 1, 5),
)  # fmt: skip
_N_TIMED = 20
_N_REPLAYS = 3
_chosen: dict[tuple, SparseCut] = {}


def block_product(sparse: Blocks, dense: Tensor) -> Tensor:
    """[m, n]: a sparse operand by dense [k, n]."""
    values = sparse.values
    if values.shape[-1] < _LEAST_SIDE or importlib.util.find_spec("triton") is None:
        return _gathered_product(values, sparse.row_start, sparse.columns, dense)
    sparse = Blocks(values.contiguous(), sparse.row_start, sparse.columns)
    dense = dense.contiguous()
    key = (values.shape, dense.shape, dense.dtype, dense.device)
    if key not in _chosen and dense.is_cuda and not torch.cuda.is_current_stream_capturing():
        fitting = [one for one in _LAUNCHES if _fits(one, sparse, dense)] or [_LAUNCHES[0]]
        _chosen[key] = min(fitting, key=lambda launch: _milliseconds(sparse, dense, launch))
    return _launched(sparse, dense, _chosen.get(key, _LAUNCHES[0]))


def _launched(blocks: Blocks, dense: Tensor, launch: SparseCut) -> Tensor:
    side, n, n_rows = blocks.values.shape[-1], dense.shape[1], len(blocks.row_start) - 1
    out = dense.new_empty(n_rows * side, n)
    width = min(launch.width, max(16, 1 << (n - 1).bit_length()))
    exact = dense.dtype is torch.float32 and not torch.backends.cuda.matmul.allow_tf32
    is_large = max(dense.numel(), out.numel(), blocks.values.numel()) >= 2**31
    _kernel()[(n_rows, -(-n // width))](
        blocks.values, blocks.row_start, blocks.columns, dense, out, n,
        SIDE=side, WIDTH=width, AT_ONCE=launch.at_once, PRECISION="ieee" if exact else "tf32",
        IS_LARGE=is_large, IS_EVEN=n % width == 0,
        num_warps=launch.n_warps, num_stages=launch.n_stages,
    )  # fmt: skip
    return out


def _fits(launch: SparseCut, blocks: Blocks, dense: Tensor) -> bool:
    """Whether its buffers of both operands fit the shared memory of a multiprocessor."""
    side = blocks.values.shape[-1]
    properties = torch.cuda.get_device_properties(dense.device)
    limit = properties.shared_memory_per_block_optin  # pyright: ignore[reportAttributeAccessIssue]
    n_elems = launch.n_stages * launch.at_once * side * (launch.width + side)
    return n_elems * dense.element_size() <= limit


def _milliseconds(blocks: Blocks, dense: Tensor, launch: SparseCut) -> float:
    """What a launch takes on the GPU: in a CUDA graph, since calls from here are slower than it."""
    from triton.runtime.errors import (  # pyright: ignore[reportMissingImports]
        OutOfResources,
    )

    try:
        _launched(blocks, dense, launch)  # compiles it
    except OutOfResources:  # the compiler needs more than the operands
        return float("inf")
    torch.cuda.synchronize(dense.device)
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        for _ in range(_N_TIMED):
            _launched(blocks, dense, launch)
    return min(milliseconds_of_replay(graph) for _ in range(_N_REPLAYS)) / _N_TIMED


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
    """A program has a row of blocks, and some columns."""
    import triton  # pyright: ignore[reportMissingImports]
    import triton.language as tl  # pyright: ignore[reportMissingImports]

    @triton.jit
    def kernel(
        values, row_start, columns, dense, out, n,
        SIDE: tl.constexpr, WIDTH: tl.constexpr, AT_ONCE: tl.constexpr, PRECISION: tl.constexpr,
        IS_LARGE: tl.constexpr, IS_EVEN: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0)
        begin = tl.load(row_start + row)
        end = tl.load(row_start + row + 1)
        lines = tl.arange(0, SIDE)
        inner = tl.arange(0, AT_ONCE * SIDE)
        own_block, own_line = inner // SIDE, inner % SIDE
        strip = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
        if IS_LARGE:
            row, own_block = row.to(tl.int64), own_block.to(tl.int64)
        sums = tl.zeros([SIDE, WIDTH], dtype=tl.float32)
        for first in range(begin, end, AT_ONCE):
            block = first + own_block
            is_there = block < end
            column = tl.load(columns + block, mask=is_there, other=0)
            if IS_LARGE:
                column = column.to(tl.int64)
            places = block[None, :] * (SIDE * SIDE) + lines[:, None] * SIDE + own_line[None, :]
            left = tl.load(values + places, mask=is_there[None, :], other=0.0)
            at = (column * SIDE + own_line)[:, None] * n + strip[None, :]
            is_in = is_there[:, None] if IS_EVEN else is_there[:, None] & (strip[None, :] < n)
            right = tl.load(dense + at, mask=is_in, other=0.0)
            sums += tl.dot(left, right, input_precision=PRECISION)
        to = (row * SIDE + lines)[:, None] * n + strip[None, :]
        tl.store(out + to, sums.to(out.dtype.element_ty), mask=strip[None, :] < n)

    return kernel
