"""Which elements a pooling joins: windows along each dimension, forward and backward.

A pooling is described from where it writes (`dst`: outputs, or inputs for the gradient) and reads
(`src`). All field dimensions but the last are *rows*, the last one is *columns*.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.poplibs.registry import PoplibsError

Shape = tuple[int, ...]


class PoolingType(Enum):
    """How a window is joined into one value."""

    MAX = "MAX"
    AVG = "AVG"  # of real elements: padding does not count
    SUM = "SUM"


@dataclass(frozen=True, slots=True)
class PoolParams:
    """A pooling: one size, stride and padding per field dimension; negative padding truncates.

    Elements of a window are `dilation` apart.
    """

    kind: PoolingType | str
    kernel: Shape
    stride: Shape = ()  # 1 if not given
    padding_lower: Shape = ()  # 0 if not given
    padding_upper: Shape = ()
    dilation: Shape = ()  # 1 if not given

    def complete(self, field: Shape) -> "PoolParams":
        """With all defaults filled in, checked against the shape of a field."""
        n = len(field)
        full = PoolParams(
            as_pooling_type(self.kind), tuple(self.kernel), tuple(self.stride) or (1,) * n,
            tuple(self.padding_lower) or (0,) * n, tuple(self.padding_upper) or (0,) * n,
            tuple(self.dilation) or (1,) * n,
        )  # fmt: skip
        sizes = (full.kernel, full.stride, full.padding_lower, full.padding_upper, full.dilation)
        if n < 1 or any(len(s) != n for s in sizes):
            raise PoplibsError(
                f"pooling of a field {list(field)} got kernel {list(full.kernel)}, stride "
                f"{list(full.stride)}, padding {list(full.padding_lower)} and "
                f"{list(full.padding_upper)}.",
                source=user_source(),
                hint="give one number per field dimension: activations are [batch, channels, …]",
            )
        if min(full.kernel) < 1 or min(full.stride) < 1 or min(full.dilation) < 1:
            raise PoplibsError(
                f"pooling got kernel {list(full.kernel)}, stride {list(full.stride)} and dilation "
                f"{list(full.dilation)}.",
                source=user_source(),
                hint="use 1 or more",
            )
        full.check_windows(field)
        return full

    def check_windows(self, field: Shape) -> None:
        """Every window must contain an input."""
        out = self.out_field(field)
        for d, (n_in, n_out) in enumerate(zip(field, out, strict=True)):
            axis = self.axis(d, n_in, n_out, is_backward=False) if n_out > 0 else None
            if axis is None or (np.bincount(axis.pairs()[0], minlength=n_out) == 0).any():
                raise PoplibsError(
                    f"pooling of {n_in} elements with kernel {self.kernel[d]}, stride "
                    f"{self.stride[d]} and padding {self.padding_lower[d]}, "
                    f"{self.padding_upper[d]} has "
                    + ("no window." if axis is None else "a window of padding only."),
                    source=user_source(),
                    hint="use a smaller kernel or padding",
                )

    def out_field(self, field: Shape) -> Shape:
        """The shape of the pooled field."""
        padded = zip(field, self.padding_lower, self.padding_upper, strict=True)
        windows = zip(self.kernel, self.stride, self.dilation, strict=True)
        return tuple(
            (n + low + high - (k - 1) * apart - 1) // s + 1
            for (n, low, high), (k, s, apart) in zip(padded, windows, strict=True)
        )

    def axis(self, d: int, n_in: int, n_out: int, *, is_backward: bool) -> "Axis":
        """Dimension d of the pooling."""
        stride, lower = self.stride[d], self.padding_lower[d]
        taps = []
        for k in range(0, self.kernel[d] * self.dilation[d], self.dilation[d]):
            first = max(0, -((k - lower) // stride))  # the first output whose input exists
            last = min(n_out - 1, (n_in - 1 + lower - k) // stride)
            outs_ins = (first, first * stride + k - lower)
            if last >= first:
                taps.append((*(outs_ins[::-1] if is_backward else outs_ins), last - first + 1))
        if is_backward:
            return Axis(n_in, n_out, stride, 1, tuple(taps))
        return Axis(n_out, n_in, 1, stride, tuple(taps))


def as_pooling_type(kind: PoolingType | str) -> PoolingType:
    """A kind of pooling or its name."""
    if isinstance(kind, PoolingType):
        return kind
    if kind not in PoolingType.__members__:
        raise PoplibsError(
            f"there is no pooling {kind!r}.",
            source=user_source(),
            hint=suggest(str(kind), PoolingType.__members__),
        )
    return PoolingType[kind]


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: tap (dst, src, n) joins dst + j·dst_stride with src + j·src_stride, j < n."""

    n_dst: int
    n_src: int
    dst_stride: int
    src_stride: int
    taps: tuple[tuple[int, int, int], ...]

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Every (dst, src) that is joined, tap by tap."""
        dst = [d + np.arange(n) * self.dst_stride for d, _, n in self.taps]
        src = [s + np.arange(n) * self.src_stride for _, s, n in self.taps]
        none = [np.empty(0, np.int64)]
        return np.concatenate(none + dst), np.concatenate(none + src)

    @property
    def n_pairs(self) -> int:
        return sum(n for _, _, n in self.taps)

    def window_shares(self, is_backward: bool) -> np.ndarray:
        """float64: 1 / the number of inputs of each window; windows are outputs."""
        windows, n_windows = (1, self.n_src) if is_backward else (0, self.n_dst)
        return 1.0 / np.maximum(np.bincount(self.pairs()[windows], minlength=n_windows), 1)


def join_rows(batch: int, axes: list[Axis]) -> tuple[np.ndarray, np.ndarray]:
    """(dst row, src row) of all rows that are joined, by dst; rows count [batch, axes…]."""
    dst = src = np.arange(batch)
    for axis in axes:
        axis_dst, axis_src = axis.pairs()
        dst = (dst[:, None] * axis.n_dst + axis_dst).ravel()
        src = (src[:, None] * axis.n_src + axis_src).ravel()
    order = np.argsort(dst, kind="stable")
    return dst[order], src[order]


def row_shares(batch: int, axes: list[Axis], is_backward: bool) -> np.ndarray:
    """The product of the rows' window shares, for every row of windows."""
    shares = np.ones(1)
    for axis in axes:
        shares = np.outer(shares, axis.window_shares(is_backward)).ravel()
    return np.tile(shares, batch)
