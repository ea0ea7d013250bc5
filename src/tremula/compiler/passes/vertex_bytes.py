"""Bytes that vertices take: pointers, lengths, state and descriptors."""

from typing import NamedTuple

import numpy as np

from tremula.base.types import QUARTER
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.compiler.passes.vertex_costs import cost_input
from tremula.hardware import Chip
from tremula.poplar.vertices.columns import EdgeColumn, FrozenTable

Ints = np.ndarray

WORD_BYTES = 4
# A pointer to a vector, by layout: an address and a length, both in one word, an address alone, or
# half a word that is scaled. The layouts are Poplar's; the sizes follow from what they hold.
POINTER_BYTES = {
    "SPAN": 8, "SHORT_SPAN": 4, "ONE_PTR": 4, "COMPACT_PTR": 2,
    "SCALED_PTR32": 2, "SCALED_PTR64": 2, "SCALED_PTR128": 2,
}  # fmt: skip
# A list of vectors in one of these layouts has a descriptor of one word per vector.
DESCRIPTOR_LAYOUTS = ("DELTAN", "DELTANELEMENTS", "COMPACT_DELTAN")
LIST_BYTES = 8  # a list field in its vertex: an address and a count
STRIDES_BYTES = 5 * 2  # PopLibs' CountsAndStrides: five half-words in place of a list
TABLE_ENTRY_BYTES = 2 * WORD_BYTES  # of a compute set's vertex: addresses of code and instance


class RowBytes(NamedTuple):
    """int64[n_rows] each: in the vertex state, pointers and padding; beside it arrays, descriptors.

    Arrays are pointers of lists, and state vectors or what the codelet states in their place.
    """

    state: Ints
    pointers: Ints
    padding: Ints
    outside: Ints
    listed: Ints

    @property
    def instance(self) -> Ints:
        """The vertex itself."""
        return self.state + self.pointers + self.padding

    @property
    def total(self) -> Ints:
        """With its entry in the table of its compute set."""
        return self.instance + self.outside + self.listed + TABLE_ENTRY_BYTES


def row_bytes(table: FrozenTable, chip: Chip) -> RowBytes:
    """What each vertex of a table takes."""
    state, pointers, outside, listed = np.zeros((4, table.n_rows), np.int64)
    stated = _stated_field_data(table, chip)
    if stated is not None:
        outside += stated
    for spec in table.codelet.spec.fields:
        if spec.kind is FieldKind.STATE:
            state += spec.type.n_bytes
        elif spec.kind is FieldKind.STATE_VECTOR:
            start = table.states[spec.name].start
            assert start is not None, "a state vector has a CSR"
            pointers += POINTER_BYTES["SPAN"]
            if stated is None:
                outside += np.diff(start) * spec.type.n_bytes
        elif spec.name in table.codelet.strided_lists:
            pointers += LIST_BYTES
            is_regular = _has_equal_distances(table.edges[spec.name])
            state += np.where(is_regular, STRIDES_BYTES, 0)
            n_subs = np.diff(table.edges[spec.name].sub_start)
            listed += np.where(is_regular, 0, n_subs * WORD_BYTES)
        else:
            _add_edge(table, spec, pointers, outside, listed)
    instance = table.codelet.instance_bytes(cost_input(table, chip))
    if instance is not None:
        state, pointers = instance, np.zeros_like(pointers)
    return RowBytes(state, pointers, -(state + pointers) % WORD_BYTES, outside, listed)


def _stated_field_data(table: FrozenTable, chip: Chip) -> Ints | None:
    """int64[n_rows]: what the codelet says in place of the bytes of its state vectors."""
    if not any(spec.kind is FieldKind.STATE_VECTOR for spec in table.codelet.spec.fields):
        return None
    return table.codelet.field_data_bytes(cost_input(table, chip))


def _has_equal_distances(edge: EdgeColumn) -> Ints:
    """bool[n_rows]: a row's vectors are equally long, each in one piece, at equal distances."""
    n_rows, n_subs = edge.n_rows, len(edge.run_start) - 1
    if not edge.is_one_run_each or not n_subs:
        return np.zeros(n_rows, bool)
    start, count, stride = edge.runs
    row = np.repeat(np.arange(n_rows), np.diff(edge.sub_start))
    is_whole = (stride == 1) | (count <= 1)
    goes_on = row[1:] == row[:-1]
    differs = goes_on & (count[1:] != count[:-1])
    steps = np.diff(start)
    bends = goes_on[1:] & goes_on[:-1] & (steps[1:] != steps[:-1])
    result = np.ones(n_rows, bool)
    for rows in (row[~is_whole], row[1:][differs], row[2:][bends]):
        result[rows] = False
    return result


def _add_edge(
    table: FrozenTable, spec: FieldSpec, pointers: Ints, outside: Ints, listed: Ints
) -> None:
    if spec.type == QUARTER:
        pointers += WORD_BYTES  # the address of its metadata
    if spec.kind is FieldKind.SCALAR:
        pointers += WORD_BYTES
    elif spec.kind is FieldKind.VECTOR:
        pointers += POINTER_BYTES.get(spec.layout, POINTER_BYTES["SPAN"])
    else:
        n_subs = np.diff(table.edges[spec.name].sub_start)
        pointers += LIST_BYTES
        if spec.layout in DESCRIPTOR_LAYOUTS:
            listed += n_subs * WORD_BYTES
        elif spec.kind is FieldKind.SCALAR_LIST:
            outside += n_subs * WORD_BYTES
        else:
            outside += n_subs * POINTER_BYTES.get(spec.layout, POINTER_BYTES["SPAN"])
