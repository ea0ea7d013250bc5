"""Copies within a tile that the compiler inserts: fields that are not contiguous there already."""

from dataclasses import dataclass

import numpy as np

from tremula.codelets.spec import FieldKind, FieldSpec
from tremula.compiler.codec import record
from tremula.compiler.form import FrozenComputeSet, FrozenGraph
from tremula.compiler.intervals import edge_bytes, sum_per_tile
from tremula.hardware import Chip
from tremula.poplar.vertex_table import FrozenTable

Ints = np.ndarray
_VECTORS = (FieldKind.VECTOR, FieldKind.VECTOR_LIST)


@record
@dataclass(frozen=True, slots=True)
class TileCopies:
    """Copies within tiles: int64[n_tiles] columns. `cycles` are tile cycles, with all workers."""

    n_bytes: Ints
    n_copies: Ints
    cycles: Ints


def copies_of_pieces(
    tile: Ints, size: Ints, further_bytes: Ints, chip: Chip, n_tiles: int
) -> TileCopies | None:
    """Copies of contiguous pieces on tiles, and `further_bytes` int64[n_tiles] in one piece each.

    Each piece takes at least one access; starting the copies of a tile costs once.
    """
    width = chip.memcpy_bytes_per_cycle
    n_bytes = sum_per_tile(tile, size, n_tiles) + further_bytes
    if not n_bytes.any():
        return None
    n_copies = sum_per_tile(tile, None, n_tiles) + (further_bytes > 0)
    accesses = sum_per_tile(tile, -(-size // width), n_tiles) - (-further_bytes // width)
    cycles = accesses + chip.on_tile_copy_setup_cycles * (n_copies > 0)
    return TileCopies(n_bytes, n_copies, cycles)


def copies_of_compute_set(
    compute_set: FrozenComputeSet, graph: FrozenGraph
) -> tuple[TileCopies | None, TileCopies | None, Ints]:
    """(gather before compute, scatter after it, int64[n_tiles] scratch bytes)."""
    chip, n_tiles = graph.target.chip, graph.target.n_tiles
    none: tuple[Ints, Ints] = (np.empty(0, np.int64), np.empty(0, np.int64))
    gathered, scattered, all_pieces = [none], [none], [none]
    for table in compute_set.tables:
        for spec in table.codelet.spec.fields:
            if not spec.is_edge or spec.kind not in _VECTORS:
                continue
            pieces = _pieces_out_of_place(table, spec, graph)
            all_pieces.append(pieces)
            if spec.is_read:
                gathered.append(pieces)
            if spec.is_written:
                scattered.append(pieces)
    nothing = np.zeros(n_tiles, np.int64)
    gather, scatter = (
        copies_of_pieces(*_joined(parts), nothing, chip, n_tiles) for parts in (gathered, scattered)
    )
    tile, size = _joined(all_pieces)
    return gather, scatter, sum_per_tile(tile, size, n_tiles)


def _joined(parts: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    tile, size = (np.concatenate(column) for column in zip(*parts, strict=True))
    return tile, size


def _pieces_out_of_place(
    table: FrozenTable, spec: FieldSpec, graph: FrozenGraph
) -> tuple[Ints, Ints]:
    """(tile, bytes) of on-tile pieces of sub-vectors that are not one contiguous on-tile piece."""
    begin, end, row, run = edge_bytes(table, spec)
    column = table.edges[spec.name]
    tile_map, tile = graph.tile_map, table.tile[row].astype(np.int64)
    if not len(begin) or not len(tile_map.end):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if len(begin) == len(column.run_start) - 1:
        # One piece per sub-vector. Only those that cross a boundary of the map can be mixed.
        entry = np.searchsorted(tile_map.end, begin, side="right")
        entry = np.minimum(entry, len(tile_map.end) - 1)  # empty ones may lie behind the map
        mixed = np.flatnonzero(end > tile_map.end[entry])
        begin, end, tile = begin[mixed], end[mixed], tile[mixed]
        sub = mixed
    else:
        sub = np.repeat(np.arange(len(column.run_start) - 1), np.diff(column.run_start))[run]
    owner, low, high, home = tile_map.split(begin, end)
    is_here = home == tile[owner]
    moves = _is_out_of_place(sub, begin, end, owner, is_here)[sub[owner]] & is_here
    return tile[owner][moves], (high - low)[moves]


def _is_out_of_place(sub: Ints, begin: Ints, end: Ints, owner: Ints, is_here: Ints) -> Ints:
    """bool[largest sub + 1]: sub-vectors with a gap between intervals, or a remote piece."""
    bad = np.zeros(int(sub[-1]) + 1 if len(sub) else 0, bool)
    gap = np.flatnonzero((begin[1:] != end[:-1]) & (sub[1:] == sub[:-1])) + 1
    bad[sub[gap]] = True
    bad[sub[owner[~is_here]]] = True
    return bad
