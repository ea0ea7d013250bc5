"""Bytes that vertices themselves take on their tile: pointers, lengths, state and descriptors."""

from dataclasses import dataclass

import numpy as np

from tremula.base.types import QUARTER
from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.compiler.file.codec import record
from tremula.compiler.passes.intervals import sum_per_tile
from tremula.compiler.program_ir import FrozenGraph
from tremula.poplar.vertices.columns import FrozenTable

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
PARTS = ("Internal vertex state", "Edge pointers", "Copy pointers", "Padding", "Descriptors")


@record
@dataclass(frozen=True, slots=True)
class VertexMemory:
    """int64[n_tiles] columns, and totals for the report."""

    instances: Ints
    field_data: Ints  # arrays beside the vertex: pointers of lists, state vectors
    descriptors: Ints  # of vector lists
    code: Ints
    control_table: Ints
    bytes_of_part: Ints  # int64[5], in the order of PARTS
    bytes_of_type: dict[str, int]


def vertex_memory(graph: FrozenGraph, n_copies: Ints, copy_bytes: int) -> VertexMemory:
    """Memory of all vertices. `n_copies` int64[n_tiles] inserted copies have `copy_bytes` each."""
    n_tiles = graph.target.n_tiles
    instances, field_data, descriptors, table_bytes = np.zeros((4, n_tiles), np.int64)
    parts = np.zeros(len(PARTS), np.int64)
    parts[2] = int(n_copies.sum()) * copy_bytes
    of_type: dict[str, int] = {}
    uses_code: dict[str, Ints] = {}
    code = np.zeros(n_tiles, np.int64)
    firsts, n_alike = np.unique(np.array(graph.set_numbers(), np.int64), return_counts=True)
    for first, n in zip(firsts.tolist(), n_alike.tolist(), strict=True):
        for table in graph.compute_sets[first].template_tables:
            spec = table.codelet.spec
            state, pointers, outside, listed = _row_bytes(table)
            padding = -(state + pointers) % WORD_BYTES
            instances += n * sum_per_tile(table.tile, state + pointers + padding, n_tiles)
            field_data += n * sum_per_tile(table.tile, outside, n_tiles)
            descriptors += n * sum_per_tile(table.tile, listed, n_tiles)
            # The worklist of a compute set holds the code's and the instance's address.
            table_bytes += n * sum_per_tile(table.tile, None, n_tiles) * 2 * WORD_BYTES
            sums = [n * int(c.sum()) for c in (state, pointers + outside, padding, listed)]
            parts[[0, 1, 3, 4]] += sums
            of_type[spec.name] = of_type.get(spec.name, 0) + sum(sums)
            for name, n_bytes in ((spec.name, spec.n_code_bytes), *spec.routines):
                here = uses_code.setdefault(name, np.zeros(n_tiles, bool))
                is_new = np.zeros(n_tiles, bool)
                is_new[table.tile] = True
                code += n_bytes * (is_new & ~here)
                here |= is_new
    return VertexMemory(instances, field_data, descriptors, code, table_bytes, parts, of_type)


def _row_bytes(table: FrozenTable) -> tuple[Ints, Ints, Ints, Ints]:
    """int64[n_rows]: (state, pointers) in the vertex, (arrays, descriptors) beside it."""
    state, pointers, outside, listed = np.zeros((4, table.n_rows), np.int64)
    for spec in table.codelet.spec.fields:
        if spec.kind is FieldKind.STATE:
            state += spec.type.n_bytes
        elif spec.kind is FieldKind.STATE_VECTOR:
            start = table.states[spec.name].start
            assert start is not None, "a state vector has a CSR"
            pointers += POINTER_BYTES["SPAN"]
            outside += np.diff(start) * spec.type.n_bytes
        else:
            _add_edge(table, spec, pointers, outside, listed)
    return state, pointers, outside, listed


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
