"""Multi-update: many rows written to, added to, or otherwise combined into a table at once.

With a plan whose lookups are split, every part first combines its updates into a partial table of
its own; the partial tables are joined, and the result is applied to the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensors.blocks import BlockCuts
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.popops.slicing.dynamic_slice import regions_of_slice
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.layout import (
    check_copyable,
    check_dims,
    check_plan,
    slice_shape,
    to_matrix,
)
from tremula.poplibs.popops.slicing.multi_slice import (
    add_index_check,
    checked_groups,
    checked_offsets,
)
from tremula.poplibs.popops.slicing.planned_updates import (
    PlannedUpdates,
    add_updates,
    arranged_updates,
)
from tremula.poplibs.popops.slicing.row_blocks import in_blocks
from tremula.poplibs.popops.slicing.update_codelets import NUMBERS
from tremula.poplibs.registry import PoplibsError

# PopLibs arranges updates first if they go to this many parts of the table's rows.
REARRANGE_FROM_ROW_SPLIT = 4


def multi_update(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    plan: SlicePlan | None = None,
) -> None:
    """table[indices[i]] = updates[i], in place; of equal indices the last wins.

    `updates` is [n, *slice] with slices of one row. An index out of range changes nothing.
    """
    work = _Work(graph, sequence, name or "multiUpdate", "set")
    work.update(table, updates, indices, dims, plan)


def multi_update_add(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    scale: Tensor | float | None = None,
    dims: Sequence[int] = (0,),
    plan: SlicePlan | None = None,
) -> None:
    """table[indices[i]] += scale * updates[i], in place; equal indices accumulate."""
    work = _Work(graph, sequence, name or "multiUpdateAdd", "add", scale)
    work.update(table, updates, indices, dims, plan)


def multi_update_max(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    plan: SlicePlan | None = None,
) -> None:
    """table[indices[i]] = max(table[indices[i]], updates[i]), in place."""
    work = _Work(graph, sequence, name or "multiUpdateMax", "max")
    work.update(table, updates, indices, dims, plan)


def multi_update_mul(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    dims: Sequence[int] = (0,),
    plan: SlicePlan | None = None,
) -> None:
    """table[indices[i]] *= updates[i], in place."""
    work = _Work(graph, sequence, name or "multiUpdateMul", "mul")
    work.update(table, updates, indices, dims, plan)


def grouped_multi_update(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    plan: SlicePlan,
) -> None:
    """Each group's table [groups, entries, row] gets its updates [groups, n, 1, row]."""
    work = _Work(graph, sequence, name or "groupedMultiUpdate", "set")
    work.update_groups(table, updates, indices, plan)


def grouped_multi_update_add(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    plan: SlicePlan,
    scale: Tensor | float | None = None,
) -> None:
    """The updates of each group are added to the group's table."""
    work = _Work(graph, sequence, name or "groupedMultiUpdateAdd", "add", scale)
    work.update_groups(table, updates, indices, plan)


@dataclass(frozen=True)
class _Work:
    """One multi-update: where it is built, and how an update is combined with a row."""

    graph: Graph
    sequence: ProgramSequence
    name: str
    operation: str  # set, add, max or mul
    scale: Tensor | float | None = None

    @property
    def function(self) -> str:
        """The function the user called; those of groups have a word in front."""
        return "multi_update" if self.operation == "set" else f"multi_update_{self.operation}"

    def update(
        self,
        table: Tensor,
        updates: Tensor,
        indices: Tensor,
        dims: Sequence[int],
        plan: SlicePlan | None,
    ) -> None:
        dims, what = tuple(dims), self.function
        check_dims(what, table.shape, dims, (1,) * len(dims))
        if len(dims) != 1:
            raise PoplibsError(
                f"{what} got dims {list(dims)}, expected one dimension.",
                source=user_source(),
                hint="flatten the sliced dimensions into one; scatter() takes windows",
            )
        rows = checked_offsets(what, indices, 1).flatten()
        expected = (rows.n_elems, *slice_shape(table.shape, dims, (1,)))
        self._check_update(what, table, updates, expected)
        if not rows.n_elems or not table.n_elems:
            return
        matrix = to_matrix(table, dims)
        new = to_matrix(updates, (0, dims[0] + 1))
        if plan is None:
            self._unplanned(matrix, new, rows)
            return
        check_plan(what, plan, table.shape, dims)
        self._planned(matrix, new, rows, plan)

    def update_groups(
        self, table: Tensor, updates: Tensor, indices: Tensor, plan: SlicePlan
    ) -> None:
        what = "grouped_" + self.function
        matrix, rows = checked_groups(what, table, indices, plan)
        expected = (plan.n_groups, rows.shape[1], 1, plan.row_size)
        self._check_update(what, table, updates, expected)
        new = updates.reshape((rows.n_elems, plan.row_size))
        self._planned(matrix, new, rows.flatten(), plan)

    def _check_update(
        self, what: str, table: Tensor, updates: Tensor, expected: tuple[int, ...]
    ) -> None:
        if updates.shape != expected or updates.type != table.type:
            raise PoplibsError(
                f"{what} got updates of {updates.type} {list(updates.shape)}, expected "
                f"{table.type} {list(expected)}.",
                source=user_source(),
                hint="make them with create_slice_tensor",
            )
        check_copyable(what, table.type)
        if self.operation != "set" and table.type not in NUMBERS:
            raise PoplibsError(
                f"{what} does not support {table.type}.",
                source=user_source(),
                hint="use " + ", ".join(t.name for t in NUMBERS),
            )

    def _scale(self, type: Type) -> Tensor | None:
        """The scale as a scalar of the type that is computed in; None if there is none."""
        scale = self.scale
        if scale is None:
            return None
        if not isinstance(scale, Tensor):
            return self.graph.add_constant(type, [], scale, f"{self.name}/scale")
        if scale.n_elems != 1 or scale.type != type:
            raise PoplibsError(
                f"the scale is {scale.type} {list(scale.shape)}, expected a scalar of {type}.",
                source=user_source(),
                hint="cast it, or give a number",
            )
        return scale.flatten()[0]

    def _unplanned(self, matrix: Tensor, new: Tensor, rows: Tensor) -> None:
        """Every tile updates its columns, following the map of the table's first row."""
        scale = self._scale(matrix.type)
        cuts, tiles = regions_of_slice(self.graph, matrix)
        own = BlockCuts(np.array([0, new.shape[0]], np.int64), cuts.column)
        n = len(tiles)
        q = np.arange(n)
        begin, from_new = cuts.begin(q * 0, q), own.begin(q * 0, q)
        width = cuts.width(q)
        fields: dict[str, object] = {
            "indices": Slices(rows, np.zeros(n, np.int64), np.full(n, rows.n_elems)),
            "updates": Slices(in_blocks(new, own), from_new, from_new + own.n_rows * width),
            "table": Slices(in_blocks(matrix, cuts), begin, begin + cuts.n_rows * width),
            "first_row": 0,
            "n_columns": width,
            "n_entries": matrix.shape[0],
            "is_sorted": 0,
        }
        add_updates(self.graph, fields, tiles, self.operation, scale, self.sequence, self.name)

    def _planned(self, matrix: Tensor, new: Tensor, rows: Tensor, plan: SlicePlan) -> None:
        graph, sequence, name, operation = self.graph, self.sequence, self.name, self.operation
        if plan.lookup_split > 1 and plan.options.operation_for_update != operation:
            raise PoplibsError(
                f"{self.function} got a plan for operation_for_update "
                f"{plan.options.operation_for_update!r} that splits the lookups.",
                source=user_source(),
                hint=f"plan with operation_for_update={operation!r}",
            )
        if plan.options.validate_indices:
            add_index_check(graph, rows, plan.n_entries, sequence, name)
        partial_type = plan.partial_type if operation == "add" else matrix.type
        has_partials = plan.lookup_split > 1 or partial_type != matrix.type
        scale = self._scale(partial_type)
        if plan.sliced_dim_split >= REARRANGE_FROM_ROW_SPLIT:
            new = arranged_updates(graph, new, plan, rows, sequence, name)
        updater = PlannedUpdates(graph, plan, rows, name, operation)
        for a_round in range(plan.lookup_serial_split):
            if not has_partials:
                flat = in_blocks(matrix, updater.lookups.blocks)
                updater.add_updates(flat, new, scale, a_round, sequence, starts=False)
                continue
            partials = updater.add_partials(partial_type, a_round)
            updater.add_updates(partials, new, None, a_round, sequence, starts=True)
            updater.join(partials, matrix, scale, sequence)
