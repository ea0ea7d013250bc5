"""Operations on images: resizing, regions of interest."""

from collections.abc import Sequence

import torch
from torch import Tensor

from tremula.frontends.popxl.core.table import Indices, Operand, operation

PAGE_SECTION = (7, "Images")

MODES = ("nearest", "linear", "cubic")
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "pytorch")
TRANSFORMS = (
    "half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip


@operation("Resize")
def interpolate(
    t: Operand,
    scale_factor: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Tensor:
    """A tensor resized along its dimensions, one after the other."""
    for name, value, known in (
        ("mode", mode, MODES), ("nearest_mode", nearest_mode, NEAREST),
        ("coordinate_transformation_mode", coordinate_transformation_mode, TRANSFORMS),
    ):  # fmt: skip
        if value not in known:
            raise ValueError(f"{name} must be one of {known}, got {value!r}")
    if len(scale_factor) != t.dim():
        raise ValueError(f"{t.dim()} dimensions need as many scales, got {len(scale_factor)}")
    result = t
    for axis, scale in enumerate(scale_factor):
        if scale != 1.0:
            result = _resized(
                result, axis, scale, mode, nearest_mode, coordinate_transformation_mode
            )
    return result.clone() if result is t else result


def _places(n: int, size: int, scale: float, transform: str) -> Tensor:
    """The coordinate of each element of the result in the operand."""
    x = torch.arange(size, dtype=torch.float64)
    if transform == "asymmetric":
        return x / scale
    if transform == "align_corners":
        return x * (n - 1) / (size - 1) if size > 1 else x * 0
    if transform == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if transform == "pytorch_half_pixel" and size == 1:
        return x * 0
    return (x + 0.5) / scale - 0.5


def _resized(t: Tensor, axis: int, scale: float, mode: str, nearest: str, transform: str) -> Tensor:
    n = t.shape[axis]
    size = int(n * scale)
    places = _places(n, size, scale, transform)
    if mode == "nearest":
        return torch.index_select(t, axis, _nearest(places, nearest, n).to(t.device))
    matrix = _linear(places, n) if mode == "linear" else _cubic(places, n)
    weights = matrix.to(t.dtype).to(t.device)
    return torch.movedim(torch.movedim(t, axis, -1) @ weights.T, -1, axis)


def _nearest(places: Tensor, how: str, n: int) -> Tensor:
    result = {
        "round_prefer_floor": torch.ceil(places - 0.5),
        "round_prefer_ceil": torch.floor(places + 0.5),
        "floor": torch.floor(places),
        "ceil": torch.ceil(places),
        "pytorch": torch.floor(places),
    }[how]
    return result.clamp(0, n - 1).long()


def _linear(places: Tensor, n: int) -> Tensor:
    """Weights of the operand's elements for each of the result's."""
    places = places.clamp(0, n - 1)
    low = torch.floor(places).long().clamp(max=n - 1)
    high = (low + 1).clamp(max=n - 1)
    part = places - low
    matrix = torch.zeros(len(places), n, dtype=torch.float64)
    rows = torch.arange(len(places))
    matrix.index_put_((rows, low), 1 - part, accumulate=True)
    return matrix.index_put_((rows, high), part, accumulate=True)


def _cubic(places: Tensor, n: int, a: float = -0.75) -> Tensor:
    low = torch.floor(places)
    matrix = torch.zeros(len(places), n, dtype=torch.float64)
    rows = torch.arange(len(places))
    for offset in range(-1, 3):
        d = (places - low - offset).abs()
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        weight = torch.where(d <= 1, near, torch.where(d < 2, far, torch.zeros_like(d)))
        column = (low + offset).long().clamp(0, n - 1)
        matrix.index_put_((rows, column), weight, accumulate=True)
    return matrix


@operation("RoiAlign")
def roi_align(
    t: Operand,
    rois: Operand,
    batch_index: Indices,
    output_size: Sequence[int],
    spatial_scale: float,
    sampling_ratio: int,
) -> Tensor:
    """Means of interpolated samples in the bins of regions of interest."""
    height, width = output_size
    n_samples = max(int(sampling_ratio), 1)
    boxes = rois.to(t.dtype) * spatial_scale
    x0, y0, x1, y1 = boxes.unbind(1)
    sizes = torch.clamp(y1 - y0, min=1.0), torch.clamp(x1 - x0, min=1.0)
    ys = _samples(y0, sizes[0], height, n_samples)
    xs = _samples(x0, sizes[1], width, n_samples)
    image = torch.index_select(t, 0, batch_index.reshape(-1).long())
    rows = _weights(ys, t.shape[2])
    columns = _weights(xs, t.shape[3])
    result = torch.einsum("rchw,rph,rqw->rcpq", image, rows, columns)
    shape = (result.shape[0], result.shape[1], height, n_samples, width, n_samples)
    return result.reshape(shape).mean((3, 5))


def _samples(start: Tensor, size: Tensor, n_bins: int, n_samples: int) -> Tensor:
    """Where samples lie along a dimension, for each region."""
    step = torch.arange(n_bins * n_samples, dtype=start.dtype, device=start.device) + 0.5
    return start[:, None] + step[None, :] * (size / (n_bins * n_samples))[:, None]


def _weights(places: Tensor, n: int) -> Tensor:
    """Weights of an image's rows for each sample: linear, nothing outside."""
    is_inside = ((places >= -1.0) & (places <= n)).to(places.dtype)
    clipped = places.clamp(0, n - 1)
    lines = torch.arange(n, dtype=places.dtype, device=places.device)
    return torch.clamp(1 - (clipped[..., None] - lines).abs(), min=0.0) * is_inside[..., None]
