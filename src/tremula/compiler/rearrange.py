"""Rearrangement: kernels see contiguous fields; scattered edges go through scratch space."""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import TensorMetadataError
from tremula.base.types import QUARTER
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.compiler.form import CopyPlan, FrozenComputeSet
from tremula.poplar.runs import Runs, expand
from tremula.poplar.variables import ALIGNMENT_BYTES, VariableTable
from tremula.poplar.vertex_columns import EdgeColumn, FrozenTable

# Scratch sub-vectors start at multiples of this, so that vector loads of C++ codelets are aligned.
SCRATCH_ALIGN_BYTES = 16


@dataclass(frozen=True, slots=True)
class TablePlan:
    """A vertex table ready to run: its kernel columns in ABI order."""

    columns: tuple[np.ndarray, ...]


@dataclass(frozen=True, slots=True)
class ComputeSetPlan:
    tables: tuple[TablePlan, ...]
    gathers: tuple[CopyPlan, ...]  # into scratch, before the kernels
    scatters: tuple[CopyPlan, ...]  # out of scratch, after them
    n_scratch_bytes: int


def plan_compute_set(compute_set: FrozenComputeSet, variables: VariableTable) -> ComputeSetPlan:
    """Kernel columns of all tables of a compute set, and the copies around them."""
    planner = _Planner(variables)
    tables = tuple(planner.plan_table(table) for table in compute_set.tables)
    return ComputeSetPlan(
        tables,
        tuple(planner.gathers),
        tuple(planner.scatters),
        planner.next_byte - planner.first_byte,
    )


class _Planner:
    """Hands out scratch space behind the variables; every compute set starts from its beginning."""

    def __init__(self, variables: VariableTable):
        self.variables = variables
        self.first_byte = scratch_base(variables)
        self.next_byte = self.first_byte
        self.gathers: list[CopyPlan] = []
        self.scatters: list[CopyPlan] = []

    def plan_table(self, table: FrozenTable) -> TablePlan:
        columns: list[np.ndarray] = []
        for spec in table.codelet.spec.fields:
            if spec.is_edge:
                columns.extend(self._edge_columns(spec, table.edges[spec.name], table))
            else:
                state = table.states[spec.name]
                columns.extend([state.value] if state.start is None else [state.start, state.value])
        return TablePlan(tuple(columns))

    def _edge_columns(
        self, spec: FieldSpec, edge: EdgeColumn, table: FrozenTable
    ) -> list[np.ndarray]:
        length = edge.sub_lengths()
        offset = self._contiguous(spec, edge, length)
        result = {
            FieldKind.SCALAR: [offset],
            FieldKind.VECTOR: [offset, length],
            FieldKind.VECTOR_LIST: [edge.sub_start, offset, length],
            FieldKind.SCALAR_LIST: [edge.sub_start, offset],
        }[spec.kind]
        if spec.type == QUARTER:
            result.append(self._metadata(spec, edge, table))
        return [np.ascontiguousarray(c, np.int64) for c in result]

    def _contiguous(self, spec: FieldSpec, edge: EdgeColumn, length: np.ndarray) -> np.ndarray:
        """Element address of each sub-vector, moved to scratch where its elements are scattered."""
        n_runs = np.diff(edge.run_start)
        start, count, stride = edge.runs
        if edge.is_one_run_each and bool(((stride == 1) | (count <= 1)).all()):
            return start
        first = np.minimum(edge.run_start[:-1], max(len(start) - 1, 0))
        direct = (n_runs <= 1) & ((stride[first] == 1) | (length <= 1))
        offset = np.where(n_runs > 0, start[first], 0)
        scattered = np.flatnonzero(~direct)
        offset[scattered] = self._allocate(length[scattered], spec.type.n_bytes)
        self._add_copies(spec, edge, scattered, offset[scattered])
        return offset

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
    ) -> None:
        per_sub = np.diff(edge.run_start)[subs]
        owner, within = expand(per_sub)
        original = edge.runs.take(edge.run_start[:-1][subs][owner] + within)
        # Runs never cross sub-vectors, so each has one place in its vector's scratch.
        before = np.cumsum(original.count) - original.count
        first_run = np.cumsum(per_sub) - per_sub
        place = offset[owner] + before - before[first_run[owner]]
        scratch = Runs(place, original.count, np.ones(len(place), np.int64))
        if spec.is_read:
            self.gathers.append(CopyPlan(original, scratch, spec.type.n_bytes))
        if spec.is_written:
            self.scatters.append(CopyPlan(scratch, original, spec.type.n_bytes))

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
                mend="add it with add_variable(QUARTER, shape, metadata=tensor)",
            )
        base = np.asarray(self.variables.base_bytes)
        return base[np.array([metadata_of[int(v)] for v in ids], np.int64)]


def scratch_base(variables: VariableTable) -> int:
    """First byte behind all variables, aligned."""
    return -(-variables.n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES + ALIGNMENT_BYTES
