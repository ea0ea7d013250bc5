"""Lowerings of resizing and its gradients: views, or a matrix along each dimension."""

import math
from collections.abc import Callable
from collections.abc import Sequence as ListOf
from functools import partial

import numpy as np

from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import schema_name
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs import poplin, popops

Ints = ListOf[int]


def separable(tiles: Tiles, x: Tensor, matrices: list[np.ndarray]) -> Tensor:
    """[batch, channels, field…] with a matrix [in, out] applied along each dimension of a field."""
    for d, matrix in enumerate(matrices, start=2):
        rows = x.dim_roll(d, x.rank - 1)
        flat = rows.reshape([math.prod(rows.shape[:-1]), rows.shape[-1]])
        weights = tiles.constant(matrix, x.type)
        name = f"{tiles.name}/along_{d - 2}"
        product = poplin.mat_mul(tiles.graph, flat, weights, tiles.sequence, name)
        x = product.reshape([*rows.shape[:-1], matrix.shape[1]]).dim_roll(x.rank - 1, d)
    return x


# -- nearest ---------------------------------------------------------------------------------------


def _nearest(n_in: int, n_out: int, scale: float | None, exact: bool) -> np.ndarray:
    """The input each output shows."""
    ratio = 1 / scale if scale else n_in / n_out
    places = np.floor((np.arange(n_out, dtype=np.float32) + 0.5 * exact) * np.float32(ratio))
    return np.minimum(places.astype(np.int64), n_in - 1)


def _nearest_places(tiles: Tiles, field: Ints, out: Ints, scales: tuple) -> list[np.ndarray]:
    exact = "exact" in schema_name(tiles.node)
    scales = scales or (None,) * len(field)
    return [_nearest(i, o, s, exact) for i, o, s in zip(field, out, scales, strict=True)]


_NEAREST = [
    f"{kind}{n}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for n in (1, 2, 3)
]


@lowers(*_NEAREST, calls="Tensor.broadcast")
def upsample_nearest(tiles: Tiles, x: Tensor, out: Ints, *scales: float | None) -> Tensor:
    """Repeated elements: a view, which takes no memory."""
    for d, places in enumerate(_nearest_places(tiles, x.shape[2:], out, scales), start=2):
        x = _chosen(x, places, d)
    return x


def _chosen(x: Tensor, places: np.ndarray, dim: int) -> Tensor:
    """X at rising places along one dimension."""
    counts = np.bincount(places, minlength=x.shape[dim])
    if np.ptp(counts) == 0:
        n = int(counts[0])
        repeated = x.expand([dim + 1]).broadcast(n, dim + 1)
        return repeated.flatten(dim, dim + 2)
    index = (slice(None),) * dim
    return concat([x[(*index, slice(p, p + 1))] for p in places.tolist()], dim)


@lowers(*[f"{name}_backward" for name in _NEAREST], calls="popops.reduce, poplin.mat_mul")
def upsample_nearest_backward(
    tiles: Tiles, gradient: Tensor, out: Ints, _shape: Ints, *scales: float | None
) -> Tensor:
    field = tiles.out_shape[2:]
    places = _nearest_places(tiles, field, out, scales)
    counts = [np.bincount(p, minlength=n) for p, n in zip(places, field, strict=True)]
    if all(np.ptp(c) == 0 for c in counts):
        return _summed_blocks(tiles, gradient, [int(c[0]) for c in counts])
    matrices = [
        (p[:, None] == np.arange(n)).astype(float) for p, n in zip(places, field, strict=True)
    ]
    return separable(tiles, gradient, matrices)


def _summed_blocks(tiles: Tiles, gradient: Tensor, factors: list[int]) -> Tensor:
    shape = list(gradient.shape[:2])
    for size, factor in zip(gradient.shape[2:], factors, strict=True):
        shape += [size // factor, factor]
    blocks = gradient.reshape(shape)
    dims = list(range(3, len(shape), 2))
    return popops.reduce(tiles.graph, blocks, dims, "ADD", tiles.sequence, tiles.name)


# -- linear and cubic ------------------------------------------------------------------------------

_CUBIC = -0.75  # the parameter of the cubic kernel; with a filter against aliasing -0.5, as Pillow
_FILTERED_CUBIC = -0.5


def _hat(distance: np.ndarray) -> np.ndarray:
    """The kernel of linear interpolation."""
    return np.maximum(1 - np.abs(distance), 0)


def _cubic_hat(distance: np.ndarray, a: float) -> np.ndarray:
    """The kernel of cubic convolution, which reaches two places to either side."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def _ratio(n_in: int, n_out: int, align: bool, scale: float | None) -> np.float32:
    """Inputs per output."""
    if align:
        return np.float32((n_in - 1) / (n_out - 1) if n_out > 1 else 0)
    return np.float32(1 / scale if scale else n_in / n_out)


def _sources(n_in: int, n_out: int, align: bool, scale: float | None) -> np.ndarray:
    """The place of each output among the inputs."""
    outs, ratio = np.arange(n_out, dtype=np.float32), _ratio(n_in, n_out, align, scale)
    return outs * ratio if align else (outs + np.float32(0.5)) * ratio - np.float32(0.5)


def _linear_matrix(n_in: int, n_out: int, align: bool, scale: float | None) -> np.ndarray:
    """[in, out]: what each input weighs in each output of a linear interpolation."""
    source = np.clip(_sources(n_in, n_out, align, scale), 0, n_in - 1)
    return _hat(source - np.arange(n_in)[:, None])


def _cubic_matrix(n_in: int, n_out: int, align: bool, scale: float | None) -> np.ndarray:
    """Taps beyond the border read the border."""
    source = _sources(n_in, n_out, align, scale)
    low, outs = np.floor(source).astype(np.int64), np.arange(n_out)
    matrix = np.zeros((n_in, n_out))
    for tap in (-1, 0, 1, 2):
        places = np.clip(low + tap, 0, n_in - 1)
        np.add.at(matrix, (places, outs), _cubic_hat(source - (low + tap), _CUBIC))
    return matrix


def _filtered_matrix(
    kernel: Callable, reach: int, n_in: int, n_out: int, align: bool, scale: float | None
) -> np.ndarray:
    """The kernel as wide as an output is, where outputs are fewer: no detail is skipped."""
    ratio = _ratio(n_in, n_out, align, scale)
    width = max(ratio, np.float32(1))
    center, support = ratio * (np.arange(n_out) + 0.5), reach * width
    first = np.maximum((center - support + 0.5).astype(np.int64), 0)
    end = np.minimum((center + support + 0.5).astype(np.int64), n_in)
    places = np.arange(n_in)[:, None]
    weights = kernel((places + 0.5 - center) / width)
    weights = np.where((places >= first) & (places < end), weights, 0)
    return weights / weights.sum(axis=0)


_MATRICES: dict[str, Callable[..., np.ndarray]] = {
    "upsample_linear1d": _linear_matrix,
    "upsample_bilinear2d": _linear_matrix,
    "upsample_trilinear3d": _linear_matrix,
    "upsample_bicubic2d": _cubic_matrix,
    "_upsample_bilinear2d_aa": partial(_filtered_matrix, _hat, 1),
    "_upsample_bicubic2d_aa": partial(_filtered_matrix, partial(_cubic_hat, a=_FILTERED_CUBIC), 2),
}


def _matrices(tiles: Tiles, field: Ints, out: Ints, align: bool, scales: tuple) -> list[np.ndarray]:
    name = schema_name(tiles.node).removeprefix("aten::").removesuffix("_backward")
    sizes = zip(field, out, scales or (None,) * len(out), strict=True)
    return [_MATRICES[name](n_in, n_out, align, scale) for n_in, n_out, scale in sizes]


@lowers(*_MATRICES, calls="poplin.mat_mul")
def upsample(tiles: Tiles, x: Tensor, out: Ints, align: bool, *scales: float | None) -> Tensor:
    return separable(tiles, x, _matrices(tiles, x.shape[2:], out, align, scales))


@lowers(*[f"{name}_backward" for name in _MATRICES], calls="poplin.mat_mul")
def upsample_backward(
    tiles: Tiles, gradient: Tensor, out: Ints, shape: Ints, align: bool, *scales: float | None
) -> Tensor:
    matrices = _matrices(tiles, shape[2:], out, align, scales)
    return separable(tiles, gradient, [matrix.T for matrix in matrices])
