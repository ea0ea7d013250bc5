"""Tables of rows: planned lookups and updates, and how ATen's indexing becomes rows of a table."""

from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from tremula.base.types import FLOAT, HALF, INT, UNSIGNED_INT, Type
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.nodes import schema_name
from tremula.poplar.programs import AbortOnCondition
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops
from tremula.poplibs.popops.elementwise.expr import Expr, PlaceHolder, _1, select
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.embedding_plan import plan as plan_lookups

Shape = tuple[int, ...]
_COMBINED = (FLOAT, HALF, INT, UNSIGNED_INT)  # types that rows may be added or compared in
# Of a block of a table that products read, too: with less, the code of exchanges that rearrange it
# outgrows what narrow blocks save.
LEAST_ROW_BYTES = 128
_FULL = {torch.ops.aten.full.default: 1, torch.ops.aten.full_like.default: 1}


@dataclass(frozen=True)
class RowTable:
    """The sizes of [groups, entries, width], looked up at [groups, n]."""

    n_groups: int
    n_entries: int
    width: int
    n_lookups: int

    @staticmethod
    def of(table: Tensor, indices: Tensor) -> "RowTable":
        n_groups, n_entries, width = table.shape
        return RowTable(n_groups, n_entries, width, indices.shape[1])

    @property
    def is_empty(self) -> bool:
        return 0 in (self.n_groups, self.n_entries, self.width, self.n_lookups)

    @property
    def _key(self) -> tuple[object, ...]:
        return "rows of blocks", self.n_groups, self.n_entries, self.width

    def keep_rows_long(self, tiles: Tiles) -> None:
        """Of this table, its gradient and others of its size: they are rearranged row by row."""
        tiles.shared[self._key] = LEAST_ROW_BYTES

    def plan(self, tiles: Tiles, type: Type, operation: str | None) -> SlicePlan:
        """For lookups (operation None) or for updates; in training one plan serves both.

        So the gradient of an embedding is laid out like its table.
        """
        is_training = tiles.options.is_training
        options: dict[str, object] = {
            "used_for_slice": operation is None or (is_training and operation == "add"),
            "used_for_update": operation is not None or is_training,
            "operation_for_update": operation or "add",
        }
        if (least := tiles.shared.get(self._key)) is not None:
            options["least_row_bytes"] = least
        memory = tiles.product_options().get("available_memory_proportion")
        if memory is not None:
            options["available_memory_proportion"] = memory
        sizes = self.n_entries, self.width, self.n_lookups
        return plan_lookups(tiles.graph, type, *sizes, options, n_groups=self.n_groups)


def take_rows(tiles: Tiles, table: Tensor, indices: Tensor) -> Tensor:
    """[groups, n, width]: rows of a table [groups, entries, width] at indices [groups, n]."""
    sizes = RowTable.of(table, indices)
    if sizes.is_empty:
        return tiles.new((table.shape[0], indices.shape[1], table.shape[2]), table.type)
    plan = sizes.plan(tiles, table.type, None)
    indices = tiles.cast(indices, INT)
    result = popops.grouped_multi_slice(
        tiles.graph, table, indices, tiles.sequence, tiles.name, plan=plan
    )
    return result.squeeze([2])


def put_rows(
    tiles: Tiles, table: Tensor, updates: Tensor, indices: Tensor, operation: str = "set"
) -> None:
    """Combine updates [groups, n, width] into a table, in place: "set", "add", "max" or "mul"."""
    sizes = RowTable.of(table, indices)
    if sizes.is_empty:
        return
    indices = tiles.cast(indices, INT)
    if operation in ("max", "mul"):
        _put_below_each_other(tiles, table, updates, indices, operation)
        return
    put = popops.grouped_multi_update_add if operation == "add" else popops.grouped_multi_update
    plan = sizes.plan(tiles, table.type, operation)
    rows = updates.expand([2])
    put(tiles.graph, table, rows, indices, tiles.sequence, tiles.name, plan=plan)


def _put_below_each_other(
    tiles: Tiles, table: Tensor, updates: Tensor, indices: Tensor, operation: str
) -> None:
    """Groups as one table: poplibs has these updates for one group only."""
    n_groups, n_entries, width = table.shape
    if n_groups > 1:
        first = tiles.constant([[g * n_entries] for g in range(n_groups)], INT)
        indices = popops.add(tiles.graph, indices, first, tiles.sequence, tiles.name)
    sizes = RowTable(1, n_groups * n_entries, width, indices.n_elems)
    plan = sizes.plan(tiles, table.type, operation)
    put = {"max": popops.multi_update_max, "mul": popops.multi_update_mul}[operation]
    rows = updates.reshape((indices.n_elems, 1, width))
    whole = table.reshape((n_groups * n_entries, width))
    put(tiles.graph, whole, rows, indices.flatten(), tiles.sequence, tiles.name, plan=plan)


def new_table(tiles: Tiles, sizes: RowTable, type: Type, operation: str | None) -> Tensor:
    """A variable [groups, entries, width] laid out as its plan wants it."""
    shape = (sizes.n_groups, sizes.n_entries, sizes.width)
    if sizes.is_empty or sizes.n_groups > 1:
        return tiles.new(shape, type)
    plan = sizes.plan(tiles, type, operation)
    return popops.create_sliceable_tensor(
        tiles.graph, type, shape[1:], name=tiles.name, plan=plan
    ).expand([0])


def own_copy(tiles: Tiles, x: Tensor, type: Type) -> Tensor:
    """A copy of the first operand that updates may write."""
    node: Any = tiles.node.args[0]
    if node.target in _FULL and isinstance(value := node.args[1], bool | int | float):
        filled = tiles.new(x.shape, type)
        if filled.n_elems:
            popops.fill(tiles.graph, filled, value, tiles.sequence, tiles.name)
        return filled
    changed = tiles.cast(x, type)
    return changed if changed is not x else tiles.writeable_copy(x)


def combining_type(type: Type, operation: str) -> Type:
    """The type in which rows are combined: bools and short integers are added as int."""
    return type if operation == "set" or type in _COMBINED else INT


# -- advanced indexing -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Indexed:
    """x[indices]: which dimensions are indexed, and the shape their index tensors broadcast to."""

    x_shape: Shape
    dims: Shape  # that are indexed
    index_shape: Shape

    @staticmethod
    def of(x: Tensor, indices: list[Tensor | None]) -> "Indexed":
        dims = tuple(d for d, index in enumerate(indices) if index is not None)
        shapes = [index.shape for index in indices if index is not None]
        return Indexed(x.shape, dims, tuple(torch.broadcast_shapes(*shapes)))

    @property
    def others(self) -> Shape:
        return tuple(d for d in range(len(self.x_shape)) if d not in self.dims)

    @property
    def sizes(self) -> RowTable:
        n_entries = prod(self.x_shape[d] for d in self.dims)
        width = prod(self.x_shape[d] for d in self.others)
        return RowTable(1, n_entries, width, prod(self.index_shape))

    @property
    def n_before(self) -> int:
        """Dimensions of the result before those of the indices: 0 if the indexed ones are apart."""
        together = self.dims == tuple(range(self.dims[0], self.dims[-1] + 1))
        return self.dims[0] if together else 0

    def table(self, x: Tensor) -> Tensor:
        """The tensor as [1, entries, width]."""
        view = x.dim_shuffle([*self.dims, *self.others])
        return view.reshape((1, self.sizes.n_entries, self.sizes.width))

    def from_table(self, table: Tensor) -> Tensor:
        order = (*self.dims, *self.others)
        view = table.reshape(tuple(self.x_shape[d] for d in order))
        return view.dim_shuffle([order.index(d) for d in range(len(order))])

    def result(self, rows: Tensor) -> Tensor:
        """Rows [1, n, width] in the order of dimensions that indexing gives."""
        n_index = len(self.index_shape)
        others = tuple(self.x_shape[d] for d in self.others)
        view = rows.reshape((*self.index_shape, *others))
        before = range(n_index, n_index + self.n_before)
        after = range(n_index + self.n_before, view.rank)
        return view.dim_shuffle([*before, *range(n_index), *after])

    def rows_of_result(self, values: Tensor) -> Tensor:
        """What `result` undoes: a tensor of the result's shape as rows [1, n, width]."""
        n_index, first = len(self.index_shape), self.n_before
        after = range(first + n_index, values.rank)
        view = values.dim_shuffle([*range(first, first + n_index), *range(first), *after])
        return view.reshape((1, self.sizes.n_lookups, self.sizes.width))

    @property
    def result_shape(self) -> Shape:
        others = tuple(self.x_shape[d] for d in self.others)
        return (*others[: self.n_before], *self.index_shape, *others[self.n_before :])

    def rows(self, tiles: Tiles, indices: list[Tensor | None]) -> Tensor:
        """INT [1, n]: the rows of the table that the indices mean; negative ones count back."""
        tensors = [tiles.cast(index, INT) for index in indices if index is not None]
        for index, dim in zip(tensors, self.dims, strict=True):
            check_indices(tiles, index, self.x_shape[dim], first=-self.x_shape[dim])
        rows, step = [], 1
        for place in reversed(range(len(tensors))):
            n, index = self.x_shape[self.dims[place]], PlaceHolder(place + 1)
            rows.append(select(index + n, index, index < 0) * step)
            step *= n
        total = sum(rows[1:], rows[0])
        result = popops.map(tiles.graph, total, tensors, tiles.sequence, f"{tiles.name}/rows")
        return result.reshape((1, self.sizes.n_lookups))


# -- gather and scatter along one dimension --------------------------------------------------------


@dataclass(frozen=True)
class Along:
    """Indices along one dimension, of the shape of the result.

    Dimensions along which the index only repeats itself, as when it was expanded, are columns of
    the table; the others are groups, each with its own table.
    """

    dim: int
    shape: Shape  # of the index
    order: Shape  # of dimensions: groups, dim, columns
    n_groups: int
    width: int

    @staticmethod
    def of(index: Tensor, dim: int) -> "Along":
        others = [d for d in range(index.rank) if d != dim]
        columns = [d for d in others if index.shape[d] > 1 and index.strides[d] == 0]
        groups = [d for d in others if d not in columns]
        n_groups = prod(index.shape[d] for d in groups)
        width = prod(index.shape[d] for d in columns)
        return Along(dim, index.shape, (*groups, dim, *columns), n_groups, width)

    def part(self, x: Tensor) -> Tensor:
        """Other dimensions cut to the size the index has."""
        for d, n in enumerate(self.shape):
            if d != self.dim and x.shape[d] != n:
                x = x.slice(0, n, d)
        return x

    def table(self, x: Tensor) -> Tensor:
        """[groups, entries, width]; a view, so that updates of it change x."""
        part = self.part(x)
        return part.dim_shuffle(list(self.order)).reshape(
            (self.n_groups, x.shape[self.dim], self.width)
        )

    def indices(self, index: Tensor) -> Tensor:
        """[groups, n], each index once."""
        for d in self.order[self.order.index(self.dim) + 1 :]:
            index = index.slice(0, 1, d)
        n = self.shape[self.dim]
        return index.dim_shuffle(list(self.order)).reshape((self.n_groups, n))

    def updates(self, source: Tensor) -> Tensor:
        for d, n in enumerate(self.shape):
            source = source.slice(0, n, d) if source.shape[d] != n else source
        n = self.shape[self.dim]
        return source.dim_shuffle(list(self.order)).reshape((self.n_groups, n, self.width))

    def result(self, rows: Tensor) -> Tensor:
        view = rows.reshape(tuple(self.shape[d] for d in self.order))
        return view.dim_shuffle([self.order.index(d) for d in range(len(self.order))])


# -- indices out of range: they read zeros and write nothing; strict mode stops --------------------


def check_indices(
    tiles: Tiles, indices: Tensor, n_entries: int, *, first: int = 0, ignored: int | None = None
) -> None:
    """In strict mode, stop with the operation, its module and line if one is out of range."""
    if not tiles.options.checks_indices or not indices.n_elems:
        return
    is_outside: Expr = (_1 < first) | (_1 >= n_entries)
    if ignored is not None:
        is_outside = is_outside & (_1 != ignored)
    name = f"{tiles.name}/check"
    outside = popops.map(tiles.graph, is_outside, [indices], tiles.sequence, name)
    result = popops.reduce(tiles.graph, outside.flatten(), [0], "LOGICAL_OR", tiles.sequence, name)
    tiles.sequence.add(AbortOnCondition(result, _message(tiles, first, n_entries)))


def _message(tiles: Tiles, first: int, n_entries: int) -> str:
    module = (tiles.origin.module if tiles.origin is not None else "") or "the model"
    return (
        f"{schema_name(tiles.node)} in {module}: an index is out of range, expected {first} to"
        f" {n_entries - 1}; clamp or mask it (without strict mode it reads zeros, writes nothing)"
    )
