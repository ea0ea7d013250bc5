"""Shapes: views, joins, splits and padding; constants."""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.frontends.onnx.context import NodeContext, known
from tremula.frontends.onnx.element_types import MAX_ELEMENTS, element_type
from tremula.frontends.onnx.operators.pads import padded
from tremula.frontends.onnx.table import operator


def axes_of(axes: list[int] | Tensor | None, n_axes: int) -> list[int]:
    """Axes as a list of numbers from 0 on; none are all."""
    if axes is None:
        return list(range(n_axes))
    listed = axes.reshape(-1).tolist() if isinstance(axes, Tensor) else axes
    for axis in listed:
        if not -n_axes <= axis < n_axes:
            raise IndexError(f"axis {axis} of a tensor with {n_axes} axes")
    return [axis % n_axes for axis in listed] if n_axes else []


def checked_sizes(sizes: list[int]) -> list[int]:
    """A shape for which memory will be taken."""
    if any(size < 0 for size in sizes) or math.prod(sizes) > MAX_ELEMENTS:
        raise ValueError(f"the shape {sizes} is impossible")
    return sizes


@operator("Identity", in_place=True)
def identity(x: object) -> Any:  # noqa: ANN401 - sequences, too
    """Its operand."""
    return x


@operator("Shape", until=14)
def shape_before_15(x: Tensor) -> Tensor:
    """The sizes of a tensor; a constant."""
    return shape(x)


@operator("Shape", since=15, folds=False)
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    """The sizes of a tensor, or of some of its axes; a constant."""
    return known(np.array(x.shape[slice(start, end)], np.int64))


@operator("Size", folds=False)
def size(x: Tensor) -> Tensor:
    """The number of elements; a constant."""
    return known(np.array(math.prod(x.shape), np.int64))


@operator("Constant", since=1, folds=False)
def constant(
    *,
    value: Tensor | None = None,
    sparse_value: Tensor | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
) -> Any:  # noqa: ANN401 - strings are not tensors
    """The value of the attribute."""
    if value is not None or sparse_value is not None:
        return value if value is not None else sparse_value
    for numbers, kind in (
        (value_float, np.float32),
        (value_floats, np.float32),
        (value_int, np.int64),
        (value_ints, np.int64),
    ):
        if numbers is not None:
            return known(np.array(numbers, kind))
    return np.array(value_string if value_string is not None else value_strings, object)


@operator("ConstantOfShape", since=9, static=("sizes",))
def constant_of_shape(sizes: Tensor, *, value: Tensor | None = None) -> Tensor:
    """One value, everywhere."""
    one = known(np.zeros((), np.float32)) if value is None else value.reshape(())
    return one.expand(checked_sizes(sizes.tolist()))


@operator("Reshape", until=4, in_place=True)
def reshape_before_5(x: Tensor, *, shape: list[int]) -> Tensor:
    """The shape is an attribute."""
    return x.reshape(_target(x, shape, allowzero=0))


@operator("Reshape", since=5, static=("shape",), in_place=True)
def reshape(x: Tensor, shape: Tensor, *, allowzero: int = 0) -> Tensor:
    """0 keeps a size, -1 is what is left."""
    return x.reshape(_target(x, shape.tolist(), allowzero))


def _target(x: Tensor, shape: list[int], allowzero: int) -> list[int]:
    if allowzero:
        return shape
    return [x.shape[i] if size == 0 else size for i, size in enumerate(shape)]


@operator("Flatten", in_place=True)
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    """A matrix, cut before an axis."""
    axis = axis + x.dim() if axis < 0 else axis
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Squeeze", until=12, in_place=True)
def squeeze_before_13(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """The axes are an attribute."""
    return squeeze(x, axes)


@operator("Squeeze", since=13, static=("axes",), in_place=True)
def squeeze(x: Tensor, axes: Tensor | list[int] | None = None) -> Tensor:
    """Without some axes of size 1, or all of them."""
    if axes is None:
        return x.squeeze()
    gone = set(axes_of(axes, x.dim()))
    if any(x.shape[axis] != 1 for axis in gone):
        raise ValueError(f"axes {sorted(gone)} are not all of size 1")
    return x.reshape([size for axis, size in enumerate(x.shape) if axis not in gone])


@operator("Unsqueeze", until=12, in_place=True)
def unsqueeze_before_13(x: Tensor, *, axes: list[int]) -> Tensor:
    """The axes are an attribute."""
    return unsqueeze(x, axes)


@operator("Unsqueeze", since=13, static=("axes",), in_place=True)
def unsqueeze(x: Tensor, axes: Tensor | list[int]) -> Tensor:
    """With new axes of size 1, where the result has them."""
    n_new = axes.numel() if isinstance(axes, Tensor) else len(axes)
    for axis in sorted(axes_of(axes, x.dim() + n_new)):
        x = x.unsqueeze(axis)
    return x


@operator("Transpose", in_place=True)
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    """The axes in another order, by default reversed."""
    return x.permute(perm if perm is not None else list(range(x.dim()))[::-1])


@operator("Concat", until=3, in_place=True)
def concat_before_4(*operands: Tensor, axis: int = 1) -> Tensor:
    """Along axis 1 unless the node says another."""
    return concat(*operands, axis=axis)


@operator("Concat", since=4, in_place=True)
def concat(*operands: Tensor, axis: int) -> Tensor:
    """Joined along an axis."""
    return torch.cat(operands, axis)


@operator("Expand", since=8, static=("shape",))
def expand(x: Tensor, shape: Tensor) -> Tensor:
    """Broadcast with a shape."""
    return x.expand(checked_sizes(list(torch.broadcast_shapes(x.shape, tuple(shape.tolist())))))


@operator("Tile", until=5, static=("tiles", "axis"))
def tile_before_6(x: Tensor, tiles: Tensor, axis: Tensor) -> Tensor:
    """Repeated along one axis."""
    return torch.cat([x] * int(tiles), int(axis))


@operator("Tile", since=6, static=("repeats",))
def tile(x: Tensor, repeats: Tensor) -> Tensor:
    """Repeated along each axis."""
    checked_sizes([n * size for n, size in zip(repeats.tolist(), x.shape, strict=True)])
    return x.repeat(repeats.tolist()) if x.dim() else x


@operator("Split", until=1, static=("sizes",))
def split_1(
    x: Tensor,
    sizes: Tensor | None = None,
    *,
    axis: int = 0,
    split: list[int] | None = None,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """Sizes are an operand or an attribute."""
    listed = split if sizes is None else sizes.tolist()
    return _parts(x, axis, listed, context.n_outputs)


@operator("Split", since=2, until=12)
def split_before_13(
    x: Tensor, *, axis: int = 0, split: list[int] | None = None, context: NodeContext
) -> tuple[Tensor, ...]:
    """Sizes are an attribute; by default parts are equal."""
    return _parts(x, axis, split, context.n_outputs)


@operator("Split", since=13, static=("split",))
def split_since_13(
    x: Tensor,
    split: Tensor | None = None,
    *,
    axis: int = 0,
    num_outputs: int = 0,
    context: NodeContext,
) -> tuple[Tensor, ...]:
    """Sizes are an operand; by default parts are equal, the last may be smaller."""
    sizes = None if split is None else split.tolist()
    return _parts(x, axis, sizes, num_outputs or context.n_outputs)


def _parts(x: Tensor, axis: int, sizes: list[int] | None, n_parts: int) -> tuple[Tensor, ...]:
    if sizes is None:
        n, each = x.shape[axis], -(-x.shape[axis] // n_parts)
        sizes = [min(each, n - min(n, each * i)) for i in range(n_parts)]
    return tuple(torch.split(x, sizes, axis))


@operator("Slice", until=9, in_place=True)
def slice_before_10(
    x: Tensor, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Tensor:
    """Bounds are attributes."""
    return _sliced(x, starts, ends, axes, None)


@operator("Slice", since=10, static=("starts", "ends", "axes", "steps"), in_place=True)
def slice_(
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    """As NumPy slices, with negative steps, too."""
    listed = [None if t is None else t.tolist() for t in (axes, steps)]
    return _sliced(x, starts.tolist(), ends.tolist(), *listed)


def _sliced(
    x: Tensor,
    starts: list[int],
    ends: list[int],
    axes: list[int] | None,
    steps: list[int] | None,
) -> Tensor:
    axes = axes if axes is not None else list(range(len(starts)))
    steps = steps if steps is not None else [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        begin, stop, step = _bounds(start, end, step, x.shape[axis])
        if step > 0:
            cut = [slice(None)] * x.dim()
            cut[axis] = slice(begin, stop, step)
            x = x[tuple(cut)]
        else:
            n = len(range(begin, stop, step))
            low = begin + step * (n - 1)
            cut = [slice(None)] * x.dim()
            cut[axis] = slice(low, begin + 1, -step) if n else slice(0, 0)
            x = x[tuple(cut)].flip(axis)
    return x


def _bounds(start: int, end: int, step: int, size: int) -> tuple[int, int, int]:
    """As ONNX clamps them: beyond either end is at that end."""
    start, end = (bound + size if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return min(max(start, 0), size), min(max(end, 0), size), step
    return min(max(start, 0), size - 1), min(max(end, -1), size - 1), step


@operator("Pad", until=1)
def pad_1(x: Tensor, *, paddings: list[int], mode: str = "constant", value: float = 0.0) -> Tensor:
    """Everything is an attribute."""
    return padded(x, paddings, mode, value)


@operator("Pad", since=2, until=10)
def pad_before_11(
    x: Tensor, *, pads: list[int], mode: str = "constant", value: float = 0.0
) -> Tensor:
    """Everything is an attribute."""
    return padded(x, pads, mode, value)


@operator("Pad", since=11, static=("pads", "axes"))
def pad(
    x: Tensor,
    pads: Tensor,
    value: Tensor | None = None,
    axes: Tensor | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    """By a constant, by the edge, reflected or wrapped around; negative sizes cut."""
    n_axes, sizes = x.dim(), pads.tolist()
    places = axes_of(axes, n_axes)
    full = [0] * (2 * n_axes)
    for i, axis in enumerate(places):
        full[axis], full[axis + n_axes] = sizes[i], sizes[i + len(places)]
    return padded(x, full, mode, value)


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Channels become blocks of pixels."""
    n, c, h, w = x.shape
    if mode == "CRD":
        return F.pixel_shuffle(x, blocksize)
    blocks = x.reshape(n, blocksize, blocksize, c // blocksize**2, h, w)
    return blocks.permute(0, 3, 4, 1, 5, 2).reshape(
        n, c // blocksize**2, h * blocksize, w * blocksize
    )


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    """Blocks of pixels become channels."""
    n, c, h, w = x.shape
    blocks = x.reshape(n, c, h // blocksize, blocksize, w // blocksize, blocksize)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.permute(order).reshape(n, c * blocksize**2, h // blocksize, w // blocksize)


@operator("EyeLike", since=9)
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    """1 on a diagonal, else 0."""
    kind = x.dtype if dtype is None else element_type(dtype).tensor_type
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return (rows.unsqueeze(1) + k == columns.unsqueeze(0)).to(kind)


@operator("Trilu", since=14, static=("k",))
def triangle(x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> Tensor:
    """The upper or lower triangle, from a diagonal on."""
    offset = 0 if k is None else int(k)
    return torch.triu(x, offset) if upper else torch.tril(x, offset)


@operator("Range", since=11, static=("start", "limit", "delta"))
def range_(start: Tensor, limit: Tensor, delta: Tensor, *, stash_type: int = 1) -> Tensor:
    """Numbers at equal distances; a constant."""
    del stash_type  # they are computed in double precision
    first, last, step = (t.item() for t in (start, limit, delta))
    n = max(math.ceil((last - first) / step), 0)
    checked_sizes([n])
    numbers = first + step * np.arange(n)
    return known(numbers.astype(np.float64) if start.is_floating_point() else numbers).to(
        start.dtype
    )


@operator("CenterCropPad", since=18, static=("shape",))
def center_crop_pad(x: Tensor, shape: Tensor, *, axes: list[int] | None = None) -> Tensor:
    """Cut or padded with zeros, on both sides alike."""
    pads = [0] * (2 * x.dim())
    for axis, wanted in zip(axes_of(axes, x.dim()), shape.tolist(), strict=True):
        more = wanted - x.shape[axis]
        before = more // 2 if more > 0 else -(-more // 2)
        pads[axis], pads[axis + x.dim()] = before, more - before
    return padded(x, pads, "constant", 0)
