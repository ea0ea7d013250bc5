"""What numbers in a report refer to, checked when they are read: a file may be untrusted.

The seal finds accidents. It does not stop a person who seals a changed file again, whose numbers
would then reach behind the ends of columns.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tremula.vision.report.schema import column_names

Ints = np.ndarray

# Of tables: what a column numbers. -1 is none.
_IN_TABLES: Mapping[str, Mapping[str, str]] = {
    "programs": {"parent": "programs", "step": "steps"},
    "steps": {"program": "programs", "compute_set": "compute_sets", "critical_tile": "tiles"},
    "steps_by_ipu": {"step_id": "steps", "ipu": "ipus", "critical_tile": "tiles"},
    "vertices": {"compute_set": "compute_sets", "vertex_type": "vertex_types"},
    "variables": {"first_step": "steps", "last_step": "steps"},
    "debug_contexts": {"parent": "debug_contexts"},
    "tiles": {"ipu": "ipus", "tile": "tiles", "peak_step": "steps"},
    "ipus": {"ipu": "ipus"},
}
# Of long columns: what they number, without -1.
_IN_COLUMNS: Mapping[str, str] = {
    "live.variable": "variables", "variable.tile": "tiles", "vertices.tile": "tiles",
    "overview.step": "steps",
}  # fmt: skip
# Columns of places where the parts of others begin: as many as there are rows, and one more.
_STARTS: Mapping[str, str] = {"variable.tile_start": "variables", "vertices.start": "vertices"}


def wrong_in_table(name: str, table: Mapping[str, Any], sizes: Mapping[str, int]) -> str:
    """What is wrong with a table, in words; empty if nothing is."""
    lacking = [column for column in column_names(name) if column not in table]
    if lacking:
        return f"has no column {name}.{lacking[0]}"
    n_rows = len(next(iter(table.values())))
    if name in sizes and n_rows != sizes[name]:
        return f"has {n_rows} rows in {name}, expected {sizes[name]}"
    for column, of in _IN_TABLES.get(name, {}).items():
        if _is_outside(table[column], -1, n_rows if of == name else sizes[of]):
            return f"names {of} in {name}.{column} that do not exist"
    return ""


def wrong_in_column(name: str, column: Ints, sizes: Mapping[str, int]) -> str:
    """What is wrong with a long column, in words; empty if nothing is."""
    of = _IN_COLUMNS.get(name)
    if of is not None and _is_outside(column, 0, sizes[of]):
        return f"names {of} in {name} that do not exist"
    of = _STARTS.get(name)
    if of is not None:
        is_sound = column.shape == (sizes[of] + 1,) and column[0] == 0
        if not is_sound or (np.diff(column) < 0).any():
            return f"has parts in {name} that do not follow each other"
    return ""


def _is_outside(numbers: Ints, least: int, end: int) -> bool:
    return bool(len(numbers)) and bool(numbers.min() < least or numbers.max() >= end)
