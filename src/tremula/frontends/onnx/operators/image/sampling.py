"""Images: sampling by coordinates, regions, boxes, and patches put together."""

import math

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import known
from tremula.frontends.onnx.table import operator
from tremula.frontends.shared.kinds.windows import padded

_MODES = {"linear": "bilinear", "cubic": "bicubic"}


@operator("GridSample", since=16)
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    """Pixels at coordinates between -1 and 1."""
    mode = _MODES.get(mode, mode)
    return F.grid_sample(x, grid, mode, padding_mode, bool(align_corners))


@operator("AffineGrid", since=20, static=("size",))
def affine_grid(theta: Tensor, size: Tensor, *, align_corners: int = 0) -> Tensor:
    """The coordinates that an affine map gives the pixels of an image."""
    return F.affine_grid(theta, size.tolist(), bool(align_corners))


@operator("RoiAlign", since=10, until=15)
def roi_align_before_16(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Regions, sampled where bins have their corners; each is at least one pixel wide."""
    sizes = (output_height, output_width)
    return _roi_align(x, rois * spatial_scale, batch_indices, sizes, sampling_ratio, mode, least=1)


@operator("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
) -> Tensor:
    """Regions, sampled at the middle of pixels, or where bins have their corners."""
    is_half = coordinate_transformation_mode == "half_pixel"
    boxes = rois * spatial_scale - (0.5 if is_half else 0.0)
    sizes, least = (output_height, output_width), 0 if is_half else 1
    return _roi_align(x, boxes, batch_indices, sizes, sampling_ratio, mode, least=least)


def _roi_align(
    x: Tensor,
    boxes: Tensor,
    batch: Tensor,
    sizes: tuple[int, int],
    ratio: int,
    mode: str,
    *,
    least: int,
) -> Tensor:
    if ratio:
        return _sampled(x, boxes, batch, sizes, (ratio, ratio), mode, least)
    parts = []  # how many samples a bin has depends on its box
    for i in range(boxes.shape[0]):
        left, top, right, bottom = (float(v) for v in boxes[i])
        extents = (max(bottom - top, least), max(right - left, least))
        ratios = [max(math.ceil(e / n), 1) for e, n in zip(extents, sizes, strict=True)]
        one = slice(i, i + 1)
        parts.append(_sampled(x, boxes[one], batch[one], sizes, tuple(ratios), mode, least))
    return torch.cat(parts) if parts else x.new_zeros(0, x.shape[1], *sizes)


def _sampled(
    x: Tensor,
    boxes: Tensor,
    batch: Tensor,
    sizes: tuple[int, int],
    ratios: tuple[int, ...],
    mode: str,
    least: int,
) -> Tensor:
    """[region, channel, height, width] of bilinear samples, the mean or the largest of each bin."""
    left, top, right, bottom = boxes.unbind(1)
    lows, highs = [], []
    for begin, end, n, ratio, size in (
        (top, bottom, sizes[0], ratios[0], x.shape[2]),
        (left, right, sizes[1], ratios[1], x.shape[3]),
    ):
        extent = (end - begin).clamp(min=least) if least else end - begin
        steps = (torch.arange(n * ratio, device=x.device) + 0.5) / ratio
        at = begin.unsqueeze(1) + steps.to(x.dtype) * (extent / n).unsqueeze(1)
        low, high = _neighbours(at, size)
        lows.append(low)
        highs.append(high)
    rows = batch.to(torch.int64).reshape(-1, 1, 1)
    corners = []
    for y, y_weight in (lows[0], highs[0]):
        for z, z_weight in (lows[1], highs[1]):
            pixels = x[rows, :, y.unsqueeze(2), z.unsqueeze(1)]
            weight = y_weight.unsqueeze(2) * z_weight.unsqueeze(1)
            corners.append(pixels * weight.unsqueeze(3))
    joined = torch.stack(corners)
    total = joined.amax(0) if mode == "max" else joined.sum(0)
    bins = total.permute(0, 3, 1, 2).unflatten(3, (sizes[1], ratios[1]))
    bins = bins.unflatten(2, (sizes[0], ratios[0]))
    return bins.amax((3, 5)) if mode == "max" else bins.mean((3, 5))


def _neighbours(at: Tensor, size: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The pixels before and after a coordinate, with their weights."""
    is_inside = ((at >= -1) & (at <= size)).to(at.dtype)
    at = at.clamp(min=0)
    low = torch.floor(at).clamp(max=size - 1)
    high = (low + 1).clamp(max=size - 1)
    share = torch.where(low >= size - 1, torch.zeros_like(at), at - low)
    before = (low.to(torch.int64), (1 - share) * is_inside)
    return before, (high.to(torch.int64), share * is_inside)


@operator("MaxRoiPool", static=("rois",))
def max_roi_pool(
    x: Tensor, rois: Tensor, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Tensor:
    """The largest pixel of each bin of a region."""
    parts = []
    for index, *box in rois.tolist():
        left, top, right, bottom = (_half_up(v * spatial_scale) for v in box)
        image = x[int(index)]
        rows = _bins(top, bottom, pooled_shape[0], image.shape[1])
        columns = _bins(left, right, pooled_shape[1], image.shape[2])
        cells = [
            image[:, a:b, c:d].amax((1, 2)) if a < b and c < d else image.new_zeros(len(image))
            for a, b in rows
            for c, d in columns
        ]
        parts.append(torch.stack(cells, 1).reshape(len(image), *pooled_shape))
    return torch.stack(parts) if parts else x.new_zeros(0, x.shape[1], *pooled_shape)


def _bins(begin: int, end: int, n: int, size: int) -> list[tuple[int, int]]:
    width = max(end - begin + 1, 1) / n
    edges = [(math.floor(i * width), math.ceil((i + 1) * width)) for i in range(n)]
    return [tuple(min(max(begin + e, 0), size) for e in edge) for edge in edges]  # pyright: ignore[reportReturnType]


def _half_up(value: float) -> int:
    return math.floor(value + 0.5)


@operator("NonMaxSuppression", since=10, static=("boxes", "scores", "limit", "overlap", "least"))
def non_max_suppression(
    boxes: Tensor,
    scores: Tensor,
    limit: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
    *,
    center_point_box: int = 0,
) -> Tensor:
    """[batch, class, box] of the best boxes that overlap no better one."""
    most = 0 if limit is None else int(limit.reshape(()))
    allowed = 0.0 if overlap is None else float(overlap.reshape(()))
    bound = -math.inf if least is None else float(least.reshape(()))
    result = []
    for batch in range(boxes.shape[0]):
        corners = _corners(boxes[batch].double().numpy(), is_centre=bool(center_point_box))
        for label in range(scores.shape[1]):
            values = scores[batch, label].numpy()
            selected = _selected(corners, values, most, allowed, bound)
            result += [(batch, label, index) for index in selected]
    return known(np.array(result, np.int64).reshape(-1, 3))


def _corners(boxes: np.ndarray, *, is_centre: bool) -> np.ndarray:
    """Boxes as [least of both axes, largest of both axes]."""
    if is_centre:
        middle, extent = boxes[:, :2], boxes[:, 2:]
        return np.concatenate([middle - extent / 2, middle + extent / 2], 1)
    a, b = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(a, b), np.maximum(a, b)], 1)


def _selected(
    corners: np.ndarray, scores: np.ndarray, most: int, allowed: float, bound: float
) -> list[int]:
    selected: list[int] = []
    for index in np.argsort(-scores, kind="stable"):
        if len(selected) >= most or scores[index] <= bound:
            break
        if all(_shared(corners[index], corners[other]) <= allowed for other in selected):
            selected.append(int(index))
    return selected


def _shared(a: np.ndarray, b: np.ndarray) -> float:
    """Intersection over union."""
    extent = np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2])
    inner = float(np.prod(extent.clip(min=0)))
    total = sum(float(np.prod(box[2:] - box[:2])) for box in (a, b)) - inner
    return inner / total if total > 0 else 0.0


@operator("Col2Im", since=18, static=("image_shape", "block_shape"))
def col2im(
    x: Tensor,
    image_shape: Tensor,
    block_shape: Tensor,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """Patches added up to an image of any number of dimensions."""
    image, block = image_shape.tolist(), block_shape.tolist()
    n = len(image)
    dilations, strides = dilations or [1] * n, strides or [1] * n
    pads = pads or [0] * (2 * n)
    wide = [size + pads[i] + pads[i + n] for i, size in enumerate(image)]
    flat = np.zeros((1, 1), np.int64)
    for i in range(n):
        n_windows = (wide[i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1
        inside, starts = np.arange(block[i]) * dilations[i], np.arange(n_windows) * strides[i]
        places = inside[:, None] + starts[None, :]
        joined = flat[:, None, :, None] * wide[i] + places[None, :, None, :]
        flat = joined.reshape(flat.shape[0] * block[i], -1)
    n_channels = x.shape[1] // math.prod(block)
    values = x.reshape(x.shape[0], n_channels, -1)
    target = x.new_zeros(x.shape[0], n_channels, math.prod(wide))
    result = target.index_add(2, known(flat.reshape(-1)).to(x.device), values)
    return padded(result.reshape(x.shape[0], n_channels, *wide), [-p for p in pads])


@operator("DeformConv", since=19)
def deform_conv(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    """A convolution of images whose pixels are taken from where offsets say."""
    del kernel_shape
    kernel = list(weight.shape[2:])
    dilations, strides, pads = dilations or [1, 1], strides or [1, 1], pads or [0] * 4
    n_batch, n_channels = x.shape[:2]
    counts = list(offset.shape[2:])
    moved = offset.reshape(n_batch, offset_group, *kernel, 2, *counts)
    at = []
    for i in range(2):
        starts = torch.arange(counts[i], device=x.device) * strides[i] - pads[i]
        inner = torch.arange(kernel[i], device=x.device) * dilations[i]
        grid = inner.reshape(-1, 1) + starts.reshape(1, -1)
        shape = [1, 1, 1, 1, 1, 1]
        shape[2 + i], shape[4 + i] = kernel[i], counts[i]
        at.append(moved[:, :, :, :, i] + grid.reshape(shape).to(x.dtype))
    pixels = _bilinear(x.reshape(n_batch, offset_group, -1, *x.shape[2:]), at)
    if mask is not None:
        pixels = pixels * mask.reshape(n_batch, offset_group, 1, *kernel, *counts)
    columns = pixels.reshape(n_batch, group, n_channels // group * math.prod(kernel), -1)
    rows = weight.reshape(group, weight.shape[0] // group, -1)
    result = torch.einsum("gok,bgkp->bgop", rows, columns)
    result = result.reshape(n_batch, weight.shape[0], *counts)
    return result if bias is None else result + bias.reshape(-1, 1, 1)


def _bilinear(x: Tensor, at: list[Tensor]) -> Tensor:
    """[batch, group, channel, …] at coordinates [batch, group, …]; zero outside the image."""
    height, width = x.shape[3:]
    flat = x.flatten(3)
    total = None
    for y in (torch.floor(at[0]), torch.floor(at[0]) + 1):
        for z in (torch.floor(at[1]), torch.floor(at[1]) + 1):
            is_inside = (y >= 0) & (y < height) & (z >= 0) & (z < width)
            weight = (1 - (at[0] - y).abs()) * (1 - (at[1] - z).abs()) * is_inside.to(x.dtype)
            place = y.clamp(0, height - 1) * width + z.clamp(0, width - 1)
            index = place.to(torch.int64).flatten(2).unsqueeze(2).expand(-1, -1, x.shape[2], -1)
            part = torch.gather(flat, 3, index).reshape(*x.shape[:3], *weight.shape[2:])
            part = part * weight.unsqueeze(2)
            total = part if total is None else total + part
    assert total is not None, "there are four corners"
    return total
