"""Lowerings of reductions: sums, extremes, norms and moments over dimensions."""

import math
from collections.abc import Sequence as ListOf

from tremula.base.types import BOOL, FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.ir.lowering.pointwise.map import narrow, wide
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import schema_name
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops.elementwise.expr import (
    Cast,
    Expr,
    _1,
    _2,
    exp,
    is_inf,
    log,
    select,
    sqrt,
)

Dims = ListOf[int] | int | None
_N_SPREAD = 4096  # elements of a padded or broadcast tensor that is spread before it is reduced
_LEAST_REPEATED = 4  # times that its elements are repeated in the mean
_ORDERED = (FLOAT, HALF, INT, UNSIGNED_INT)  # what arg_max compares


def reduced_dims(x: Tensor, dim: Dims) -> list[int]:
    """Dimensions counted from the front; none given means all."""
    dims = [dim] if isinstance(dim, int) else list(dim or ())
    return sorted({d % max(x.rank, 1) for d in dims} if dims and x.rank else range(x.rank))


def count(x: Tensor, dims: ListOf[int]) -> int:
    return math.prod(x.shape[d] for d in dims)


def _reduce(
    tiles: Tiles,
    x: Tensor,
    dims: ListOf[int],
    operation: str,
    out: Type,
    scale: float | None = None,
) -> Tensor:
    """popops.reduce; types it cannot convert to `out` are cast before."""
    if x.type != out and not (operation != "MAX" and {x.type, out} <= {FLOAT, HALF}):
        x = tiles.cast(x, out)
    x = without_padding(tiles, x)
    if not x.rank:  # the scale, and what happens to each element, count for a scalar too
        x, dims = x.reshape([1]), [0]
    return popops.reduce(
        tiles.graph, x, dims, operation, tiles.sequence, tiles.name, out_type=out, scale=scale
    )


def without_padding(tiles: Tiles, x: Tensor) -> Tensor:
    """A tensor to reduce, written out over all tiles if it is mostly padding.

    Padding is one element on one tile, which would read it as often as it is repeated.
    """
    return tiles.writeable_copy(x) if _is_mostly_padding(x) else x


def _is_mostly_padding(x: Tensor) -> bool:
    """Few elements of memory for many of the tensor; others are best reduced where they are."""
    if x.n_elems < _N_SPREAD or not poputil.repeats_elements(x):
        return False
    begin, end = x.covered_intervals()
    return int((end - begin).sum()) * _LEAST_REPEATED <= x.n_elems * x.type.n_bytes


def _map(tiles: Tiles, expr: Expr, *tensors: Tensor) -> Tensor:
    return popops.map(tiles.graph, expr, list(tensors), tiles.sequence, tiles.name)


@lowers("sum", "sum.dim_IntList", calls="popops.reduce")
def sum_(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: object) -> Tensor:
    del keepdim
    total = _reduce(tiles, x, reduced_dims(x, dim), "ADD", tiles.out_type)
    return total.reshape(list(tiles.out_shape))


@lowers("mean", "mean.dim", calls="popops.reduce")
def mean(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: object) -> Tensor:
    del keepdim
    dims = reduced_dims(x, dim)
    n = count(x, dims)
    scale = 1 / n if n else math.nan
    return _reduce(tiles, x, dims, "ADD", tiles.out_type, scale).reshape(list(tiles.out_shape))


@lowers("prod", "prod.dim_int", calls="popops.reduce")
def prod(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False, **_: object) -> Tensor:
    del keepdim
    product = _reduce(tiles, x, reduced_dims(x, dim), "MUL", tiles.out_type)
    return product.reshape(list(tiles.out_shape))


@lowers("amax", "max", calls="popops.reduce")
def amax(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    del keepdim
    operation = "LOGICAL_OR" if x.type == BOOL else "MAX"
    return _extreme(tiles, x, dim, operation)


@lowers("amin", "min", calls="popops.reduce")
def amin(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    del keepdim
    operation = "LOGICAL_AND" if x.type == BOOL else "MIN"
    return _extreme(tiles, x, dim, operation)


def _extreme(tiles: Tiles, x: Tensor, dim: Dims, operation: str) -> Tensor:
    type = x.type if x.type in (*_ORDERED, BOOL) else INT
    result = _reduce(tiles, x, reduced_dims(x, dim), operation, type)
    return tiles.cast(result, tiles.out_type).reshape(list(tiles.out_shape))


@lowers("any", "any.dim", "any.dims", calls="popops.neq, popops.reduce")
def any_(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    del keepdim
    result = _reduce(tiles, truth(tiles, x), reduced_dims(x, dim), "LOGICAL_OR", BOOL)
    return tiles.cast(result, tiles.out_type).reshape(list(tiles.out_shape))


@lowers("all", "all.dim", "all.dims", calls="popops.neq, popops.reduce")
def all_(tiles: Tiles, x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    del keepdim
    result = _reduce(tiles, truth(tiles, x), reduced_dims(x, dim), "LOGICAL_AND", BOOL)
    return tiles.cast(result, tiles.out_type).reshape(list(tiles.out_shape))


def truth(tiles: Tiles, x: Tensor) -> Tensor:
    """Whether elements differ from 0."""
    if x.type == BOOL:
        return x
    return popops.neq(tiles.graph, x, tiles.constant(0, x.type), tiles.sequence, tiles.name)


# -- places of extremes ----------------------------------------------------------------------------


@lowers("argmax", calls="popops.arg_max")
def argmax(tiles: Tiles, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    del keepdim
    places = popops.arg_max(tiles.graph, _rows(tiles, x, dim), tiles.sequence, tiles.name)
    return places.reinterpret(INT).reshape(list(tiles.out_shape))


@lowers("argmin", calls="popops.arg_min")
def argmin(tiles: Tiles, x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    del keepdim
    places = popops.arg_min(tiles.graph, _rows(tiles, x, dim), tiles.sequence, tiles.name)
    return places.reinterpret(INT).reshape(list(tiles.out_shape))


@lowers("max.dim", calls="popops.max_and_arg_max")
def max_dim(tiles: Tiles, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    del keepdim
    rows = _rows(tiles, x, dim)
    both = popops.max_and_arg_max(tiles.graph, rows, tiles.sequence, tiles.name)
    return _values_and_places(tiles, *both)


@lowers("min.dim", calls="popops.min_and_arg_min")
def min_dim(tiles: Tiles, x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    del keepdim
    rows = _rows(tiles, x, dim)
    both = popops.min_and_arg_min(tiles.graph, rows, tiles.sequence, tiles.name)
    return _values_and_places(tiles, *both)


def _rows(tiles: Tiles, x: Tensor, dim: int | None) -> Tensor:
    """A comparable tensor whose last dimension is the searched one."""
    rows = x.flatten() if dim is None else last_dim(x, dim)
    return rows if rows.type in _ORDERED else tiles.cast(rows, INT)


def last_dim(x: Tensor, dim: int) -> Tensor:
    """The tensor with one dimension moved to the end; a scalar becomes a vector."""
    if x.rank == 0:
        return x.reshape([1])
    return x.dim_roll(dim % x.rank, x.rank - 1)


def _values_and_places(tiles: Tiles, values: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
    shape = list(tiles.result_shape(0))
    values = tiles.cast(values, tiles.result_type(0))
    return values.reshape(shape), places.reinterpret(INT).reshape(shape)


# -- norms and moments -----------------------------------------------------------------------------


@lowers("linalg_vector_norm", calls="popops.map, popops.reduce")
def linalg_vector_norm(
    tiles: Tiles, x: Tensor, order: float = 2, dim: Dims = None, keepdim: bool = False, **_: object
) -> Tensor:
    del keepdim
    dims = reduced_dims(x, dim)
    value = wide(_1, x.type)
    if order == 2:
        total = _reduce(tiles, x, dims, "SQUARE_ADD", FLOAT)
        result = _map(tiles, narrow(sqrt(_1), tiles.out_type), total)
    elif math.isinf(order):
        result = _reduce(
            tiles, _map(tiles, abs(_1), x), dims, "MAX" if order > 0 else "MIN", x.type
        )
    else:
        known: dict[float, Expr] = {0: Cast(_1 != 0.0, FLOAT), 1: abs(value)}
        terms = known.get(order, abs(value) ** float(order))
        result = _reduce(tiles, _map(tiles, terms, x), dims, "ADD", FLOAT)
        if order not in (0, 1):
            result = _map(tiles, _1 ** (1.0 / order), result)
    return tiles.cast(result, tiles.out_type).reshape(list(tiles.out_shape))


def _moments(tiles: Tiles, x: Tensor, dim: Dims, correction: float | None) -> tuple[Tensor, Tensor]:
    """Variance and mean as floats; the mean is taken off before squaring."""
    dims = reduced_dims(x, dim)
    n = count(x, dims)
    average = _reduce(tiles, x, dims, "ADD", FLOAT, 1 / n if n else math.nan)
    beside = average.reshape([1 if d in dims else size for d, size in enumerate(x.shape)])
    centred = _map(tiles, wide(_1, x.type) - _2, x, beside)
    divisor = max(n - (1 if correction is None else correction), 0)
    scale = 1 / divisor if divisor else math.inf
    return _reduce(tiles, centred, dims, "SQUARE_ADD", FLOAT, scale), average


@lowers("var.correction", "std.correction", calls="popops.reduce, popops.map")
def var(
    tiles: Tiles, x: Tensor, dim: Dims = None, *, correction: float | None = None, **_: object
) -> Tensor:
    result, _mean = _moments(tiles, x, dim, correction)
    if schema_name(tiles.node) == "aten::std":
        result = _map(tiles, narrow(sqrt(_1), tiles.out_type), result)
    return tiles.cast(result, tiles.out_type).reshape(list(tiles.out_shape))


@lowers("var_mean.correction", "std_mean.correction", calls="popops.reduce, popops.map")
def var_mean(
    tiles: Tiles, x: Tensor, dim: Dims = None, *, correction: float | None = None, **_: object
) -> tuple[Tensor, Tensor]:
    first, average = _moments(tiles, x, dim, correction)
    if schema_name(tiles.node) == "aten::std_mean":
        first = _map(tiles, sqrt(_1), first)
    type, shape = tiles.result_type(0), list(tiles.result_shape(0))
    return tiles.cast(first, type).reshape(shape), tiles.cast(average, type).reshape(shape)


@lowers("logsumexp", calls="popops.reduce, popops.map")
def logsumexp(tiles: Tiles, x: Tensor, dim: Dims, keepdim: bool = False) -> Tensor:
    """The largest element is subtracted first, unless it is infinite."""
    del keepdim
    x = tiles.cast(x, FLOAT) if x.type not in (FLOAT, HALF) else x
    dims = reduced_dims(x, dim)
    largest = tiles.cast(_reduce(tiles, x, dims, "MAX", x.type), FLOAT)
    shift = _map(tiles, select(0.0, _1, is_inf(_1)), largest)
    beside = shift.reshape([1 if d in dims else size for d, size in enumerate(x.shape)])
    powers = _map(tiles, exp(wide(_1, x.type) - _2), x, beside)
    total = _reduce(tiles, powers, dims, "ADD", FLOAT)
    result = _map(tiles, narrow(log(_1) + _2, tiles.out_type), total, shift)
    return result.reshape(list(tiles.out_shape))
