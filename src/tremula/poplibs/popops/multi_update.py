"""Multi-update: many rows written to, added to, or otherwise combined into a table at once.

With a plan whose lookups are split, every part first combines its updates into a partial table of
its own; the partial tables are joined, and the result is applied to the table.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import HALF, Type
from tremula.poplar.bulk import Slices
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Execute
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensor import Tensor
from tremula.poplibs.popops.dynamic_slice import regions_of_slice
from tremula.poplibs.popops.embedding_plan import SlicePlan
from tremula.poplibs.popops.multi_slice import (
    PlannedLookups,
    add_index_check,
    checked_groups,
    checked_offsets,
)
from tremula.poplibs.popops.row_blocks import BlockCuts, in_blocks, map_flat
from tremula.poplibs.popops.slice_codelets import as_words
from tremula.poplibs.popops.slice_layout import (
    Parts,
    check_copyable,
    check_dims,
    check_plan,
    lookup_cuts,
    planned_slices,
    slice_shape,
    table_shares,
    tile_of_parts,
    to_matrix,
)
from tremula.poplibs.popops.update_codelets import (
    NUMBERS,
    apply_updates_codelet,
    fill_partials_codelet,
    identity_of,
    join_partials_codelet,
    multi_update_codelet,
    scaled_update_codelet,
)
from tremula.poplibs.registry import ErrorCase, Op, PoplibsError, Sample, register

Ints = np.ndarray

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
    _update(graph, table, updates, indices, sequence, name or "multiUpdate", "set", dims, plan)


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
    name = name or "multiUpdateAdd"
    _update(graph, table, updates, indices, sequence, name, "add", dims, plan, scale)


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
    _update(graph, table, updates, indices, sequence, name or "multiUpdateMax", "max", dims, plan)


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
    _update(graph, table, updates, indices, sequence, name or "multiUpdateMul", "mul", dims, plan)


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
    _grouped(graph, table, updates, indices, sequence, name or "groupedMultiUpdate", "set", plan)


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
    name = name or "groupedMultiUpdateAdd"
    _grouped(graph, table, updates, indices, sequence, name, "add", plan, scale)


def _update(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str,
    operation: str,
    dims: Sequence[int],
    plan: SlicePlan | None,
    scale: Tensor | float | None = None,
) -> None:
    dims = tuple(dims)
    what = _function_of(operation)
    check_dims(what, table.shape, dims, (1,) * len(dims))
    if len(dims) != 1:
        raise PoplibsError(
            f"{what} got dims {list(dims)}, expected one dimension.",
            source=user_source(),
            mend="flatten the sliced dimensions into one; scatter() takes windows",
        )
    rows = checked_offsets(what, indices, 1).flatten()
    expected = (rows.n_elems, *slice_shape(table.shape, dims, (1,)))
    _check_update(what, table, updates, expected, operation)
    if not rows.n_elems or not table.n_elems:
        return
    matrix = to_matrix(table, dims)
    new = to_matrix(updates, (0, dims[0] + 1))
    if plan is None:
        scale_tensor = _scale_tensor(graph, scale, table.type, name)
        _unplanned(graph, matrix, new, rows, sequence, name, operation, scale_tensor)
        return
    check_plan(what, plan, table.shape, dims)
    _planned(graph, matrix, new, rows, sequence, name, operation, plan, scale)


def _grouped(
    graph: Graph,
    table: Tensor,
    updates: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str,
    operation: str,
    plan: SlicePlan,
    scale: Tensor | float | None = None,
) -> None:
    what = "grouped_" + _function_of(operation)
    matrix, rows = checked_groups(what, table, indices, plan)
    expected = (plan.n_groups, rows.shape[1], 1, plan.row_size)
    _check_update(what, table, updates, expected, operation)
    new = updates.reshape((rows.n_elems, plan.row_size))
    _planned(graph, matrix, new, rows.flatten(), sequence, name, operation, plan, scale)


def _function_of(operation: str) -> str:
    return "multi_update" if operation == "set" else f"multi_update_{operation}"


def _check_update(
    what: str, table: Tensor, updates: Tensor, expected: tuple[int, ...], operation: str
) -> None:
    if updates.shape != expected or updates.type != table.type:
        raise PoplibsError(
            f"{what} got updates of {updates.type} {list(updates.shape)}, expected {table.type} "
            f"{list(expected)}.",
            source=user_source(),
            mend="make them with create_slice_tensor",
        )
    check_copyable(what, table.type)
    if operation != "set" and table.type not in NUMBERS:
        raise PoplibsError(
            f"{what} does not support {table.type}.",
            source=user_source(),
            mend="use " + ", ".join(t.name for t in NUMBERS),
        )


def _scale_tensor(
    graph: Graph, scale: Tensor | float | None, type: Type, name: str
) -> Tensor | None:
    """The scale as a scalar of the type that is computed in; None if there is none."""
    if scale is None:
        return None
    if not isinstance(scale, Tensor):
        return graph.add_constant(type, [], scale, f"{name}/scale")
    if scale.n_elems != 1 or scale.type != type:
        raise PoplibsError(
            f"the scale is {scale.type} {list(scale.shape)}, expected a scalar of {type}.",
            source=user_source(),
            mend="cast it, or give a number",
        )
    return scale.flatten()[0]


# -- building --------------------------------------------------------------------------------------


def _add_updates(
    graph: Graph,
    fields: dict[str, object],
    tiles: Ints,
    operation: str,
    scale: Tensor | None,
    sequence: ProgramSequence,
    name: str,
) -> None:
    """One compute set of update vertices; rows that are just written go as words."""
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
        codelet = multi_update_codelet(updates.tensor.type, table.tensor.type, operation)
    compute_set = graph.add_compute_set(name)
    graph.add_vertices(compute_set, codelet, fields, tiles=tiles)
    sequence.add(Execute(compute_set))


def _unplanned(
    graph: Graph,
    matrix: Tensor,
    new: Tensor,
    rows: Tensor,
    sequence: ProgramSequence,
    name: str,
    operation: str,
    scale: Tensor | None,
) -> None:
    """Every tile updates its columns, following the map of the table's first row."""
    cuts, tiles = regions_of_slice(graph, matrix)
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
    _add_updates(graph, fields, tiles, operation, scale, sequence, name)


def _planned(
    graph: Graph,
    matrix: Tensor,
    new: Tensor,
    rows: Tensor,
    sequence: ProgramSequence,
    name: str,
    operation: str,
    plan: SlicePlan,
    scale: Tensor | float | None,
) -> None:
    if plan.lookup_split > 1 and plan.options.operation_for_update != operation:
        raise PoplibsError(
            f"{_function_of(operation)} got a plan for operation_for_update "
            f"{plan.options.operation_for_update!r} that splits the lookups.",
            source=user_source(),
            mend=f"plan with operation_for_update={operation!r}",
        )
    if plan.options.validate_indices:
        add_index_check(graph, rows, plan.n_entries, sequence, name)
    partial_type = plan.partial_type if operation == "add" else matrix.type
    has_partials = plan.lookup_split > 1 or partial_type != matrix.type
    scale_tensor = _scale_tensor(graph, scale, partial_type, name)
    if plan.sliced_dim_split >= REARRANGE_FROM_ROW_SPLIT:
        new = _arranged(graph, new, plan, rows, sequence, name)
    updater = _PlannedUpdates(graph, plan, rows, name, operation)
    for a_round in range(plan.lookup_serial_split):
        if not has_partials:
            flat = in_blocks(matrix, updater.lookups.blocks)
            updater.add_updates(flat, new, scale_tensor, a_round, sequence)
            continue
        partials = updater.add_partials(partial_type, a_round, sequence)
        updater.add_updates(partials, new, None, a_round, sequence)
        updater.join(partials, matrix, scale_tensor, sequence)


def _arranged(
    graph: Graph, new: Tensor, plan: SlicePlan, rows: Tensor, sequence: ProgramSequence, name: str
) -> Tensor:
    """The updates in the plan's layout, whatever theirs: then each tile gets them in one piece."""
    n_lookups = rows.n_elems // plan.n_groups
    arranged = planned_slices(graph, new.type, plan, n_lookups, f"{name}/updates")
    flat = in_blocks(arranged, lookup_cuts(plan, n_lookups))
    sequence.add(Copy(in_blocks(new, lookup_cuts(plan, n_lookups)), flat))
    return arranged


class _PlannedUpdates:
    """Builds the stages of a planned multi-update, round by round."""

    def __init__(
        self, graph: Graph, plan: SlicePlan, rows: Tensor, name: str, operation: str
    ) -> None:
        self.graph, self.plan, self.name, self.operation = graph, plan, name, operation
        self.lookups = PlannedLookups(graph, plan, rows, name)

    def add_partials(self, type: Type, a_round: int, sequence: ProgramSequence) -> Tensor:
        """A partial table for each part, filled with what changes nothing."""
        parts, _ = self.lookups.used_parts(a_round)
        begin, end = self._partial_intervals(parts)
        tiles = tile_of_parts(self.plan, parts)
        partials = self.graph.add_variable(type, [int(end.max(initial=0))], f"{self.name}/partials")
        map_flat(self.graph, partials, begin, end, tiles)
        compute_set = self.graph.add_compute_set(f"{self.name}/zeroPartials")
        value = identity_of(self.operation, type)
        fields = {"out": Slices(partials, begin, end), "value": value}
        self.graph.add_vertices(compute_set, fill_partials_codelet(type), fields, tiles=tiles)
        sequence.add(Execute(compute_set))
        return partials

    def _partial_intervals(self, parts: Parts) -> tuple[Ints, Ints]:
        """Partial tables one behind the other, each in the table's own blocks."""
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
    ) -> None:
        """Combine into the table (`flat` in its blocks) or, if they are given, partial tables."""
        lookups = self.lookups
        parts, block = lookups.used_parts(a_round)
        begin, end, first_row = lookups.table_interval(parts)
        if flat.n_elems > lookups.blocks.n_rows * self.plan.row_size:
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
        _add_updates(self.graph, fields, tiles, self.operation, scale, sequence, self.name)

    def join(
        self, partials: Tensor, matrix: Tensor, scale: Tensor | None, sequence: ProgramSequence
    ) -> None:
        """Join the partial tables, each part for its share, and apply the result to the table."""
        table_size = self.lookups.blocks.n_rows * self.plan.row_size
        n_partials = -(-partials.n_elems // table_size)
        parts, begin, end = table_shares(self.plan, self.lookups.blocks, matrix.type)
        kept = np.flatnonzero(end > begin)
        begin, end = begin[kept], end[kept]
        tiles = tile_of_parts(self.plan, parts.take(kept))
        joined = partials
        if n_partials > 1:
            joined = self.graph.add_variable(partials.type, [table_size], f"{self.name}/joined")
            map_flat(self.graph, joined, begin, end, tiles)
            first = np.arange(n_partials) * table_size
            source, until = ((edge[:, None] + first[None, :]).ravel() for edge in (begin, end))
            start = np.arange(len(kept) + 1) * n_partials
            compute_set = self.graph.add_compute_set(f"{self.name}/joinPartials")
            self.graph.add_vertices(
                compute_set,
                join_partials_codelet(partials.type, self.operation),
                {
                    "partials": Slices(partials, source, until, start),
                    "out": Slices(joined, begin, end),
                },
                tiles=tiles,
            )
            sequence.add(Execute(compute_set))
        self._apply(joined, matrix, scale, begin, end, tiles, sequence)

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
        compute_set = self.graph.add_compute_set(f"{self.name}/apply")
        self.graph.add_vertices(
            compute_set,
            apply_updates_codelet(matrix.type, joined.type, self.operation),
            {
                "table": Slices(in_blocks(matrix, self.lookups.blocks), begin, end),
                "updates": Slices(joined, begin, end),
                "scale": scale.expand([0]).broadcast(len(tiles)),
            },
            tiles=tiles,
        )
        sequence.add(Execute(compute_set))


# -- registry --------------------------------------------------------------------------------------


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for n_rows, n_columns, n in ((9, 5, 13), (1, 1, 1), (30, 8, 7), (4, 3, 0)):
        indices = rng.integers(0, n_rows, (n, 1)).astype(np.uint32)
        yield Sample((*_numbers(type, rng, (n_rows, n_columns), (n, 1, n_columns)), indices))
    outside = np.array([3, 0, 9, 3], np.uint32)  # 9 is out of range
    yield Sample((*_numbers(type, rng, (4, 3), (4, 1, 3)), outside))
    columns = rng.integers(0, 7, (5, 1)).astype(np.int32)
    yield Sample((*_numbers(type, rng, (3, 7), (5, 3, 1)), columns), {"dims": (1,)})


def _numbers(type: Type, rng: np.random.Generator, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [rng.integers(1, 4, shape).astype(type.dtype) for shape in shapes]


def _scaled_samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    for sample in _samples(type, rng):
        yield sample
        yield Sample(sample.inputs, {**sample.options, "scale": 2})


def _reference_of(operation: str):  # noqa: ANN202
    def reference(
        table: np.ndarray,
        updates: np.ndarray,
        indices: np.ndarray,
        *,
        dims: Sequence[int] = (0,),
        scale: float = 1,
    ) -> np.ndarray:
        result = np.moveaxis(table.copy(), dims[0], 0)
        new = np.moveaxis(updates, dims[0] + 1, 1)[:, 0] * np.asarray(scale, table.dtype)
        for place, row in enumerate(indices.reshape(-1).tolist()):
            if row >= len(result):
                continue
            if operation == "set":
                result[row] = new[place]
            elif operation == "add":
                result[row] += new[place]
            elif operation == "max":
                result[row] = np.maximum(result[row], new[place])
            else:
                result[row] *= new[place]
        return np.moveaxis(result, 0, dims[0])

    return reference


_TABLE, _ROWS = np.zeros((4, 3), np.float32), np.zeros((5, 1), np.uint32)
_ERRORS = (
    ErrorCase(Sample((_TABLE, np.zeros((5, 3), np.float32), _ROWS)), "expected float [5, 1, 3]"),
    ErrorCase(
        Sample((_TABLE, np.zeros((5, 1, 3), np.int32), _ROWS)), "got updates of int [5, 1, 3]"
    ),
    ErrorCase(
        Sample((_TABLE, np.zeros((5, 1, 1), np.float32), np.zeros((5, 2), np.uint32)),
               {"dims": (0, 1)}),
        "expected one dimension",
    ),
)  # fmt: skip
_BOOL_TABLE = (np.zeros((4, 3), bool), np.zeros((5, 1, 3), bool), _ROWS)

for _name, _function, _operation, _about in (
    ("multi_update", multi_update, "set", "Write many rows of a table at once."),
    ("multi_update_add", multi_update_add, "add", "Add rows, scaled, to many rows of a table."),
    ("multi_update_max", multi_update_max, "max", "Combine rows of a table by their maximum."),
    ("multi_update_mul", multi_update_mul, "mul", "Multiply many rows of a table by rows."),
):
    _unsupported = () if _operation == "set" else (
        ErrorCase(Sample(_BOOL_TABLE), f"{_name} does not support bool"),
    )  # fmt: skip
    register(
        Op(
            name=f"popops.{_name}",
            function=_function,
            about=_about,
            types=NUMBERS,
            samples=_scaled_samples if _operation == "add" else _samples,
            reference=_reference_of(_operation),
            codelets=(
                multi_update_codelet, scaled_update_codelet, fill_partials_codelet,
                join_partials_codelet, apply_updates_codelet,
            ),
            errors=(*_ERRORS, *_unsupported),
            tolerance={HALF.name: 1e-3},
            is_in_place=True,
        )
    )  # fmt: skip
