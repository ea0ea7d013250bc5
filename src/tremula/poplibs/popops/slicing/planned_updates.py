"""The stages of a planned multi-update: partial tables, updates, joining and applying."""

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popops.raw_words import as_words
from tremula.poplibs.popops.reduction.plan import takes_stages
from tremula.poplibs.popops.reduction.reduce import reduce_with_output
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.layout import (
    Parts,
    lookup_cuts,
    planned_slices,
    table_shares,
    tile_of_parts,
)
from tremula.poplibs.popops.slicing.multi_slice import PlannedLookups
from tremula.poplibs.popops.slicing.row_blocks import in_blocks, map_flat
from tremula.poplibs.popops.slicing.update_codelets import (
    apply_updates_codelet,
    join_partials_codelet,
    multi_update_codelet,
    scaled_update_codelet,
)
from tremula.poplibs.poputil.steps import run_vertices

Ints = np.ndarray


def add_updates(
    graph: Graph,
    fields: dict[str, object],
    tiles: Ints,
    operation: str,
    scale: Tensor | None,
    sequence: ProgramSequence,
    name: str,
    *,
    starts: bool = False,
) -> None:
    """One compute set of update vertices; rows that are only written go as words.

    Vertices that start a table do not read what it held before.
    """
    table, updates = fields["table"], fields["updates"]
    assert isinstance(table, Slices), "tables are cut into blocks"
    assert isinstance(updates, Slices), "updates are cut into blocks"
    if operation == "set":
        fields = {
            **fields,
            "table": Slices(as_words(table.tensor), table.begin, table.end),
            "updates": Slices(as_words(updates.tensor), updates.begin, updates.end),
        }
        word = as_words(table.tensor).type
        codelet = multi_update_codelet(word, word, "set")
    elif scale is not None:
        fields = {**fields, "scale": scale.expand([0]).broadcast(len(tiles))}
        codelet = scaled_update_codelet(table.tensor.type)
    else:
        codelet = multi_update_codelet(updates.tensor.type, table.tensor.type, operation, starts)
    run_vertices(graph, codelet, fields, tiles, sequence, name)


def arranged_updates(
    graph: Graph, new: Tensor, plan: SlicePlan, rows: Tensor, sequence: ProgramSequence, name: str
) -> Tensor:
    """The updates copied to the plan's layout, so that each tile receives them in one piece."""
    n_lookups = rows.n_elems // plan.n_groups
    arranged = planned_slices(graph, new.type, plan, n_lookups, f"{name}/updates")
    flat = in_blocks(arranged, lookup_cuts(plan, n_lookups))
    sequence.add(Copy(in_blocks(new, lookup_cuts(plan, n_lookups)), flat))
    return arranged


class PlannedUpdates:
    """Builds the stages of a planned multi-update, round by round."""

    def __init__(
        self, graph: Graph, plan: SlicePlan, rows: Tensor, name: str, operation: str
    ) -> None:
        self.graph, self.plan, self.name, self.operation = graph, plan, name, operation
        self.lookups = PlannedLookups(graph, plan, rows, name)

    def add_partials(self, type: Type, a_round: int) -> Tensor:
        """A partial table for each part; its updates start it."""
        parts, _ = self.lookups.used_parts(a_round)
        begin, end = self._partial_intervals(parts)
        tiles = tile_of_parts(self.plan, parts)
        partials = self.graph.add_variable(type, [int(end.max(initial=0))], f"{self.name}/partials")
        map_flat(self.graph, partials, begin, end, tiles)
        return partials

    def _partial_intervals(self, parts: Parts) -> tuple[Ints, Ints]:
        """Partial tables one after the other, each in the table's own blocks."""
        begin, end, _ = self.lookups.table_interval(parts)
        first = parts.lookup * self.lookups.blocks.n_rows * self.plan.row_size
        return first + begin, first + end

    def add_updates(
        self,
        flat: Tensor,
        new: Tensor,
        scale: Tensor | None,
        a_round: int,
        sequence: ProgramSequence,
        *,
        starts: bool,
    ) -> None:
        """Combine into the table (`flat` in its blocks), or start partial tables with them."""
        lookups = self.lookups
        parts, block = lookups.used_parts(a_round)
        begin, end, first_row = lookups.table_interval(parts)
        if starts:
            begin, end = self._partial_intervals(parts)
        source = lookups.cuts.begin(block, parts.column)
        width = lookups.cuts.width(parts.column)
        fields: dict[str, object] = {
            "indices": lookups.index_slices(block),
            "updates": Slices(
                in_blocks(new, lookups.cuts), source, source + lookups.cuts.height(block) * width
            ),
            "table": Slices(flat, begin, end),
            "first_row": first_row,
            "n_columns": width,
            "n_entries": self.plan.n_entries,
            "is_sorted": int(self.plan.options.indices_are_sorted),
        }
        tiles = tile_of_parts(self.plan, parts)
        add_updates(
            self.graph, fields, tiles, self.operation, scale, sequence, self.name, starts=starts
        )

    def join(
        self, partials: Tensor, matrix: Tensor, scale: Tensor | None, sequence: ProgramSequence
    ) -> None:
        """Join the partial tables, each part for its share, and apply the result to the table."""
        table_size = self.lookups.blocks.n_rows * self.plan.row_size
        n_partials = -(-partials.n_elems // table_size)
        parts, begin, end = table_shares(self.plan, self.lookups.blocks, matrix.type)
        filled = np.flatnonzero(end > begin)
        begin, end = begin[filled], end[filled]
        tiles = tile_of_parts(self.plan, parts.take(filled))
        joined = partials
        if n_partials > 1:
            joined = self.graph.add_variable(partials.type, [table_size], f"{self.name}/joined")
            map_flat(self.graph, joined, begin, end, tiles)
            target = self.graph.target
            n_used = self.plan.lookup_split * self.plan.sliced_dim_split
            n_used *= self.plan.unsliced_dim_split * self.plan.group_split
            is_whole = partials.n_elems == n_partials * table_size
            if is_whole and takes_stages(n_partials, n_used, target.tiles_per_ipu):
                reduce_with_output(
                    self.graph, partials.reshape([n_partials, table_size]), joined, [0],
                    self.operation.upper(), sequence, f"{self.name}/joinPartials",
                )  # fmt: skip
            else:
                self._add_joins(partials, joined, begin, end, tiles, sequence)
        self._apply(joined, matrix, scale, begin, end, tiles, sequence)

    def _add_joins(
        self,
        partials: Tensor,
        joined: Tensor,
        begin: Ints,
        end: Ints,
        tiles: Ints,
        sequence: ProgramSequence,
    ) -> None:
        """Vertices that join what all partial tables have for [begin, end), each on its tile."""
        n_partials = -(-partials.n_elems // joined.n_elems)
        first = np.arange(n_partials) * joined.n_elems
        source, until = ((edge[:, None] + first[None, :]).ravel() for edge in (begin, end))
        start = np.arange(len(begin) + 1) * n_partials
        run_vertices(
            self.graph,
            join_partials_codelet(partials.type, self.operation),
            {
                "partials": Slices(partials, source, until, start),
                "out": Slices(joined, begin, end),
            },
            tiles,
            sequence,
            f"{self.name}/joinPartials",
        )

    def _apply(
        self,
        joined: Tensor,
        matrix: Tensor,
        scale: Tensor | None,
        begin: Ints,
        end: Ints,
        tiles: Ints,
        sequence: ProgramSequence,
    ) -> None:
        if scale is None:
            scale = self.graph.add_constant(joined.type, [], 1, f"{self.name}/one")
        run_vertices(
            self.graph,
            apply_updates_codelet(matrix.type, joined.type, self.operation),
            {
                "table": Slices(in_blocks(matrix, self.lookups.blocks), begin, end),
                "updates": Slices(joined, begin, end),
                "scale": scale.expand([0]).broadcast(len(tiles)),
            },
            tiles,
            sequence,
            f"{self.name}/apply",
        )
