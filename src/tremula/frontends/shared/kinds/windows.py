"""Kinds that move a window over the spatial dimensions: convolutions and pooling.

Pads are [begin of each dimension, end of each dimension]. `auto_pad` is NOTSET (the pads count),
VALID (no pads), SAME_UPPER or SAME_LOWER (as many windows as strides).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

_CONV = (functional.conv1d, functional.conv2d, functional.conv3d)
_CONV_TRANSPOSE = (
    functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d,
)  # fmt: skip
_AVERAGE_POOL = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)
_MAX_POOL = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)


@dataclass(frozen=True)
class Window:
    """How a window moves: None means steps of 1 and for no pads."""

    strides: Sequence[int] | None = None
    dilations: Sequence[int] | None = None
    pads: Sequence[int] | None = None
    auto_pad: str = "NOTSET"

    def steps(self, n_dims: int) -> tuple[list[int], list[int]]:
        """Strides and dilations of each dimension."""
        return list(self.strides or [1] * n_dims), list(self.dilations or [1] * n_dims)

    def pads_for(self, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
        if self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            strides, dilations = self.steps(len(kernel))
            return _same_pads(sizes, kernel, strides, dilations, self.auto_pad == "SAME_UPPER")
        if self.auto_pad == "VALID" or self.pads is None:
            return [0] * (2 * len(kernel))
        return list(self.pads)


def _same_pads(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    is_upper: bool,
) -> list[int]:
    totals = [
        max((-(-size // stride) - 1) * stride + dilation * (k - 1) + 1 - size, 0)
        for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    return _split_pads(totals, is_upper)


def _split_pads(totals: Sequence[int], is_upper: bool) -> list[int]:
    """Halves of each total; an odd element goes to the end if upper, else to the beginning."""
    less, more = [n // 2 for n in totals], [n - n // 2 for n in totals]
    return less + more if is_upper else more + less


def padded(t: Tensor, pads: Sequence[int], value: float = 0.0) -> Tensor:
    """Padded in its last dimensions; negative pads cut."""
    n = len(pads) // 2
    flat = [pads[axis + side] for axis in reversed(range(n)) for side in (0, n)]
    return functional.pad(t, flat, value=value) if any(flat) else t


def _symmetric(pads: Sequence[int]) -> list[int] | None:
    """Pads as PyTorch takes them, if both sides are alike."""
    half = len(pads) // 2
    is_even = list(pads[:half]) == list(pads[half:]) and min(pads, default=0) >= 0
    return list(pads[:half]) if is_even else None


# -- convolutions ----------------------------------------------------------------------------------


def conv(
    t: Tensor, weight: Tensor, bias: Tensor | None, window: Window, n_groups: int = 1
) -> Tensor:
    """A convolution of 1 to 3 dimensions."""
    n = t.dim() - 2
    strides, dilations = window.steps(n)
    pads = window.pads_for(t.shape[2:], weight.shape[2:])
    even = _symmetric(pads)
    if even is None:
        t, even = padded(t, pads), [0] * n
    return _CONV[n - 1](t, weight, bias, strides, even, dilations, n_groups)


def conv_transpose(
    t: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window,
    n_groups: int = 1,
    output_padding: Sequence[int] = (),
    output_shape: Sequence[int] = (),
) -> Tensor:
    """The transpose of a convolution: the whole of it, of which pads are cut at both ends."""
    n = t.dim() - 2
    strides, dilations = window.steps(n)
    more = list(output_padding) or [0] * n
    inner = None if any(more) else bias  # extra elements get the bias, too
    whole = _CONV_TRANSPOSE[n - 1](t, weight, inner, strides, [0] * n, [0] * n, n_groups, dilations)
    if output_shape or window.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = list(output_shape) or [s * k for s, k in zip(t.shape[2:], strides, strict=True)]
        sizes = [size + extra for size, extra in zip(whole.shape[2:], more, strict=True)]
        cut = [have - want for have, want in zip(sizes, wanted[-n:], strict=True)]
        pads = _split_pads(cut, window.auto_pad == "SAME_UPPER")
    else:
        pads = list(window.pads or [0] * (2 * n)) if window.auto_pad == "NOTSET" else [0] * (2 * n)
    ends = [pad - extra for pad, extra in zip(pads[n:], more, strict=True)]
    result = padded(whole, [-pad for pad in (*pads[:n], *ends)])
    if bias is not None and inner is None:
        result = result + bias.reshape(-1, *[1] * n)
    return result


# -- pooling ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PoolSizes:
    """A pooling's window over one tensor, in numbers by spatial dimension."""

    strides: list[int]
    dilations: list[int]
    pads: list[int]
    missing: list[int]  # elements that the last window lacks, if it is partial
    counts: list[int]  # of windows


def pool_sizes(
    sizes: Sequence[int], kernel: Sequence[int], window: Window, is_ceil: bool
) -> PoolSizes:
    """Sizes of a pooling; rounding up allows a last window that is not whole."""
    n = len(kernel)
    strides, dilations = window.steps(n)
    pads = window.pads_for(sizes, kernel)
    counts, missing = [], []
    for i in range(n):
        span = dilations[i] * (kernel[i] - 1) + 1
        room = sizes[i] + pads[i] + pads[i + n]
        count = (room - span) // strides[i] + 1
        if is_ceil and (room - span) % strides[i]:
            # A window that begins in the padding at the end does not count.
            count += count * strides[i] < sizes[i] + pads[i]
        counts.append(count)
        missing.append(max((count - 1) * strides[i] + span - room, 0))
    return PoolSizes(strides, dilations, pads, missing, counts)


def unfolded(t: Tensor, kernel: Sequence[int], sizes: PoolSizes) -> Tensor:
    """[…, window of each axis, index in the window of each axis]: a view where dilation is 1."""
    for i, k in enumerate(kernel):
        span = sizes.dilations[i] * (k - 1) + 1
        t = t.unfold(2 + i, span, sizes.strides[i]).narrow(2 + i, 0, sizes.counts[i])
        t = t[..., :: sizes.dilations[i]]
    return t


def average_pool(
    t: Tensor, kernel: Sequence[int], window: Window, *, is_ceil: bool, counts_pads: bool
) -> Tensor:
    """The mean of each window, with or without the elements that padding added."""
    n = len(kernel)
    sizes = pool_sizes(t.shape[2:], kernel, window, is_ceil)
    even = _symmetric(sizes.pads)
    is_plain = set(sizes.dilations) == {1} and not any(sizes.missing) and n <= 3
    if (
        is_plain
        and even is not None
        and all(p <= k // 2 for p, k in zip(even, kernel, strict=True))
    ):
        pool = _AVERAGE_POOL[n - 1]
        return pool(t, list(kernel), sizes.strides, even, False, counts_pads)
    ones = torch.ones((1, 1, *t.shape[2:]), dtype=t.dtype, device=t.device)
    ends = [0] * n + sizes.missing
    weights = padded(padded(ones, sizes.pads, 1.0 if counts_pads else 0.0), ends)
    total = padded(padded(t, sizes.pads), ends)
    inner = list(range(-n, 0))
    sums, counts = (unfolded(x, kernel, sizes).sum(inner) for x in (total, weights))
    return sums / counts


@dataclass(frozen=True)
class MaxPooled:
    """The largest elements, and where each is in the padded tensor, if requested."""

    values: Tensor
    indices: Tensor | None
    padded_shape: torch.Size
    offsets: list[int]  # of the tensor in the padded one


def max_pool(
    t: Tensor, kernel: Sequence[int], window: Window, *, is_ceil: bool, with_indices: bool = False
) -> MaxPooled:
    """The largest element of each window."""
    n = len(kernel)
    sizes = pool_sizes(t.shape[2:], kernel, window, is_ceil)
    even = _symmetric(sizes.pads)
    fits = even is not None and all(2 * p <= k for p, k in zip(even, kernel, strict=True))
    wide, offsets = t if t.is_floating_point() else t.to(torch.float32), [0] * n
    if even is None or not fits or any(sizes.missing):
        ends = [p + q for p, q in zip(sizes.pads[n:], sizes.missing, strict=True)]
        offsets, even = sizes.pads[:n], [0] * n
        wide = padded(wide, offsets + ends, _least(t.dtype))
    arguments = (list(kernel), sizes.strides, even, sizes.dilations, False)
    if with_indices:
        values, indices = _MAX_POOL[n - 1](wide, *arguments, True)
    else:
        values, indices = _MAX_POOL[n - 1](wide, *arguments), None
    return MaxPooled(values.to(t.dtype), indices, wide.shape, offsets)


def _least(dtype: torch.dtype) -> float:
    return -torch.inf if dtype.is_floating_point else float(torch.iinfo(dtype).min)
