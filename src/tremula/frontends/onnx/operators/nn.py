"""Convolutions, pooling and dropout."""

import torch
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext
from tremula.frontends.onnx.table import operator
from tremula.frontends.shared.kinds import windows
from tremula.frontends.shared.kinds.windows import MaxPooled, Window


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
    del kernel_shape  # of the weight
    window = Window(strides, dilations, pads, auto_pad)
    return windows.conv(x, weight, bias, window, group)


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
    del kernel_shape  # of the weight
    window = Window(strides, dilations, pads, auto_pad)
    extra, shape = output_padding or (), output_shape or ()
    return windows.conv_transpose(x, weight, bias, window, group, extra, shape)


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
    window = Window(strides, dilations, pads, auto_pad)
    return windows.average_pool(
        x,
        kernel_shape,
        window,
        is_ceil=bool(ceil_mode),
        counts_pads=bool(count_include_pad),
    )


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
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """The largest of each window, and where it was."""
    window = Window(strides, dilations, pads, auto_pad)
    result = windows.max_pool(
        x, kernel_shape, window, is_ceil=bool(ceil_mode), with_indices=context.wants(1)
    )
    if result.indices is None:
        return (result.values,)
    return result.values, _flat_indices(result, result.indices, x, storage_order)


def _flat_indices(result: MaxPooled, indices: Tensor, x: Tensor, storage_order: int) -> Tensor:
    """Indices in a channel of the padded tensor as indices in the whole tensor."""
    sizes, inner = list(x.shape[2:]), indices
    coordinates = []
    for size, offset in zip(
        reversed(result.padded_shape[2:]), reversed(result.offsets), strict=True
    ):
        coordinates.append(inner % size - offset)
        inner = inner // size
    coordinates.reverse()
    order = range(len(sizes)) if not storage_order else reversed(range(len(sizes)))
    flat = torch.zeros_like(indices)
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
    window = Window(strides, dilations, pads, auto_pad)
    sizes = windows.pool_sizes(x.shape[2:], kernel_shape, window, bool(ceil_mode))
    ends = [a + b for a, b in zip(sizes.pads[n:], sizes.missing, strict=True)]
    view = windows.unfolded(windows.padded(x, sizes.pads[:n] + ends), kernel_shape, sizes)
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
    """Each element at the index that a MaxPool gave; elsewhere 0."""
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
    return windows.padded(result, pads)


def _n(shape: list[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


@operator("Dropout", until=11)
def dropout_before_12(
    x: Tensor, *, ratio: float = 0.5, is_test: int = 0, context: NodeContext
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
