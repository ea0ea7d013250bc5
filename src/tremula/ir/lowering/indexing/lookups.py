"""Lowerings of lookups: embedding, index, index_select, gather, each as planned rows of a table."""

from math import prod
from typing import Any

from torch import fx

from tremula.base.types import BOOL
from tremula.ir.errors import UnsupportedOperations
from tremula.ir.lowering.indexing.row_tables import (
    Along,
    Indexed,
    RowTable,
    check_indices,
    new_table,
    put_rows,
    take_rows,
)
from tremula.ir.lowering.layouts import is_wanted_otherwise
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers, prefers_layout
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops, poputil
from tremula.poplibs.popops.elementwise.expr import _1, _2, maximum, select

_SLICE = "popops.grouped_multi_slice"


@lowers("embedding", calls=_SLICE)
def embedding(tiles: Tiles, table: Tensor, indices: Tensor, *_training: object) -> Tensor:
    check_indices(tiles, indices, table.shape[0])
    rows = take_rows(tiles, table.expand([0]), indices.reshape((1, indices.n_elems)))
    return rows.reshape(list(tiles.out_shape))


@lowers("embedding_dense_backward", calls="popops.grouped_multi_update_add, popops.map")
def embedding_dense_backward(
    tiles: Tiles, gradient: Tensor, indices: Tensor, n_entries: int, padding: int, by_freq: bool
) -> Tensor:
    """One update of a table of zeros; rows of the padding index get none."""
    width, n = gradient.shape[-1], indices.n_elems
    rows = indices.reshape((1, n))
    if padding >= 0:  # an index out of range changes nothing
        skipped = select(-1, _1, _1 == padding)
        rows = popops.map(tiles.graph, skipped, [rows], tiles.sequence, f"{tiles.name}/padding")
    table = _added_up(tiles, gradient.reshape((1, n, width)), rows, n_entries)
    if not by_freq:
        return table
    ones = poputil.broadcast_view(tiles.constant(1.0, gradient.type), (1, n, 1))
    counts = _added_up(tiles, ones, rows, n_entries)
    share = _1 / maximum(_2, 1.0)
    return popops.map(tiles.graph, share, [table, counts], tiles.sequence, f"{tiles.name}/share")


def _added_up(tiles: Tiles, updates: Tensor, rows: Tensor, n_entries: int) -> Tensor:
    """[entries, width]: the sum of the updates [1, n, width] of each row."""
    sizes = RowTable(1, n_entries, updates.shape[2], updates.shape[1])
    table = new_table(tiles, sizes, updates.type, "add")
    popops.zero(tiles.graph, table, tiles.sequence, f"{tiles.name}/zero")
    put_rows(tiles, table, updates, rows, "add")
    return table[0]


@lowers("index.Tensor", "_unsafe_index.Tensor", calls=_SLICE)
def index(tiles: Tiles, x: Tensor, indices: list[Tensor | None]) -> Tensor:
    if any(i is not None and i.type == BOOL for i in indices):
        raise UnsupportedOperations(
            "the shape of a tensor indexed by a mask depends on values.",
            source=tiles.origin.source if tiles.origin is not None else None,
            hint="use torch.where, which keeps the shape",
        )
    how = Indexed.of(x, indices)
    rows = take_rows(tiles, how.table(x), how.rows(tiles, indices))
    return how.result(rows)


@lowers("index_select", calls=_SLICE)
def index_select(tiles: Tiles, x: Tensor, dim: int, indices: Tensor) -> Tensor:
    if x.rank == 0:
        return x
    dim %= x.rank
    n = indices.n_elems
    check_indices(tiles, indices, x.shape[dim])
    how = Indexed(x.shape, (dim,), (n,))
    return how.result(take_rows(tiles, how.table(x), indices.reshape((1, n))))


@lowers("gather", calls=_SLICE)
def gather(tiles: Tiles, x: Tensor, dim: int, indices: Tensor, **_sparse: object) -> Tensor:
    if indices.rank == 0:
        return x.reshape([])
    if not indices.n_elems:  # of whatever rank
        return tiles.new(tiles.out_shape, x.type)
    x = x.reshape((1,)) if x.rank == 0 else x
    check_indices(tiles, indices, x.shape[dim % x.rank])
    how = Along.of(indices, dim % indices.rank)
    return how.result(take_rows(tiles, how.table(x), how.indices(indices)))


# -- preferred layouts of tables -------------------------------------------------------------------


@prefers_layout("embedding", 0)
def embedding_table(tiles: Tiles, node: fx.Node) -> Tensor:
    n_entries, width = tiles.shape_of(0)
    sizes = RowTable(1, n_entries, width, prod(tiles.shape_of(1)))
    if is_wanted_otherwise(node, 0):
        sizes.keep_rows_long(tiles)
    return new_table(tiles, sizes, tiles.type_of(0), None)[0]


@prefers_layout("index_select", 0)
def indexed_table(tiles: Tiles, node: fx.Node) -> Tensor | None:
    shape = tiles.shape_of(0)
    if not shape:
        return None
    dim: Any = node.args[1]
    how = Indexed(shape, (dim % len(shape),), tiles.shape_of(2))
    return how.from_table(new_table(tiles, how.sizes, tiles.type_of(0), None))
