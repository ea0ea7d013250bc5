"""Rearrangement: kernels see contiguous fields; scattered edges go through scratch space."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tremula.base.errors import TensorMetadataError
from tremula.base.types import QUARTER
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.compiler.program_ir import CopyPlan, FrozenGraph
from tremula.poplar.tensors.layout import Slots, moved
from tremula.poplar.tensors.runs import Runs, expand, ones
from tremula.poplar.tensors.variables import ALIGNMENT_BYTES, VariableTable
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable
from tremula.poplar.vertices.compute_set import TemplateInstance
from tremula.poplar.vertices.template import ComputeSetTemplate

# Scratch sub-vectors start at multiples of this, so that vector loads of C++ codelets are aligned.
SCRATCH_ALIGN_BYTES = 16


class ColumnTarget(NamedTuple):
    """Where the addresses of a column point: slots of a template's variables; -1: scratch space."""

    slots: Slots
    n_bytes: int

    def moved(self, addresses: np.ndarray, shift: np.ndarray) -> np.ndarray:
        return moved(addresses, self.slots, shift, self.n_bytes)


NOWHERE: Slots = -1


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A vertex table ready to run: its kernel columns in ABI order."""

    columns: tuple[np.ndarray, ...]
    places: tuple[ColumnTarget | None, ...]  # of columns of addresses

    def over(self, shift: np.ndarray) -> "TablePlan":
        pairs = zip(self.columns, self.places, strict=True)
        columns = tuple(c if at is None else at.moved(c, shift) for c, at in pairs)
        return TablePlan(columns, self.places)


@dataclass(frozen=True, slots=True)
class ScratchCopy:
    """A copy between a field's home and scratch space."""

    home: Runs
    scratch: Runs
    place: ColumnTarget  # of the home

    def over(self, shift: np.ndarray) -> "ScratchCopy":
        start, count, stride = self.home
        return replace(self, home=Runs(self.place.moved(start, shift), count, stride))

    def gather(self) -> CopyPlan:
        return CopyPlan(self.home, self.scratch, self.place.n_bytes)

    def scatter(self) -> CopyPlan:
        return CopyPlan(self.scratch, self.home, self.place.n_bytes)


@dataclass(frozen=True, slots=True)
class ComputeSetPlan:
    tables: tuple[TablePlan, ...]
    copies: tuple[ScratchCopy, ...]
    read: tuple[int, ...]  # of the copies: into scratch, before the kernels
    written: tuple[int, ...]  # out of scratch, after them
    n_scratch_bytes: int

    @property
    def gathers(self) -> tuple[CopyPlan, ...]:
        return tuple(self.copies[i].gather() for i in self.read)

    @property
    def scatters(self) -> tuple[CopyPlan, ...]:
        return tuple(self.copies[i].scatter() for i in self.written)

    def over(self, shift: np.ndarray) -> "ComputeSetPlan":
        """The plan of a compute set of the same template, its variables shifted."""
        tables = tuple(table.over(shift) for table in self.tables)
        return replace(self, tables=tables, copies=tuple(c.over(shift) for c in self.copies))


def plan_compute_sets(graph: FrozenGraph) -> list[ComputeSetPlan]:
    """The plans of all compute sets; those of a template are planned once."""
    variables, of_template = graph.variables, dict[ComputeSetTemplate, ComputeSetPlan]()
    plans = []
    for compute_set in graph.compute_sets:
        of = compute_set.contents
        if not isinstance(of, TemplateInstance):
            plans.append(plan_tables(of, variables))
            continue
        if of.template not in of_template:
            of_template[of.template] = plan_tables(of.template.tables, variables, of.template.slots)
        shift = of.template.shift_bytes(of.table, of.variables)
        plans.append(of_template[of.template].over(shift))
    return plans


def plan_tables(
    tables: tuple[FrozenTable, ...],
    variables: VariableTable,
    slots: tuple[dict[str, Slots], ...] | None = None,
) -> ComputeSetPlan:
    """Kernel columns of all tables of a compute set, and the copies around them."""
    planner = _RearrangePlanner(variables)
    of_edges = slots or ({},) * len(tables)
    plans = tuple(planner.plan_table(*pair) for pair in zip(tables, of_edges, strict=True))
    return ComputeSetPlan(
        plans,
        tuple(planner.copies),
        tuple(planner.read),
        tuple(planner.written),
        planner.next_byte - planner.first_byte,
    )


class _RearrangePlanner:
    """Hands out scratch space behind the variables; every compute set starts from its beginning."""

    def __init__(self, variables: VariableTable):
        self.variables = variables
        self.first_byte = scratch_base(variables)
        self.next_byte = self.first_byte
        self.copies: list[ScratchCopy] = []
        self.read: list[int] = []
        self.written: list[int] = []

    def plan_table(self, table: FrozenTable, slots: dict[str, Slots]) -> TablePlan:
        columns: list[np.ndarray] = []
        places: list[ColumnTarget | None] = []
        for spec in table.codelet.spec.fields:
            if spec.is_edge:
                edge = table.edges[spec.name]
                result = self._edge_columns(spec, edge, table, slots.get(spec.name, NOWHERE))
                columns.extend(np.ascontiguousarray(c, np.int64) for c, _ in result)
                places.extend(place for _, place in result)
            else:
                state = table.states[spec.name]
                values = [state.value] if state.start is None else [state.start, state.value]
                columns.extend(values)
                places.extend(None for _ in values)
        return TablePlan(tuple(columns), tuple(places))

    def _edge_columns(
        self, spec: FieldSpec, edge: EdgeColumn, table: FrozenTable, slots: Slots
    ) -> list[tuple[np.ndarray, ColumnTarget | None]]:
        length = edge.sub_lengths()
        address, of_address = self._contiguous(spec, edge, length, slots)
        offset = (address, ColumnTarget(of_address, spec.type.n_bytes))
        start, lengths = (edge.sub_start, None), (length, None)
        result: list[tuple[np.ndarray, ColumnTarget | None]] = {
            FieldKind.SCALAR: [offset],
            FieldKind.VECTOR: [offset, lengths],
            FieldKind.VECTOR_LIST: [start, offset, lengths],
            FieldKind.SCALAR_LIST: [start, offset],
        }[spec.kind]
        if spec.type == QUARTER:
            assert isinstance(slots, int), "templates have no 8-bit floats"
            result.append((self._metadata(spec, edge, table), None))
        return result

    def _contiguous(
        self, spec: FieldSpec, edge: EdgeColumn, length: np.ndarray, slots: Slots
    ) -> tuple[np.ndarray, Slots]:
        """Element address of each sub-vector, moved to scratch where its elements are scattered."""
        n_runs = np.diff(edge.run_start)
        start, count, stride = edge.runs
        if edge.is_one_run_each and bool(((stride == 1) | (count <= 1)).all()):
            return start, slots
        first = np.minimum(edge.run_start[:-1], max(len(start) - 1, 0))
        direct = (n_runs <= 1) & ((stride[first] == 1) | (length <= 1))
        offset = np.where(n_runs > 0, start[first], 0)
        scattered = np.flatnonzero(~direct)
        offset[scattered] = self._allocate(length[scattered], spec.type.n_bytes)
        self._add_copies(spec, edge, scattered, offset[scattered], slots)
        is_home = direct & (n_runs > 0)
        return offset, np.where(is_home, slots if isinstance(slots, int) else slots[first], -1)

    def _allocate(self, length: np.ndarray, n_bytes: int) -> np.ndarray:
        """Element addresses of new scratch vectors."""
        sizes = -(-(length * n_bytes) // SCRATCH_ALIGN_BYTES) * SCRATCH_ALIGN_BYTES
        ends = self.next_byte + np.cumsum(sizes)
        self.next_byte = int(ends[-1]) if len(ends) else self.next_byte
        return (ends - sizes) // n_bytes

    def _add_copies(
        self,
        spec: FieldSpec,
        edge: EdgeColumn,
        subs: np.ndarray,
        offset: np.ndarray,
        slots: Slots,
    ) -> None:
        per_sub = np.diff(edge.run_start)[subs]
        owner, within = expand(per_sub)
        run = edge.run_start[:-1][subs][owner] + within
        original = edge.runs.take(run)
        # Runs never cross sub-vectors, so each has one place in its vector's scratch.
        before = np.cumsum(original.count) - original.count
        first_run = np.cumsum(per_sub) - per_sub
        to = offset[owner] + before - before[first_run[owner]]
        scratch = Runs(to, original.count, ones(len(to)))
        place = ColumnTarget(slots if isinstance(slots, int) else slots[run], spec.type.n_bytes)
        if spec.is_read:
            self.read.append(len(self.copies))
        if spec.is_written:
            self.written.append(len(self.copies))
        self.copies.append(ScratchCopy(original, scratch, place))

    def _metadata(self, spec: FieldSpec, edge: EdgeColumn, table: FrozenTable) -> np.ndarray:
        """Byte address of the metadata of each row's 8-bit floats."""
        first_run = edge.run_start[edge.sub_start[:-1]]
        ids = self.variables.ids_at(edge.runs.start[first_run] * spec.type.n_bytes)
        metadata_of = self.variables.metadata_of
        missing = [int(v) for v in np.unique(ids) if int(v) not in metadata_of]
        if missing:
            raise TensorMetadataError(
                f"field {table.codelet.spec.name}.{spec.name} reads variable "
                f"{self.variables.names[missing[0]]!r}, which has no metadata.",
                source=self.variables.sources[missing[0]],
                hint="add it with add_variable(QUARTER, shape, metadata=tensor)",
            )
        base = np.asarray(self.variables.base_bytes)
        return base[np.array([metadata_of[int(v)] for v in ids], np.int64)]


def scratch_base(variables: VariableTable) -> int:
    """First byte behind all variables, aligned."""
    return -(-variables.n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES + ALIGNMENT_BYTES
