"""Lowerings of sorting, the k largest, and running sums and products."""

import numpy as np

from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops.sorting.sort import sort_pairs

_SORTED = (FLOAT, HALF, INT, UNSIGNED_INT)


@lowers("sort", calls="popops.sort_key_value")
def sort(tiles: Tiles, x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """Always stable: elements that are equal are ordered by where they were."""
    if not x.rank:
        return x, tiles.constant(0, INT)
    dim %= x.rank
    return _sorted(tiles, x, dim, descending)


@lowers("sort.stable", calls="popops.sort_key_value")
def sort_stable(
    tiles: Tiles, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[Tensor, Tensor]:
    del stable  # sorting more than was requested does no harm
    return sort(tiles, x, dim, descending)


@lowers("argsort.stable", calls="popops.sort_key_value")
def argsort_stable(
    tiles: Tiles, x: Tensor, *, stable: bool, dim: int = -1, descending: bool = False
) -> Tensor:
    del stable
    return sort(tiles, x, dim, descending)[1]


@lowers("kthvalue", calls="popops.sort_key_value")
def kthvalue(
    tiles: Tiles, x: Tensor, k: int, dim: int = -1, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    if not x.rank:
        return sort(tiles, x)
    dim %= x.rank
    parts = [t.slice(k - 1, k, dim) for t in _sorted(tiles, x, dim, False)]
    values, places = parts if keepdim else [part.squeeze([dim]) for part in parts]
    return values, places


@lowers("topk", calls="popops.top_k_with_permutation")
def topk(
    tiles: Tiles, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[Tensor, Tensor]:
    del sorted  # sorted, requested or not
    if not x.rank:
        result = [t.reshape([1]).slice(0, k) for t in sort(tiles, x)]
        return result[0].reshape(tiles.result_shape(0)), result[1].reshape(tiles.result_shape(1))
    dim %= x.rank
    rows = _sortable(tiles, x).dim_roll(dim, x.rank - 1)
    values, places = popops.top_k_with_permutation(
        tiles.graph, rows, k, tiles.sequence, tiles.name, largest=largest,
        sort_order="DESCENDING" if largest else "ASCENDING",
    )  # fmt: skip
    values, places = values.dim_roll(x.rank - 1, dim), places.dim_roll(x.rank - 1, dim)
    return tiles.cast(values, x.type), places.reinterpret(INT)


def _sorted(tiles: Tiles, x: Tensor, dim: int, descends: bool) -> tuple[Tensor, Tensor]:
    keys = _sortable(tiles, x)
    places = _places(tiles, x.shape, dim)
    values, order = sort_pairs(
        tiles.graph, keys, places, dim, tiles.sequence, tiles.name, descends=descends
    )
    return tiles.cast(values, x.type), order


def _sortable(tiles: Tiles, x: Tensor) -> Tensor:
    """Small integers and bools are sorted as ints."""
    return x if x.type in _SORTED else tiles.cast(x, INT)


def _places(tiles: Tiles, shape: tuple[int, ...], dim: int) -> Tensor:
    """0, 1, … along a dimension, the same for all others."""
    n = shape[dim]
    key = ("places", n)
    if key not in tiles.shared:
        tiles.shared[key] = tiles.constant(np.arange(n), INT)
    places = tiles.shared[key].reshape([n if d == dim else 1 for d in range(len(shape))])
    return poputil.broadcast_view(places, shape)


# -- running sums and products ---------------------------------------------------------------------


@lowers("cumsum", calls="popops.scan")
def cumsum(tiles: Tiles, x: Tensor, dim: int, **_options: object) -> Tensor:
    return _scanned(tiles, x, dim, "ADD")


@lowers("cumprod", calls="popops.scan")
def cumprod(tiles: Tiles, x: Tensor, dim: int, **_options: object) -> Tensor:
    return _scanned(tiles, x, dim, "MUL")


def _scanned(tiles: Tiles, x: Tensor, dim: int, operation: str) -> Tensor:
    type = tiles.out_type
    scanned = type if type in _SORTED else INT
    x = tiles.cast(x, scanned)
    if x.rank:
        if poputil.repeats_elements(x):
            x = tiles.writeable_copy(x)
        x = popops.scan(tiles.graph, x, dim % x.rank, operation, tiles.sequence, tiles.name)
    return tiles.cast(x, type)
