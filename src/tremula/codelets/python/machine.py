"""What the matrix unit does, as functions codelets call; kernels use a native twin of each.

The twins may fuse each multiplication with its addition; they add in the same order.
"""

# Types of fields are known when a kernel is generated; the matrix unit has many operands.
# ruff: noqa: ANN401, PLR0913, PLR0917
from typing import Any

from tremula.base.types import float32


def multiply_accumulate(
    out: Any,
    out_at: int,
    out_stride: int,
    left: Any,
    left_at: int,
    left_stride: int,
    left_step: int,
    right: Any,
    right_at: int,
    right_stride: int,
    n_rows: int,
    n_inner: int,
    n_cols: int,
) -> None:
    """out[i, j] += sum over k of left[i, k] * right[k, j], accumulated in float32.

    Row i of out starts at out_at + i * out_stride, row k of right at right_at + k * right_stride;
    left[i, k] is at left_at + i * left_stride + k * left_step.
    """
    for i in range(n_rows):
        for j in range(n_cols):
            total = float32(out[out_at + i * out_stride + j])
            for k in range(n_inner):
                a = left[left_at + i * left_stride + k * left_step]
                b = right[right_at + k * right_stride + j]
                total += float32(a) * float32(b)  # pyright: ignore[reportOperatorIssue]
            out[out_at + i * out_stride + j] = total


def multiply_blocks(
    out: Any,
    out_at: int,
    out_stride: int,
    left: Any,
    left_at: int,
    left_stride: int,
    right: Any,
    right_stride: int,
    offsets: Any,
    begin: int,
    end: int,
    n_rows: int,
    n_inner: int,
    n_cols: int,
) -> None:
    """out[i, j] = sum over blocks p and k of left[p][i, k] * right[p][k, j], in float32.

    Blocks begin … end of `right` follow each other, n_inner rows of right_stride each; that of left
    for block p starts at left_at + offsets[p], and its rows are left_stride apart.
    """
    for i in range(n_rows):
        for j in range(n_cols):
            total = float32(0)
            for p in range(begin, end):
                for k in range(n_inner):
                    a = left[left_at + offsets[p] + i * left_stride + k]
                    b = right[(p * n_inner + k) * right_stride + j]
                    total += float32(a) * float32(b)  # pyright: ignore[reportOperatorIssue]
            out[out_at + i * out_stride + j] = total


def sum_scaled_rows(
    out: Any,
    out_at: int,
    rows: Any,
    row_at: int,
    scales: Any,
    offsets: Any,
    begin: int,
    end: int,
    n_cols: int,
) -> None:
    """out[j] = sum over p in begin … end of scales[p] * rows[offsets[p] + j], in float32."""
    for j in range(n_cols):
        total = float32(0)
        for p in range(begin, end):
            a, b = scales[p], rows[row_at + offsets[p] + j]
            total += float32(a) * float32(b)  # pyright: ignore[reportOperatorIssue]
        out[out_at + j] = total


# Functions with a native twin of the same name, and its module in native/.
FUNCTIONS = {multiply_accumulate: "matrix", multiply_blocks: "sparse", sum_scaled_rows: "sparse"}
