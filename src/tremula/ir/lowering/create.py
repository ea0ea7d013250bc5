"""Lowerings of operations that create tensors: constants, most of them one value repeated."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tremula.base.types import BOOL
from tremula.ir.lowering.pointwise.map import mapped, number
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import overload_of
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.poputil import broadcast_view


def repeated(tiles: Tiles, value: float | int | bool) -> Tensor:
    """The node's shape with every element the same constant: it takes the memory of one element."""
    constant = tiles.constant(number(value, tiles.out_type), tiles.out_type)
    return broadcast_view(constant, tiles.out_shape)


def made_once(tiles: Tiles, key: tuple, values: Callable[[], np.ndarray]) -> Tensor:
    """A constant with different values; equal keys share it."""
    whole = ("made", tiles.out_type.name, *key)
    if whole not in tiles.shared:
        tiles.shared[whole] = tiles.constant(values(), tiles.out_type)
    return tiles.shared[whole]


# -- one value -------------------------------------------------------------------------------------


@lowers("full", "full_like", "scalar_tensor", "fill.Scalar", "new_full", calls="constant")
def full(tiles: Tiles, *args: Any, **options: Any) -> Tensor:  # noqa: ANN401 - as in ATen
    """The value is the last positional argument of all of these, or `fill_value`."""
    return repeated(tiles, options.get("fill_value", args[-1]))


@lowers("fill.Tensor", calls="popops.cast")
def fill(tiles: Tiles, _old: Tensor, value: Tensor) -> Tensor:
    return broadcast_view(tiles.cast(value, tiles.out_type), tiles.out_shape)


@lowers(
    "zeros", "zeros_like", "new_zeros", "zero", "empty.memory_format", "empty_like", "new_empty",
    "empty_strided", "new_empty_strided", "empty_permuted", "_efficientzerotensor",
    calls="constant",
)  # fmt: skip
def zeros(tiles: Tiles, *_args: object, **_options: object) -> Tensor:
    """`empty` holds zeros, so that a program returns the same values each time."""
    return repeated(tiles, 0)


@lowers("ones", "ones_like", "new_ones", calls="constant")
def ones(tiles: Tiles, *_args: object, **_options: object) -> Tensor:
    return repeated(tiles, 1)


# -- counted values --------------------------------------------------------------------------------


@lowers("arange", calls="constant")
def arange(tiles: Tiles, _end: float, **_options: object) -> Tensor:
    return _counted(tiles, 0, 1)


@lowers("arange.start", calls="constant")
def arange_start(tiles: Tiles, start: float, _end: float, **_options: object) -> Tensor:
    return _counted(tiles, start, 1)


@lowers("arange.start_step", calls="constant")
def arange_step(
    tiles: Tiles, start: float, _end: float, step: float = 1, **_options: object
) -> Tensor:
    return _counted(tiles, start, step)


def _counted(tiles: Tiles, start: float, step: float) -> Tensor:
    """As many as PyTorch promised: start, start + step, …"""
    n = tiles.out_shape[0]
    return made_once(tiles, ("arange", n, start, step), lambda: start + step * np.arange(n))


@lowers("linspace", calls="constant")
def linspace(tiles: Tiles, start: float, end: float, steps: int, **_options: object) -> Tensor:
    key = ("linspace", start, end, steps)
    return made_once(tiles, key, lambda: np.linspace(start, end, steps))


@lowers(
    "bartlett_window", "bartlett_window.periodic", "blackman_window", "blackman_window.periodic",
    "hamming_window", "hamming_window.periodic", "hamming_window.periodic_alpha",
    "hamming_window.periodic_alpha_beta", "kaiser_window", "kaiser_window.beta",
    "kaiser_window.periodic", "fft_fftfreq", "fft_rfftfreq", "range", "range.step",
    calls="constant",
)  # fmt: skip
def window(tiles: Tiles, *numbers: float, **_options: object) -> Tensor:
    """Windows and frequencies follow from numbers alone: PyTorch's own, while a program is made."""
    values = overload_of(tiles.node)
    dtype = tiles.node.meta["val"].dtype
    return made_once(
        tiles, (str(values), *numbers), lambda: values(*numbers, dtype=dtype).float().numpy()
    )


@lowers("eye", "eye.m", calls="constant")
def eye(tiles: Tiles, *_sizes: int, **_options: object) -> Tensor:
    n_rows, n_cols = tiles.out_shape
    return made_once(tiles, ("eye", n_rows, n_cols), lambda: np.eye(n_rows, n_cols))


@lowers("tril_indices", calls="constant")
def tril_indices(
    tiles: Tiles, n_rows: int, n_cols: int, offset: int = 0, **_options: object
) -> Tensor:
    key = ("tril_indices", n_rows, n_cols, offset)
    return made_once(tiles, key, lambda: np.stack(np.tril_indices(n_rows, offset, n_cols)))


@lowers("triu_indices", calls="constant")
def triu_indices(
    tiles: Tiles, n_rows: int, n_cols: int, offset: int = 0, **_options: object
) -> Tensor:
    key = ("triu_indices", n_rows, n_cols, offset)
    return made_once(tiles, key, lambda: np.stack(np.triu_indices(n_rows, offset, n_cols)))


# -- triangles -------------------------------------------------------------------------------------


@lowers("tril", calls="popops.select")
def tril(tiles: Tiles, x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(tiles, x, diagonal, np.tril)


@lowers("triu", calls="popops.select")
def triu(tiles: Tiles, x: Tensor, diagonal: int = 0) -> Tensor:
    return _triangle(tiles, x, diagonal, np.triu)


def _triangle(tiles: Tiles, x: Tensor, diagonal: int, part: Callable) -> Tensor:
    """The elements under a mask, zeros elsewhere."""
    shape = x.shape[-2:]
    key = ("triangle", part.__name__, *shape, diagonal)
    if key not in tiles.shared:
        tiles.shared[key] = tiles.constant(part(np.ones(shape, bool), diagonal), BOOL)
    zero = expr.Const(False if x.type == BOOL else 0, x.type)
    return mapped(tiles, lambda x, share: expr.select(x, zero, share), x, tiles.shared[key])
