"""Templates of compute sets: vertices shared by all compute sets that differ only in variables.

The layers of a network repeat the same vertices over other variables. Their tables are stored once,
in a template; an instance names the variables it has in place of the template's.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tremula.base.source import Source
from tremula.poplar.tensors.layout import Slots, moved_runs, slots_of
from tremula.poplar.tensors.variables import VariableTable
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable

Ints = np.ndarray


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


def template_of(tables: tuple[FrozenTable, ...], variables: VariableTable) -> ComputeSetTemplate:
    """The template whose own tables these are."""
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
