"""Resizing images: every output is a sum of a few inputs along each axis."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import known
from tremula.frontends.onnx.operators.shape import axes_of
from tremula.frontends.onnx.table import operator


@dataclass(frozen=True)
class _How:
    """The attributes of Resize."""

    mode: str = "nearest"
    transformation: str = "half_pixel"
    nearest_mode: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    outside: float = 0.0  # the value beyond the edge of a crop


@dataclass(frozen=True)
class _Axis:
    axis: int
    n_in: int
    n_out: int
    scale: float
    begin: float = 0.0  # of the region of interest
    end: float = 1.0


@operator("Upsample", until=6)
def upsample_1(
    x: Tensor, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Tensor:
    """By two factors."""
    return _resized(x, _by_scales(x, [1.0, 1.0, height_scale, width_scale]), _old(mode))


@operator("Upsample", since=7, until=8)
def upsample_7(x: Tensor, *, scales: list[float], mode: str = "nearest") -> Tensor:
    """By factors that are an attribute."""
    return _resized(x, _by_scales(x, scales), _old(mode))


@operator("Upsample", since=9, static=("scales",))
def upsample_9(x: Tensor, scales: Tensor, *, mode: str = "nearest") -> Tensor:
    """By factors that are an operand."""
    return _resized(x, _by_scales(x, scales.tolist()), _old(mode))


@operator("Resize", since=10, until=10, static=("scales",))
def resize_10(
    x: Tensor, scales: Tensor, *, mode: str = "nearest", nearest_mode: str = "pytorch"
) -> Tensor:
    """By factors; coordinates are divided by them, unless PopART's attribute `nearest_mode` is set.

    It chooses a rounding of version 11, between the centres of pixels.
    """
    how = _old(mode)
    if nearest_mode != "pytorch":
        how = _How(how.mode, nearest_mode=nearest_mode)
    return _resized(x, _by_scales(x, scales.tolist()), how)


def _old(mode: str) -> _How:
    return _How("linear" if mode == "bilinear" else mode, "asymmetric", "floor")


@operator("Resize", since=11, static=("roi", "scales", "sizes"))
def resize(
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:
    """By factors or to sizes: nearest, linear or cubic, in each axis by itself."""
    places = axes_of(axes, x.dim())
    if sizes is not None and sizes.numel():
        result = _by_sizes(x, sizes.tolist(), places, keep_aspect_ratio_policy)
    else:
        assert scales is not None, "a Resize has scales or sizes"
        result = _by_scales(x, scales.tolist(), places)
    if roi is not None and roi.numel() and coordinate_transformation_mode == "tf_crop_and_resize":
        region, half = roi.tolist(), len(places)
        result = [
            _Axis(a.axis, a.n_in, a.n_out, a.scale, region[i], region[i + half])
            for i, a in enumerate(result)
        ]
    how = _How(
        mode,
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        bool(antialias),
        extrapolation_value,
    )
    return _resized(x, result, how)


def _by_scales(x: Tensor, scales: list[float], axes: list[int] | None = None) -> list[_Axis]:
    places = axes if axes is not None else list(range(x.dim()))
    return [
        _Axis(axis, x.shape[axis], _scaled_size(x.shape[axis], scale), scale)
        for axis, scale in zip(places, scales, strict=True)
    ]


def _scaled_size(size: int, scale: float) -> int:
    """Rounded down, from a product in float32, as ONNX's shape inference does: 10 · 0.7 is 7."""
    return math.floor(np.float32(size) * np.float32(scale))


def _by_sizes(x: Tensor, sizes: list[int], axes: list[int], policy: str) -> list[_Axis]:
    scales = [size / x.shape[axis] for axis, size in zip(axes, sizes, strict=True)]
    if policy != "stretch":
        one = min(scales) if policy == "not_larger" else max(scales)
        scales = [one] * len(axes)
        sizes = [_half_up(one * x.shape[axis]) for axis in axes]
    return [
        _Axis(axis, x.shape[axis], size, scale)
        for axis, size, scale in zip(axes, sizes, scales, strict=True)
    ]


def _half_up(value: float) -> int:
    return math.floor(value + 0.5)


def _resized(x: Tensor, axes: list[_Axis], how: _How) -> Tensor:
    is_cropped = how.transformation == "tf_crop_and_resize"
    for axis in axes:
        if axis.n_out != axis.n_in or axis.scale != 1 or is_cropped:
            x = _along(x, axis, how)
    return x


def _along(x: Tensor, axis: _Axis, how: _How) -> Tensor:
    places = _coordinates(axis, how)
    indices, weights = _taps(axis, places, how)
    is_sum = how.mode != "nearest"
    result = None
    shape = [1] * x.dim()
    shape[axis.axis] = -1
    for tap in range(indices.shape[1]):
        picked = x.index_select(axis.axis, known(indices[:, tap]).to(x.device))
        if is_sum:
            column = known(weights[:, tap].astype(np.float32)).to(x.device)
            picked = picked * column.reshape(shape).to(x.dtype)
        result = picked if result is None else result + picked
    assert result is not None, "every output has an input"
    if how.transformation == "tf_crop_and_resize":
        is_outside = known((places < 0) | (places > axis.n_in - 1)).to(x.device)
        result = torch.where(is_outside.reshape(shape), how.outside, result).to(x.dtype)
    return result


def _coordinates(axis: _Axis, how: _How) -> np.ndarray:
    """Where each output is in the input."""
    transformation = how.transformation
    if how.mode == "nearest" and how.nearest_mode == "pytorch":  # as torch's interpolate
        factor = np.float32(1 / axis.scale)
        return (np.arange(axis.n_out, dtype=np.float32) * factor).astype(np.float64)
    rule = _TRANSFORMATIONS.get(transformation)
    if rule is None:
        raise ValueError(f"the coordinate transformation {transformation!r}")
    return rule(np.arange(axis.n_out, dtype=np.float64), axis)


def _align_corners(at: np.ndarray, axis: _Axis) -> np.ndarray:
    length = axis.scale * axis.n_in
    return 0 * at if length == 1 else at * (axis.n_in - 1) / (length - 1)


def _symmetric(at: np.ndarray, axis: _Axis) -> np.ndarray:
    share = axis.n_out / (axis.scale * axis.n_in)
    return axis.n_in / 2 * (1 - share) + (at + 0.5) / axis.scale - 0.5


def _crop(at: np.ndarray, axis: _Axis) -> np.ndarray:
    last = axis.n_in - 1
    if axis.n_out == 1:
        return 0 * at + 0.5 * (axis.begin + axis.end) * last
    return axis.begin * last + at * (axis.end - axis.begin) * last / (axis.n_out - 1)


_TRANSFORMATIONS: dict[str, Callable[[np.ndarray, _Axis], np.ndarray]] = {
    "half_pixel": lambda at, axis: (at + 0.5) / axis.scale - 0.5,
    "half_pixel_symmetric": _symmetric,
    "pytorch_half_pixel": lambda at, axis: (
        (at + 0.5) / axis.scale - 0.5 if axis.n_out > 1 else 0 * at
    ),
    "align_corners": _align_corners,
    "asymmetric": lambda at, axis: at / axis.scale,
    "tf_half_pixel_for_nn": lambda at, axis: (at + 0.5) / axis.scale,
    "tf_crop_and_resize": _crop,
}
_NEAREST: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
    "pytorch": np.floor,  # PopART's own; coordinates are divided by the factor
}


def _taps(axis: _Axis, places: np.ndarray, how: _How) -> tuple[np.ndarray, np.ndarray]:
    """For each output the inputs that it is a sum of, and their weights."""
    last = axis.n_in - 1
    if how.mode == "nearest":
        if how.nearest_mode not in _NEAREST:
            known_modes = ", ".join(_NEAREST)
            raise ValueError(f"nearest_mode is one of {known_modes}, got {how.nearest_mode!r}")
        nearest = _NEAREST[how.nearest_mode](places)
        indices = np.clip(nearest, 0, last).astype(np.int64).reshape(-1, 1)
        return indices, np.ones(indices.shape)
    scale = min(axis.scale, 1.0) if how.antialias else 1.0
    reach = 1 if how.mode == "linear" else 2
    start = math.floor(-reach / scale) + 1
    steps = np.arange(start, 2 - start if reach == 2 or scale < 1 else 2)
    base = np.floor(places)
    distance = np.abs((steps - (places - base)[:, None]) * scale)
    weights = _linear(distance) if how.mode == "linear" else _cubic(distance, how.cubic_a)
    indices = base[:, None] + steps
    if how.exclude_outside:
        weights = np.where((indices < 0) | (indices > last), 0, weights)
    if how.exclude_outside or how.antialias:
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(indices, 0, last).astype(np.int64), weights


def _linear(distance: np.ndarray) -> np.ndarray:
    return np.clip(1 - distance, 0, 1)


def _cubic(distance: np.ndarray, a: float) -> np.ndarray:
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0))
