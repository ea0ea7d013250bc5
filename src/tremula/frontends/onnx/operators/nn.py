"""Convolutions, pooling and what stands between layers."""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import Context
from tremula.frontends.onnx.operators.pads import padded, window_pads
from tremula.frontends.onnx.table import operator

_CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CONV_TRANSPOSE = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def _symmetric(pads: list[int]) -> list[int] | None:
    """Pads as PyTorch takes them, if both sides are alike."""
    half = len(pads) // 2
    return pads[:half] if pads[:half] == pads[half:] and min(pads, default=0) >= 0 else None


def with_pads(x: Tensor, pads: list[int], value: float = 0) -> Tensor:
    """Padded in its spatial axes."""
    half = len(pads) // 2
    lead = [0] * (x.dim() - half)
    return padded(x, [*lead, *pads[:half], *lead, *pads[half:]], "constant", value)


@operator("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """A convolution of 1 to 3 dimensions."""
    n = x.dim() - 2
    kernel = kernel_shape or list(weight.shape[2:])
    strides, dilations = strides or [1] * n, dilations or [1] * n
    pads = window_pads(auto_pad, pads, list(x.shape[2:]), kernel, strides, dilations)
    even = _symmetric(pads)
    if even is None:
        x, even = with_pads(x, pads), [0] * n
    return _CONV[n](x, weight, bias, strides, even, dilations, group)


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The gradient of a convolution, as a layer."""
    n = x.dim() - 2
    kernel = kernel_shape or list(weight.shape[2:])
    strides, dilations = strides or [1] * n, dilations or [1] * n
    more = output_padding or [0] * n
    full = [
        (size - 1) * stride + dilation * (k - 1) + 1 + extra
        for size, stride, dilation, k, extra in zip(
            x.shape[2:], strides, dilations, kernel, more, strict=True
        )
    ]
    if output_shape or auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = output_shape or [s * t for s, t in zip(x.shape[2:], strides, strict=True)]
        pads = _transposed_pads(full, wanted[-n:], upper=auto_pad == "SAME_UPPER")
    result = _CONV_TRANSPOSE[n](x, weight, bias, strides, [0] * n, [0] * n, group, dilations)
    pads = pads or [0] * (2 * n)
    ends = [p - e for p, e in zip(pads[n:], more, strict=True)]
    return with_pads(result, [-p for p in (*pads[:n], *ends)])


def _transposed_pads(full: list[int], wanted: list[int], *, upper: bool) -> list[int]:
    begins, ends = [], []
    for have, want in zip(full, wanted, strict=True):
        total = have - want
        less = total // 2
        begins.append(less if upper else total - less)
        ends.append(total - less if upper else less)
    return begins + ends


def _pool_sizes(
    x: Tensor,
    kernel: list[int],
    strides: list[int] | None,
    dilations: list[int] | None,
    pads: list[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Strides, dilations, pads of the data, pads of partial windows, number of windows."""
    n = len(kernel)
    strides, dilations = strides or [1] * n, dilations or [1] * n
    sizes = list(x.shape[2:])
    pads = window_pads(auto_pad, pads, sizes, kernel, strides, dilations)
    counts, partial = [], []
    for i in range(n):
        span = dilations[i] * (kernel[i] - 1) + 1
        room = sizes[i] + pads[i] + pads[i + n]
        count = (room - span) // strides[i] + 1
        if ceil_mode and (room - span) % strides[i]:
            # A window that begins in the padding at the end is none.
            count += count * strides[i] < sizes[i] + pads[i]
        counts.append(count)
        partial.append(max((count - 1) * strides[i] + span - room, 0))
    return strides, dilations, pads, partial, counts


def windows(
    x: Tensor, kernel: list[int], strides: list[int], dilations: list[int], counts: list[int]
) -> Tensor:
    """[…, window of each axis, place in the window of each axis]: a view where dilation is 1."""
    n = len(kernel)
    for i in range(n):
        span = dilations[i] * (kernel[i] - 1) + 1
        x = x.unfold(2 + i, span, strides[i]).narrow(2 + i, 0, counts[i])
        x = x[..., :: dilations[i]]
    return x


@operator("AveragePool")
def average_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The mean of each window; padding counts if the node says so."""
    n = len(kernel_shape)
    steps, spread, sizes, partial, counts = _pool_sizes(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    if set(spread) == {1} and not any(partial) and _symmetric(sizes) is not None and n <= 3:
        pool = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[n - 1]
        half = [k // 2 for k in kernel_shape]
        if all(p <= h for p, h in zip(sizes[:n], half, strict=True)):
            kernel, even = kernel_shape, sizes[:n]
            return pool(x, kernel, steps, even, False, bool(count_include_pad))
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=x.dtype, device=x.device)
    weights = with_pads(ones, sizes, value=1 if count_include_pad else 0)
    total = with_pads(with_pads(x, sizes), [0] * n + partial)
    weights = with_pads(weights, [0] * n + partial)
    inner = list(range(-n, 0))
    view = [windows(t, kernel_shape, steps, spread, counts) for t in (total, weights)]
    return view[0].sum(inner) / view[1].sum(inner)


@operator("MaxPool")
def max_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    context: Context,
) -> tuple[Tensor, ...]:
    """The largest of each window, and where it was."""
    n = len(kernel_shape)
    steps, spread, sizes, partial, _counts = _pool_sizes(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    least = _least(x.dtype)
    even = _symmetric(sizes)
    fits = even is not None and all(2 * p <= k for p, k in zip(even, kernel_shape, strict=True))
    wide = x if x.is_floating_point() else x.to(torch.float32)
    if any(partial) or not fits:
        ends = [p + q for p, q in zip(sizes[n:], partial, strict=True)]
        wide, even = with_pads(wide, sizes[:n] + ends, least), [0] * n
        offsets = sizes[:n]
    else:
        offsets = [0] * n
    assert even is not None, "padded by hand if not"
    if not context.wants(1):
        pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
        return (pool(wide, kernel_shape, steps, even, spread).to(x.dtype),)
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[n - 1]
    result, places = pool(wide, kernel_shape, steps, even, spread, False, True)
    return result.to(x.dtype), _flat_places(places, wide, x, offsets, storage_order)


def _least(dtype: torch.dtype) -> float:
    return -torch.inf if dtype.is_floating_point else float(torch.iinfo(dtype).min)


def _flat_places(
    places: Tensor, wide: Tensor, x: Tensor, offsets: list[int], storage_order: int
) -> Tensor:
    """Places in a channel of the padded tensor as places in the whole tensor."""
    sizes, inner = list(x.shape[2:]), places
    coordinates = []
    for size, offset in zip(reversed(wide.shape[2:]), reversed(offsets), strict=True):
        coordinates.append(inner % size - offset)
        inner = inner // size
    coordinates.reverse()
    order = range(len(sizes)) if not storage_order else reversed(range(len(sizes)))
    flat = torch.zeros_like(places)
    for axis in order:
        flat = flat * sizes[axis] + coordinates[axis]
    n_pixels = 1
    for size in sizes:
        n_pixels *= size
    channels = torch.arange(x.shape[0] * x.shape[1], device=x.device) * n_pixels
    return flat + channels.reshape(x.shape[0], x.shape[1], *[1] * len(sizes))


@operator("LpPool", until=1)
def lp_pool_1(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    kernel_shape: list[int],
    p: float = 2.0,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The p-norm of each window."""
    return lp_pool(
        x, auto_pad=auto_pad, kernel_shape=kernel_shape, p=int(p), pads=pads, strides=strides
    )


@operator("LpPool", since=2)
def lp_pool(
    x: Tensor,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    kernel_shape: list[int],
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """The p-norm of each window."""
    n = len(kernel_shape)
    steps, spread, sizes, partial, counts = _pool_sizes(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    ends = [a + b for a, b in zip(sizes[n:], partial, strict=True)]
    view = windows(with_pads(x, sizes[:n] + ends), kernel_shape, steps, spread, counts)
    return view.abs().pow(p).sum(list(range(-n, 0))).pow(1 / p)


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    """The mean of each channel."""
    return x.mean(list(range(2, x.dim())), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    """The largest of each channel."""
    return x.amax(list(range(2, x.dim())), keepdim=True)


@operator("GlobalLpPool", until=1)
def global_lp_pool_1(x: Tensor, *, p: float = 2.0) -> Tensor:
    """The p-norm of each channel."""
    return global_lp_pool(x, p=int(p))


@operator("GlobalLpPool", since=2)
def global_lp_pool(x: Tensor, *, p: int = 2) -> Tensor:
    """The p-norm of each channel."""
    return x.abs().pow(p).sum(list(range(2, x.dim())), keepdim=True).pow(1 / p)


@operator("MaxUnpool", since=9, static=("output_shape",))
def max_unpool(
    x: Tensor,
    places: Tensor,
    output_shape: Tensor | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Each element at the place where a MaxPool found it; elsewhere 0."""
    n = len(kernel_shape)
    strides, pads = strides or [1] * n, pads or [0] * (2 * n)
    inferred = [
        (x.shape[2 + i] - 1) * strides[i] + kernel_shape[i] - pads[i] - pads[i + n]
        for i in range(n)
    ]
    shape = [*x.shape[:2], *inferred]
    if output_shape is not None:
        return _unpooled_larger(x, places, shape, output_shape.tolist())
    zeros = torch.zeros(_n(shape), dtype=x.dtype, device=x.device)
    return zeros.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(shape)


def _unpooled_larger(x: Tensor, places: Tensor, small: list[int], shape: list[int]) -> Tensor:
    """Into a shape larger than a pooling without padding had: places count in the smaller one."""
    zeros = torch.zeros(_n(small), dtype=x.dtype, device=x.device)
    result = zeros.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(small)
    pads = [0] * len(shape) + [want - have for want, have in zip(shape, small, strict=True)]
    return padded(result, pads, "constant", 0)


def _n(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@operator("Dropout", until=11)
def dropout_before_12(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 0, context: Context
) -> tuple[Tensor, ...]:
    """Identity: models of these versions are run, not trained, by the operator itself."""
    del ratio, is_test
    kind = x.dtype if context.version < 10 else torch.bool
    return x, torch.ones_like(x, dtype=kind)


@operator("Dropout", since=12, static=("ratio", "training"), folds=False)
def dropout(
    x: Tensor,
    ratio: Tensor | None = None,
    training: Tensor | None = None,
    *,
    seed: int | None = None,  # noqa: ARG001 - random numbers are the device's
) -> tuple[Tensor, Tensor]:
    """Zeros with a probability, in training; and the mask of what stays."""
    share = 0.5 if ratio is None else float(ratio)
    if training is None or not bool(training) or share == 0:
        return x, torch.ones_like(x, dtype=torch.bool)
    mask = torch.rand_like(x) >= share
    return torch.where(mask, x / (1 - share), torch.zeros_like(x)), mask
