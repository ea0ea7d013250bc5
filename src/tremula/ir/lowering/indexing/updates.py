"""Lowerings of updates: index_put, index_add and scatters, as planned updates of a table's rows."""

import numpy as np

from tremula.base.types import BOOL, INT, Type
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.indexing.row_tables import (
    Along,
    Indexed,
    check_indices,
    combining_type,
    own_copy,
    put_rows,
)
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.expr import _1, _2, _3, select
from tremula.poplibs.poputil import broadcast_view

_UPDATE = "popops.grouped_multi_update"
# Names of reductions in PyTorch, and of the update that does them.
_OPERATIONS = {
    "add": "add", "sum": "add", "mean": "add", "multiply": "mul", "prod": "mul", "amax": "max",
    "amin": "max",
}  # fmt: skip


@lowers("index_put", "_unsafe_index_put", calls=f"{_UPDATE}, {_UPDATE}_add")
def index_put(
    tiles: Tiles, x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy with x[indices] = values, or += values; of equal ones the last wins, or all count."""
    if any(i is not None and i.type == BOOL for i in indices):
        return _masked_put(tiles, x, indices, values, accumulate)
    operation = "add" if accumulate else "set"
    type = combining_type(x.type, operation)
    how = Indexed.of(x, indices)
    target = own_copy(tiles, x, type)
    updates = how.rows_of_result(broadcast_view(tiles.cast(values, type), how.result_shape))
    put_rows(tiles, how.table(target), updates, how.rows(tiles, indices), operation)
    return tiles.cast(target, x.type)


def _masked_put(
    tiles: Tiles, x: Tensor, indices: list[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor:
    """For x[mask] = value: a choice for each element, if one value serves them all."""
    mask = indices[0]
    if len(indices) != 1 or mask is None or values.n_elems != 1:
        raise UnsupportedOperations(
            f"x[mask] = v takes the {values.n_elems} values of v one after another, and only"
            " running the model tells which place gets which.",
            source=tiles.origin.source if tiles.origin is not None else None,
            hint="use torch.where(mask, v, x) with a value for every place, or x.masked_scatter_",
        )
    mask = mask.reshape((*mask.shape, *(1,) * (x.rank - mask.rank)))
    value = tiles.cast(values.reshape(()), x.type)
    new = _1 + _2 if accumulate else _2
    chosen = select(new, _1, _3)
    return popops.map(tiles.graph, chosen, [x, value, mask], tiles.sequence, tiles.name)


@lowers("index_add", calls=f"{_UPDATE}_add")
def index_add(
    tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    type = combining_type(x.type, "add")
    shape = x.shape or (1,)
    check_indices(tiles, indices, shape[dim % len(shape)])
    how = Indexed(shape, (dim % len(shape),), (indices.n_elems,))
    target = own_copy(tiles, x, type)
    source = tiles.cast(source, type)
    if alpha != 1:
        factor = tiles.constant(alpha, type)
        source = popops.mul(tiles.graph, source, factor, tiles.sequence, f"{tiles.name}/alpha")
    updates = how.rows_of_result(source.reshape(how.result_shape))
    rows = indices.reshape((1, indices.n_elems))
    put_rows(tiles, how.table(target.reshape(shape)), updates, rows, "add")
    return tiles.cast(target, x.type)


# -- scatters --------------------------------------------------------------------------------------


@lowers("scatter.src", "scatter.value", calls=_UPDATE)
def scatter(tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor | float) -> Tensor:
    return _scattered(tiles, x, dim, indices, source, "set")


@lowers("scatter_add", calls=f"{_UPDATE}_add")
def scatter_add(tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor) -> Tensor:
    return _scattered(tiles, x, dim, indices, source, "add")


@lowers("scatter.reduce", "scatter.value_reduce", calls=f"{_UPDATE}_add, popops.multi_update_mul")
def scatter_by_name(
    tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor | float, *, reduce: str
) -> Tensor:
    return _scattered(tiles, x, dim, indices, source, _OPERATIONS[reduce])


def _scattered(
    tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor | float, operation: str
) -> Tensor:
    type = combining_type(x.type, operation)
    shape = x.shape or (1,)
    target = own_copy(tiles, x, type)
    _put(tiles, target.reshape(shape), dim, indices, source, operation)
    return tiles.cast(target, x.type)


def _put(
    tiles: Tiles, target: Tensor, dim: int, indices: Tensor, source: Tensor | float, operation: str
) -> None:
    """Combine a source of the index's shape, or a number, into the target."""
    indices = indices.reshape((1,)) if indices.rank == 0 else indices
    check_indices(tiles, indices, target.shape[dim % target.rank])
    how = Along.of(indices, dim % indices.rank)
    if not isinstance(source, Tensor):
        source = broadcast_view(tiles.constant(source, target.type), indices.shape)
    source = source.reshape((1,)) if source.rank == 0 else source
    updates = how.updates(tiles.cast(source, target.type))
    put_rows(tiles, how.table(target), updates, how.indices(indices), operation)


@lowers(
    "scatter_reduce.two",
    calls=f"{_UPDATE}_add, popops.multi_update_mul, popops.multi_update_max",
)
def scatter_reduce(
    tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor, reduce: str,
    *, include_self: bool = True,
) -> Tensor:  # fmt: skip
    """sum, prod, mean, amax or amin; without self, rows that are written start from nothing."""
    operation = _OPERATIONS[reduce]
    type = combining_type(x.type, operation)
    negate = reduce == "amin"
    target = own_copy(tiles, x, type).reshape(x.shape or (1,))
    source = tiles.cast(source, type)
    if negate:  # the minimum is minus the maximum of the negated values
        target = popops.neg(tiles.graph, target, tiles.sequence, tiles.name)
        source = popops.neg(tiles.graph, source, tiles.sequence, tiles.name)
    if not include_self:
        _put(tiles, target, dim, indices, _neutral(operation, type), "set")
    _put(tiles, target, dim, indices, source, operation)
    if negate:
        target = popops.neg(tiles.graph, target, tiles.sequence, tiles.name)
    if reduce == "mean":
        target = _averaged(tiles, target, dim, indices, include_self)
    return tiles.cast(target.reshape(x.shape), x.type)


def _neutral(operation: str, type: Type) -> float | int:
    if operation == "max":
        return -np.inf if type.is_floating else int(np.iinfo(type.dtype).min) + 1
    return {"add": 0, "mul": 1}[operation]


def _averaged(tiles: Tiles, total: Tensor, dim: int, indices: Tensor, include_self: bool) -> Tensor:
    """Sums divided by how many were summed; whole numbers round down."""
    counts = tiles.new(total.shape, INT, f"{tiles.name}/counts")
    popops.fill(tiles.graph, counts, int(include_self), tiles.sequence, f"{tiles.name}/counts")
    _put(tiles, counts, dim, indices, 1, "add")
    at_least_one = select(_2, 1, _2 > 0)
    if total.type.is_floating:
        counts = tiles.cast(counts, total.type)
        return popops.map(
            tiles.graph, _1 / at_least_one, [total, counts], tiles.sequence, tiles.name
        )
    quotient = _1 / at_least_one
    rest = _1 - quotient * at_least_one
    rounded = select(quotient - 1, quotient, rest < 0)
    return popops.map(tiles.graph, rounded, [total, counts], tiles.sequence, tiles.name)
