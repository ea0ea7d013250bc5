"""Lowerings of updates: index_put, index_add and scatters, as planned updates of a table's rows."""

from math import prod

import numpy as np
from torch import fx

from tremula.base.types import BOOL, INT, Type
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.indexing.row_tables import (
    Along,
    Indexed,
    check_indices,
    combining_type,
    new_table,
    own_copy,
    put_rows,
    take_rows,
)
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers, prefers_layout
from tremula.ir.passes.table_gradients import OVERWRITES
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
    """For x[…, mask] = values: for each element a choice between the old and the new one."""
    n_before = next(i for i, index in enumerate(indices) if index is not None)
    mask = indices[n_before]
    if mask is None or any(index is not None for index in indices[n_before + 1 :]):
        raise UnsupportedOperations(
            "x[mask, …] = v with more indices beside the mask pairs them with the places that the"
            " mask selects, and only running the model tells how many those are.",
            source=tiles.origin.source if tiles.origin is not None else None,
            hint="use torch.where(mask, v, x) with a value for every place, or x.masked_scatter_",
        )
    if not x.n_elems:
        return x
    n_behind = x.rank - n_before - mask.rank
    new = _over_mask(tiles, tiles.cast(values, x.type), mask, n_behind)
    mask = mask.reshape((*mask.shape, *(1,) * n_behind))
    chosen = select(_1 + _2 if accumulate else _2, _1, _3)
    return popops.map(tiles.graph, chosen, [x, new, mask], tiles.sequence, tiles.name)


def _over_mask(tiles: Tiles, values: Tensor, mask: Tensor, n_behind: int) -> Tensor:
    """Values with the mask's dimensions in place of the one that counts what it selects.

    The n-th selected place gets the n-th of them: a running count says which that is.
    """
    dim = values.rank - n_behind - 1
    if dim < 0:
        return values
    before, n, behind = values.shape[:dim], values.shape[dim], values.shape[dim + 1 :]
    if n == 1:
        return values.reshape((*before, *(1,) * mask.rank, *behind))
    flat = tiles.cast(mask, INT).flatten()
    count = popops.scan(tiles.graph, flat, 0, "ADD", tiles.sequence, f"{tiles.name}/count")
    places = popops.map(
        tiles.graph, select(_1 - 1, 0, _1 > 0), [count], tiles.sequence, f"{tiles.name}/places"
    )
    check_indices(tiles, places, n)
    how = Indexed(values.shape, (dim,), (mask.n_elems,))
    rows = take_rows(tiles, how.table(values), places.reshape((1, mask.n_elems)))
    return how.result(rows).reshape((*before, *mask.shape, *behind))


@lowers("index_add", calls=f"{_UPDATE}_add")
def index_add(
    tiles: Tiles, x: Tensor, dim: int, indices: Tensor, source: Tensor, *, alpha: float = 1
) -> Tensor:
    type = combining_type(x.type, "add")
    shape = x.shape or (1,)
    check_indices(tiles, indices, shape[dim % len(shape)])
    how = Indexed(shape, (dim % len(shape),), (indices.n_elems,))
    target = x if OVERWRITES in tiles.node.meta else own_copy(tiles, x, type)
    source = tiles.cast(source, type)
    if alpha != 1:
        factor = tiles.constant(alpha, type)
        source = popops.mul(tiles.graph, source, factor, tiles.sequence, f"{tiles.name}/alpha")
    updates = how.rows_of_result(source.reshape(how.result_shape))
    rows = indices.reshape((1, indices.n_elems))
    put_rows(tiles, how.table(target.reshape(shape)), updates, rows, "add")
    return tiles.cast(target, x.type)


@prefers_layout("index_add", 0)
def table_of_rows(tiles: Tiles, node: fx.Node) -> Tensor | None:
    """A table that rows are added to is laid out like one that is looked up."""
    shape, dim = tiles.shape_of(0), node.args[1]
    if not shape or not isinstance(dim, int):
        return None
    how = Indexed(shape, (dim % len(shape),), (prod(tiles.shape_of(2)),))
    return how.from_table(new_table(tiles, how.sizes, tiles.type_of(0), "add"))


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
    if not indices.n_elems:  # of whatever rank
        return
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
