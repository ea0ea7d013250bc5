"""What the matrix unit does, as functions codelets call; kernels use a native twin of each."""

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
    left[i, k] is at left_at + i * left_stride + k * left_step. The native twin may fuse each
    multiplication with its addition; both add in the order of k.
    """
    for i in range(n_rows):
        for j in range(n_cols):
            total = float32(out[out_at + i * out_stride + j])
            for k in range(n_inner):
                a = left[left_at + i * left_stride + k * left_step]
                b = right[right_at + k * right_stride + j]
                total += float32(a) * float32(b)  # pyright: ignore[reportOperatorIssue]
            out[out_at + i * out_stride + j] = total
