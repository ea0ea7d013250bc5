"""Multi-slice: many rows of a table at once, as an embedding does.

With a plan: first each tile takes the rows it has of its share of the lookups; if the table's rows
are split, a second stage collects, for every lookup, the one partial result that has the row. A
serial split does so with one block of lookups after the other.
"""

from collections.abc import Sequence

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import BOOL
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Abort, Copy, Execute, If
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensors.runs import Runs, ones
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popops.raw_words import as_words
from tremula.poplibs.popops.slicing.adjusted_indices import adjusted_indices, gathered
from tremula.poplibs.popops.slicing.codelets import check_indices_codelet, multi_slice_codelet
from tremula.poplibs.popops.slicing.dynamic_slice import (
    add_matrix_like,
    block_slices,
    regions_of_slice,
)
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.layout import (
    Parts,
    check_copyable,
    check_dims,
    check_plan,
    checked_indices,
    collected_rows,
    lookup_block,
    lookup_cuts,
    parts_of,
    planned_slices,
    planned_table,
    slice_shape,
    table_cuts,
    tile_of_parts,
    to_matrix,
)
from tremula.poplibs.popops.slicing.row_blocks import in_blocks, map_flat
from tremula.poplibs.popops.slicing.window_rows import window_rows
from tremula.poplibs.poputil import tile_regions
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray
# A table is rearranged for a lookup if that saves each tile this many pieces of exchange: 12 bytes
# of code each (`hardware/`), so 3 KB of a tile's 624; the copy takes memory and time, too.
LEAST_PIECES_SAVED = 256


def multi_slice(
    graph: Graph,
    table: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
    plan: SlicePlan | None = None,
    validate_indices: bool = False,
) -> Tensor:
    """[n, *slice]: slice i is `table` at indices[i] in `dims`, `sizes` long there.

    `indices` is [n, len(dims)], or [n] for one dimension. An index out of range gives zeros. With a
    plan, one dimension is sliced, by single rows.
    """
    dims, sizes, name = tuple(dims), tuple(sizes), name or "multiSlice"
    check_dims("multi_slice", table.shape, dims, sizes)
    check_copyable("multi_slice", table.type)
    offsets = checked_offsets("multi_slice", indices, len(dims))
    n, one = offsets.shape[0], slice_shape(table.shape, dims, sizes)
    if not n or not table.n_elems or 0 in sizes:
        return graph.add_variable(table.type, (n, *one), name, mapping="linear")
    if sizes != (1,):
        return _slice_windows(graph, table, offsets, dims, sizes, sequence, name)
    matrix, rows = to_matrix(table, dims), offsets.flatten()
    if validate_indices or (plan is not None and plan.options.validate_indices):
        add_index_check(graph, rows, matrix.shape[0], sequence, name)
    if plan is None:
        return _unplanned(graph, matrix, rows, sequence, name).reshape((n, *one))
    check_plan("multi_slice", plan, table.shape, dims)
    return _planned(graph, matrix, rows, plan, sequence, name).reshape((n, *one))


def grouped_multi_slice(
    graph: Graph,
    table: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    plan: SlicePlan,
) -> Tensor:
    """[groups, n, 1, row]: for each group, rows of its table [groups, entries, row]."""
    check_copyable("grouped_multi_slice", table.type)
    matrix, offsets = checked_groups("grouped_multi_slice", table, indices, plan)
    if plan.options.validate_indices:
        add_index_check(graph, offsets.flatten(), plan.n_entries, sequence, name or "multiSlice")
    out = _planned(graph, matrix, offsets.flatten(), plan, sequence, name or "groupedMultiSlice")
    return out.reshape((plan.n_groups, offsets.shape[1], 1, plan.row_size))


def checked_offsets(what: str, indices: Tensor, n_dims: int) -> Tensor:
    """Indices as UNSIGNED_INT [n, n_dims]."""
    offsets = checked_indices(what, indices)
    offsets = offsets.expand([1]) if offsets.rank == 1 else offsets
    if offsets.rank != 2 or offsets.shape[1] != n_dims:
        raise PoplibsError(
            f"{what} got indices of shape {list(indices.shape)}, expected [n, {n_dims}].",
            source=user_source(),
            hint="give one index per lookup and sliced dimension",
        )
    return offsets


def checked_groups(
    what: str, table: Tensor, indices: Tensor, plan: SlicePlan
) -> tuple[Tensor, Tensor]:
    """(tables below each other, UNSIGNED_INT [groups, n])."""
    offsets = checked_indices(what, indices)
    offsets = offsets.squeeze([2]) if offsets.rank == 3 and offsets.shape[2] == 1 else offsets
    if table.rank != 3 or offsets.rank != 2 or offsets.shape[0] != table.shape[0]:
        raise PoplibsError(
            f"{what} got a table of shape {list(table.shape)} and indices {list(indices.shape)}, "
            "expected [groups, entries, row] and [groups, n].",
            source=user_source(),
            hint="give each group its own table and indices",
        )
    check_plan(what, plan, table.shape[1:], (0,), table.shape[0])
    return table.flatten(0, 2), offsets


def add_index_check(
    graph: Graph, indices: Tensor, n_entries: int, sequence: ProgramSequence, name: str
) -> None:
    """Stop the program if an index is out of range."""
    regions = tile_regions(graph, indices)
    compute_set = graph.add_compute_set(f"{name}/validateIndices")
    graph.add_vertices(
        compute_set,
        check_indices_codelet(),
        {"indices": Slices(indices, regions.begin, regions.end), "n_entries": n_entries},
        tiles=regions.tile,
    )
    is_valid = graph.add_variable(BOOL, [], f"{name}/indicesAreValid", mapping=0)
    stop = Abort(f"{name}: an index is out of range, expected 0 to {n_entries - 1}")
    sequence.add(Execute(compute_set, is_valid), If(is_valid, ProgramSequence(), stop))


def _slice_windows(
    graph: Graph,
    table: Tensor,
    offsets: Tensor,
    dims: tuple[int, ...],
    sizes: tuple[int, ...],
    sequence: ProgramSequence,
    name: str,
) -> Tensor:
    """Slices of several rows or dimensions: one lookup for each of their rows."""
    shape = tuple(table.shape[d] for d in dims)
    rows = window_rows(graph, offsets, shape, sizes, sequence, name)
    result = _unplanned(graph, to_matrix(table, dims), rows, sequence, name)
    others = [d for d in range(table.rank) if d not in dims]
    order = [*dims, *others]
    one = [sizes[dims.index(d)] if d in dims else table.shape[d] for d in order]
    spread = result.reshape((offsets.shape[0], *one))
    return spread.dim_shuffle([0, *(1 + order.index(d) for d in range(table.rank))])


# -- without a plan --------------------------------------------------------------------------------


def _unplanned(
    graph: Graph, matrix: Tensor, rows: Tensor, sequence: ProgramSequence, name: str
) -> Tensor:
    """Every tile takes its columns of all lookups, following the map of the table's first row."""
    cuts, tiles = regions_of_slice(graph, matrix)
    out, own = add_matrix_like(graph, matrix.type, rows.n_elems, cuts, tiles, name)
    n = len(tiles)
    table = block_slices(matrix, cuts)
    run_vertices(
        graph,
        multi_slice_codelet(table.tensor.type),
        {
            "indices": Slices(rows, np.zeros(n, np.int64), np.full(n, rows.n_elems)),
            "table": table,
            "out": block_slices(out, own),
            "first_row": 0,
            "n_columns": np.diff(cuts.column),
            "n_entries": matrix.shape[0],
        },
        tiles,
        sequence,
        name,
    )
    return out


# -- with a plan -----------------------------------------------------------------------------------


def _planned(
    graph: Graph,
    matrix: Tensor,
    rows: Tensor,
    plan: SlicePlan,
    sequence: ProgramSequence,
    name: str,
) -> Tensor:
    """[n_groups * n, row_size]; `rows` are the groups' lookups, one group after the other."""
    out = planned_slices(graph, matrix.type, plan, rows.n_elems // plan.n_groups, name)
    lookups = PlannedLookups(graph, plan, rows, name)
    matrix = _in_blocks_of_plan(graph, matrix, plan, sequence, name)
    adjusted = None
    if plan.sliced_dim_split > 1:
        adjusted = lookups.adjusted_indices(sequence)
    for a_round in range(plan.lookup_serial_split):
        if adjusted is None:
            lookups.add_only_stage(matrix, out, a_round, sequence)
        else:
            partials, begin = lookups.add_first_stage(matrix, a_round, sequence)
            lookups.add_second_stage(adjusted, partials, begin, out, a_round, sequence)
    return out


def _in_blocks_of_plan(
    graph: Graph, matrix: Tensor, plan: SlicePlan, sequence: ProgramSequence, name: str
) -> Tensor:
    """The table as the plan lays tables out, if that saves many pieces of exchange.

    A tile looks in some columns of all rows. Where rows are in one piece, as other operations
    write them, it would receive each row's part by itself. Rearranged first, the tiles that look
    in one block receive a share of its rows each, and then the shares of the others:

        n rows: n pieces   ─►   n / lookup_split pieces in the copy, lookup_split in the lookup
    """
    cuts = table_cuts(plan)
    n_blocks = np.count_nonzero(np.diff(cuts.row)) * np.count_nonzero(np.diff(cuts.column))
    n_pieces = len(in_blocks(matrix, cuts).runs().start) // int(n_blocks)
    n_left = n_pieces // plan.lookup_split + plan.lookup_split
    if n_pieces - n_left < LEAST_PIECES_SAVED:
        return matrix
    table = planned_table(graph, matrix.type, plan, f"{name}/table")
    sequence.add(Copy(matrix, table))
    return table


class PlannedLookups:
    """Builds the stages of a planned multi-slice, round by round."""

    def __init__(self, graph: Graph, plan: SlicePlan, rows: Tensor, name: str) -> None:
        self.graph, self.plan, self.rows, self.name = graph, plan, rows, name
        self.cuts = lookup_cuts(plan, rows.n_elems // plan.n_groups)
        self.blocks = table_cuts(plan)

    def used_parts(self, a_round: int) -> tuple[Parts, Ints]:
        """Parts with lookups and columns, and their blocks of lookups.

        A plan may serve fewer lookups than it was made for.
        """
        parts = parts_of(self.plan)
        block = lookup_block(self.plan, parts, a_round)
        used = np.flatnonzero((self.cuts.height(block) > 0) & (self.cuts.width(parts.column) > 0))
        return parts.take(used), block[used]

    def table_interval(self, parts: Parts) -> tuple[Ints, Ints, Ints]:
        """(begin, end, first row) of the table's block that each part looks in."""
        p = parts.group * self.plan.sliced_dim_split + parts.row
        begin = self.blocks.begin(p, parts.column)
        end = begin + self.blocks.height(p) * self.blocks.width(parts.column)
        return begin, end, self.blocks.row[p] - parts.group * self.plan.n_entries

    def index_slices(self, block: Ints) -> Slices:
        return Slices(self.rows, self.cuts.row[block], self.cuts.row[block + 1])

    def _add_lookups(
        self, matrix: Tensor, parts: Parts, block: Ints, out: Slices, sequence: ProgramSequence
    ) -> None:
        begin, end, first_row = self.table_interval(parts)
        run_vertices(
            self.graph,
            multi_slice_codelet(out.tensor.type),
            {
                "indices": self.index_slices(block),
                "table": Slices(as_words(in_blocks(matrix, self.blocks)), begin, end),
                "out": out,
                "first_row": first_row,
                "n_columns": self.blocks.width(parts.column),
                "n_entries": self.plan.n_entries,
            },
            tile_of_parts(self.plan, parts),
            sequence,
            self.name,
        )

    def add_only_stage(
        self, matrix: Tensor, out: Tensor, a_round: int, sequence: ProgramSequence
    ) -> None:
        """Of a table whose rows are not split: straight into the result."""
        parts, block = self.used_parts(a_round)
        begin = self.cuts.begin(block, parts.column)
        end = begin + self.cuts.height(block) * self.cuts.width(parts.column)
        words = as_words(in_blocks(out, self.cuts))
        self._add_lookups(matrix, parts, block, Slices(words, begin, end), sequence)

    def add_first_stage(
        self, matrix: Tensor, a_round: int, sequence: ProgramSequence
    ) -> tuple[Tensor, Ints]:
        """(partial results, where each part's begin): each row part answers all lookups."""
        plan, (parts, block) = self.plan, self.used_parts(a_round)
        size = self.cuts.height(block) * self.cuts.width(parts.column)
        ends = np.cumsum(size)
        n_partials = int(ends[-1]) if len(ends) else 0
        partials = self.graph.add_variable(matrix.type, [n_partials], f"{self.name}/partials")
        map_flat(self.graph, partials, ends - size, ends, tile_of_parts(plan, parts))
        out = Slices(as_words(partials), ends - size, ends)
        self._add_lookups(matrix, parts, block, out, sequence)
        shape = (plan.n_groups, plan.lookup_split, plan.sliced_dim_split, plan.unsliced_dim_split)
        begin = np.zeros(shape, np.int64)
        begin[tuple(parts)] = ends - size
        return partials, begin

    def _collecting(self, a_round: int) -> tuple[Parts, Ints, Ints, Ints]:
        """(parts that collect lookups, their first of its block, how many, the block)."""
        parts, first, n_rows = collected_rows(self.plan, self.cuts, a_round)
        filled = np.flatnonzero((n_rows > 0) & (self.cuts.width(parts.column) > 0))
        parts = parts.take(filled)
        return parts, first[filled], n_rows[filled], lookup_block(self.plan, parts, a_round)

    def adjusted_indices(self, sequence: ProgramSequence) -> Tensor:
        """UNSIGNED_INT [n]: the row of each lookup among the partial results its tile collects."""
        plan = self.plan
        rounds = [self._collecting(a_round) for a_round in range(plan.lookup_serial_split)]
        first = np.concatenate([self.cuts.row[block] + at for _, at, _, block in rounds])
        n_rows = np.concatenate([n for _, _, n, _ in rounds])
        _, one_column = np.unique(first, return_index=True)
        part_rows = -(-plan.n_entries // plan.sliced_dim_split)
        return adjusted_indices(
            self.graph, self.rows, n_rows[one_column], part_rows, plan.n_entries, sequence,
            self.name,
        )  # fmt: skip

    def add_second_stage(
        self,
        adjusted: Tensor,
        partials: Tensor,
        partial_begin: Ints,
        out: Tensor,
        a_round: int,
        sequence: ProgramSequence,
    ) -> None:
        """Collect the lookups, spread over the tiles of all row parts: rows of partial results."""
        parts, first, n_rows, block = self._collecting(a_round)
        width = self.cuts.width(parts.column)
        begin = self.cuts.begin(block, parts.column) + first * width
        from_row = self.cuts.row[block] + first
        source = partial_begin[parts.group, parts.lookup, :, parts.column]  # [n, row parts]
        source = (source + (first * width)[:, None]).ravel()
        n_parts = self.plan.sliced_dim_split
        pieces = as_words(partials)
        size = np.repeat(n_rows * width, n_parts)
        table = gathered(pieces, Runs(source + pieces.offset, size, ones(len(size))))
        ends = np.cumsum(n_parts * n_rows * width)
        words = as_words(in_blocks(out, self.cuts))
        run_vertices(
            self.graph,
            multi_slice_codelet(words.type),
            {
                "indices": Slices(adjusted, from_row, from_row + n_rows),
                "table": Slices(table, ends - n_parts * n_rows * width, ends),
                "out": Slices(words, begin, begin + n_rows * width),
                "first_row": 0,
                "n_columns": width,
                "n_entries": n_parts * n_rows,
            },
            tile_of_parts(self.plan, parts),
            sequence,
            f"{self.name}/collect",
        )
