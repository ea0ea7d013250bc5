"""Models of compute sets: the vertices of all compute sets that differ in their variables only.

The layers of a net repeat the same vertices over other variables. Their tables are stored once, in
a model; a compute set of the model names the variables it has in place of the model's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tremula.base.source import Source
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable

Ints = np.ndarray
# Which variable of its model each address belongs to: one for all, or one each (-1: none).
Slots = int | Ints


@dataclass(frozen=True, slots=True, eq=False)
class ComputeSetTemplate:
    """Tables over variables that may be replaced: slot s stands for variable `variables[s]`."""

    tables: tuple[FrozenTable, ...]
    variables: tuple[int, ...]
    base_bytes: Ints  # int64[n_slots]
    slots: tuple[dict[str, Slots], ...]  # of the runs of each table's edges, by field

    @property
    def n_vertices(self) -> int:
        return sum(table.n_rows for table in self.tables)

    def shift_bytes(self, table: VariableTable, variables: Sequence[int]) -> Ints:
        """int64[n_slots + 1]: how far each variable moves; the last entry is for slot -1."""
        bases = [table.base_bytes[v] for v in variables]
        return np.append(np.array(bases, np.int64) - self.base_bytes, 0)

    def tables_over(
        self, table: VariableTable, variables: Sequence[int], source: Source
    ) -> tuple[FrozenTable, ...]:
        """The tables of a compute set that has other variables."""
        shift = self.shift_bytes(table, variables)
        return tuple(
            _moved(t, slots, shift, source)
            for t, slots in zip(self.tables, self.slots, strict=True)
        )


def model_of(tables: tuple[FrozenTable, ...], variables: VariableTable) -> ComputeSetTemplate:
    """The model whose own tables these are."""
    ids: dict[int, int] = {}
    slots = tuple(
        {
            name: slots_of(edge.runs, table.codelet.spec.field(name).type.n_bytes, variables, ids)
            for name, edge in table.edges.items()
        }
        for table in tables
    )
    base = np.array([variables.base_bytes[v] for v in ids], np.int64)
    return ComputeSetTemplate(tables, tuple(ids), base, slots)


def slots_of(runs: Runs, n_bytes: int, variables: VariableTable, ids: dict[int, int]) -> Slots:
    """Slots of runs; variables that are met for the first time get the next ones."""
    start = runs.start
    if not len(start):
        return -1
    is_empty = runs.count == 0
    has_empty = bool(is_empty.any())
    if not has_empty:
        low, high = (variables.id_at(int(s) * n_bytes) for s in (start.min(), start.max()))
        if low == high:
            return ids.setdefault(low, len(ids))
    found = variables.ids_at(start * n_bytes)
    if has_empty:
        found = np.where(is_empty, -1, found)
    met, first, inverse = np.unique(found, return_index=True, return_inverse=True)
    local = np.full(len(met), -1, np.int64)
    for i in np.argsort(first).tolist():  # in the order they are met
        if met[i] >= 0:
            local[i] = ids.setdefault(int(met[i]), len(ids))
    return local[inverse]


def _moved(table: FrozenTable, slots: dict[str, Slots], shift: Ints, source: Source) -> FrozenTable:
    edges = {
        name: EdgeColumn(
            edge.sub_start,
            edge.run_start,
            moved_runs(edge.runs, slots[name], shift, table.codelet.spec.field(name).type.n_bytes),
        )
        for name, edge in table.edges.items()
    }
    if len(table.sources) > 1:
        return replace(table, edges=edges)
    return replace(table, edges=edges, sources=(source,))


def moved_runs(runs: Runs, slots: Slots, shift: Ints, n_bytes: int) -> Runs:
    """Runs with every variable moved by its shift."""
    return Runs(moved(runs.start, slots, shift, n_bytes), runs.count, runs.stride)


def moved(addresses: Ints, slots: Slots, shift: Ints, n_bytes: int) -> Ints:
    """Element addresses with every variable moved by its shift: bases are multiples of 64 bytes."""
    return addresses + (shift // n_bytes)[slots]
