"""The order in which rows of a vertex table run: those that read the same memory follow each other.

Vertices of a compute set do not depend on each other. Tables are sorted by tile, which puts the
parts of a large operand next to each other; each part then is read from memory again by the next
tile that needs it:

    tiles 0 1 2 3 …  read blocks a b c d a b c d …   ─►   rows run in the order  a a b b c c d d
"""

from dataclasses import replace

import numpy as np

from tremula.codelets.columns import ROLES
from tremula.codelets.spec import CodeletSpec, FieldKind
from tremula.compiler.executable.records import TableRecord

# Smaller operands are in a first-level cache whatever the order is (64 KiB on Neoverse, 32 to 48
# on x86).
LEAST_SHARED_BYTES = 65_536


def in_order_of_memory(table: TableRecord, spec: CodeletSpec) -> TableRecord:
    """The table with rows of one large shared operand next to each other, or as it is."""
    if table.n_rows < 3 or not _is_free(table, spec):
        return table
    offset = _shared_operand(table, spec)
    if offset is None:
        return table
    order = np.argsort(offset, kind="stable")
    columns = tuple(np.ascontiguousarray(column[order]) for column in table.columns)
    return replace(table, tile=table.tile[order], columns=columns)


def _is_free(table: TableRecord, spec: CodeletSpec) -> bool:
    """Whether rows can move: no state of workers, no counts by row, one entry in each column."""
    has_lists = any("start" in ROLES[field.kind] for field in spec.fields)
    uses_workers = spec.has_worker_state or spec.rounds_to_half
    return table.is_costed and not has_lists and not uses_workers


def _shared_operand(table: TableRecord, spec: CodeletSpec) -> np.ndarray | None:
    """Where each row's part of the operand begins that most bytes are read again of, if any is."""
    result, most = None, 0
    at, n_bytes_in_all = 0, 0
    for field in spec.fields:
        if field.kind is FieldKind.VECTOR and field.is_edge:
            offset, length = table.columns[at], table.columns[at + 1]
            n_bytes = length * field.type.n_bytes
            n_bytes_in_all += int(n_bytes.sum())
            _, first = np.unique(offset, return_index=True)
            n_repeated = int(n_bytes.sum() - n_bytes[first].sum())
            if n_repeated > most and not field.is_written and n_bytes.max() > LEAST_SHARED_BYTES:
                result, most = offset, n_repeated
        at += len(ROLES[field.kind]) + (field.is_edge and field.type.requires_metadata)
    return result if 2 * most > n_bytes_in_all else None
