"""Copies within a tile that the compiler inserts for fields that are not contiguous there."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tremula.codelets.spec import Direction, FieldKind
from tremula.compiler.file.codec import record
from tremula.compiler.passes.intervals import Edge, sum_per_tile
from tremula.compiler.passes.piece_sweeps import (
    contiguous_groups,
    find_crossing,
    find_moving,
    keep_first_of_kind,
    take_moving,
    words_in_order,
)
from tremula.compiler.passes.vertex_bytes import WORD_BYTES
from tremula.compiler.program_ir import FrozenGraph
from tremula.hardware import Chip
from tremula.poplar.tensors.interval_sweeps import filled

Ints = np.ndarray
LOAD_AND_STORE = 2  # worker slots of one access
# Slots of a worker between two pieces of a vertex's field: pointers, length, the start of a loop.
# Six workers do so side by side, so it is also the tile's cycles for each piece. As between the
# sub-vectors of PopLibs' 2D vertices (`SUB_VECTOR_SLOTS` of poplibs/popops/elementwise). Copies of
# programs are regular, and done with strides.
PIECE_SLOTS = 11
LEAST_REGULAR = 3  # pieces of `words_in_order`: two at a distance need as many words as single ones
_VECTORS = (FieldKind.VECTOR, FieldKind.VECTOR_LIST)
Pieces = tuple[Ints, Ints, Ints]  # tile, where it begins, bytes
_NO_PIECES: Pieces = tuple(np.empty(0, np.int64) for _ in range(3))  # type: ignore[assignment]


# A copy within a tile is described by its source, its destination and its size; equal pieces at
# regular distances are one copy, with their number and both distances besides.
DESCRIPTOR_WORDS, STRIDED_WORDS = 3, 6


@record
@dataclass(frozen=True, slots=True)
class TileCopies:
    """Copies within tiles: int64[n_tiles] columns. `cycles` are tile cycles, with all workers."""

    n_bytes: Ints
    n_copies: Ints  # pieces
    cycles: Ints
    n_words: Ints | None = None  # that describe them, if not a descriptor for each

    @property
    def descriptor_bytes(self) -> Ints:
        """int64[n_tiles]: what tells a tile to copy."""
        words = DESCRIPTOR_WORDS * self.n_copies if self.n_words is None else self.n_words
        return WORD_BYTES * words


def copies_of_pieces(
    tile: Ints, size: Ints, further_bytes: Ints, chip: Chip, n_tiles: int, piece_slots: int = 0
) -> TileCopies | None:
    """Copies of contiguous pieces on tiles, and `further_bytes` int64[n_tiles] in one piece each.

    Each piece takes at least one access, and `piece_slots` between one and the next. All workers
    copy together, which takes a while to start; little is copied faster by one of them, piece by
    piece.
    """
    width = chip.memcpy_bytes_per_cycle
    n_bytes = sum_per_tile(tile, size, n_tiles) + further_bytes
    if not n_bytes.any():
        return None
    n_copies = sum_per_tile(tile, None, n_tiles) + (further_bytes > 0)
    accesses = sum_per_tile(tile, -(-size // width), n_tiles) - (-further_bytes // width)
    restarts = piece_slots * np.maximum(n_copies - 1, 0)
    by_all = accesses + restarts + chip.on_tile_copy_setup_cycles
    by_one = chip.one_word_copy_cycles * n_copies
    by_one = by_one + LOAD_AND_STORE * chip.n_workers * (accesses - n_copies)
    cycles = np.where(n_copies > 0, np.minimum(by_all, by_one), 0)
    return TileCopies(n_bytes, n_copies, cycles)


def descriptor_words(tile: Ints, source: Ints, goal: Ints, size: Ints, n_tiles: int) -> Ints:
    """int64[n_tiles]: words that describe copies of pieces, regular ones together.

    Pieces are taken by their sources or by their goals, whichever needs fewer words.
    """
    words = np.zeros((2, n_tiles), np.int64)
    if len(tile):
        for total, first, second in zip(words, (source, goal), (goal, source), strict=True):
            order = _in_order(tile, first, second)
            words_in_order(order, tile, source, goal, size, DESCRIPTOR_WORDS, STRIDED_WORDS, total)
    return words.min(axis=0)


def _in_order(tile: Ints, first: Ints, second: Ints) -> Ints:
    """The order by three columns; one sort by two of them mostly is it, and takes a third."""
    lowest = int(first.min())
    span = int(first.max()) - lowest + 1
    if (int(tile.max()) + 1) * span >= 2**63:
        return np.lexsort((second, first, tile))
    key = tile * np.int64(span) + (first - lowest)
    order = np.argsort(key, kind="stable")
    key, second_now = key[order], second[order]
    is_wrong = (key[1:] == key[:-1]) & (second_now[1:] < second_now[:-1])
    return np.lexsort((second, first, tile)) if bool(is_wrong.any()) else order


def copies_of_edges(
    edges: list[Edge], graph: FrozenGraph
) -> tuple[TileCopies | None, TileCopies | None, Ints]:
    """(gather before compute, scatter after it, int64[n_tiles] scratch bytes)."""
    chip, n_tiles = graph.target.chip, graph.target.n_tiles
    gathered, scattered, all_pieces = [_NO_PIECES], [_NO_PIECES], [_NO_PIECES]
    turns = [np.empty(0, np.int64)]
    for edge in edges:
        if edge.spec.kind not in _VECTORS:
            continue
        pieces = _pieces_out_of_place(edge, graph)
        all_pieces.append(pieces)
        if edge.spec.is_read:
            repeats, turn = _repeats_in_place(edge, graph)
            all_pieces.append(repeats)
            gathered += [pieces, repeats]
            turns += [np.zeros_like(pieces[0]), turn]
        if edge.spec.is_written:
            scattered.append(pieces)
    gather = _copies_of_fields(gathered, chip, n_tiles, np.concatenate(turns))
    scatter = _copies_of_fields(scattered, chip, n_tiles)
    tile, _, size = _joined(all_pieces)
    return gather, scatter, sum_per_tile(tile, size, n_tiles)


def _copies_of_fields(
    parts: list[Pieces], chip: Chip, n_tiles: int, turn: Ints | None = None
) -> TileCopies | None:
    """Copies into place, or back: a tile's pieces lie one behind the other there.

    With `turn`, which says of each how many of its run come before, runs are also tried one element
    of each at a time: what takes turns, such as the four channels of each of some groups, is so at
    regular distances.
    """
    tile, low, size = _joined(parts)
    nothing = np.zeros(n_tiles, np.int64)
    copies = copies_of_pieces(tile, size, nothing, chip, n_tiles, PIECE_SLOTS)
    if copies is None or copies.n_copies.max() < LEAST_REGULAR:
        return copies
    words = _words_in_place(np.argsort(tile, kind="stable"), tile, low, size, n_tiles)
    if turn is not None and turn.any():
        in_turn = _words_in_place(np.lexsort((turn, tile)), tile, low, size, n_tiles)
        words = np.minimum(words, in_turn)
    return replace(copies, n_words=words)


def _words_in_place(order: Ints, tile: Ints, low: Ints, size: Ints, n_tiles: int) -> Ints:
    """int64[n_tiles]: words for pieces that go one behind the other, in an order by tiles."""
    tile, low, size = tile[order], low[order], size[order]
    return descriptor_words(tile, low, np.cumsum(size) - size, size, n_tiles)


def _joined(parts: list[Pieces]) -> Pieces:
    tile, low, size = (np.concatenate(column) for column in zip(*parts, strict=True))
    return tile, low, size


def _pieces_out_of_place(edge: Edge, graph: FrozenGraph) -> Pieces:
    """On-tile pieces of sub-vectors that are not one contiguous on-tile piece.

    Vertices of a tile that read the same sub-vector share its copy.
    """
    groups = _contiguous_groups(edge, graph)
    moves = np.zeros(int(groups.sub[-1]) + 1 if len(groups.sub) else 0, bool)
    entry = graph.tile_map.entries_at(groups.begin)
    find_moving(graph.tile_map.begin, graph.tile_map.tile, *groups[1:], entry, moves)
    if edge.spec.direction is Direction.INPUT:
        firsts = np.zeros(2 << len(groups.sub).bit_length(), np.int64)
        keep_first_of_kind(groups.begin, groups.end, groups.tile, groups.sub, firsts, moves)
    n_expected = 2 * int(np.count_nonzero(moves)) + 64  # most are in few parts
    tile, low, size = filled(take_moving, 3, n_expected, *graph.tile_map, *groups, entry, moves)
    return tile, low, size


def _repeats_in_place(edge: Edge, graph: FrozenGraph) -> tuple[Pieces, Ints]:
    """Further copies of elements that a field has several times in a row; their place in the row.

    An interval of a run without a stride is one element, on its tile; a field has it as often as
    the run is long.
    """
    begin, end, row, run = edge.intervals
    runs = edge.table.edges[edge.spec.name].runs
    is_repeated = (runs.stride == 0) & (runs.count > 1)
    if not is_repeated.any():
        return _NO_PIECES, np.empty(0, np.int64)
    which = np.flatnonzero(is_repeated[run])
    tile = edge.table.tile[row[which]].astype(np.int64)
    owner, _, _, home = graph.tile_map.split(begin[which], end[which])
    mine = which[owner[home == tile[owner]]]
    n_further = runs.count[run[mine]] - 1
    again = np.repeat(mine, n_further)
    turn = 1 + np.arange(len(again)) - np.repeat(np.cumsum(n_further) - n_further, n_further)
    pieces = edge.table.tile[row[again]].astype(np.int64), begin[again], end[again] - begin[again]
    return pieces, turn


class _Groups(NamedTuple):
    """Maximal contiguous intervals of sub-vectors, in order; `sub` counts from 0."""

    begin: Ints
    end: Ints
    tile: Ints  # of the vertex
    sub: Ints


def _contiguous_groups(edge: Edge, graph: FrozenGraph) -> _Groups:
    """Of all sub-vectors that could be out of place."""
    table, (begin, end, row, run) = edge.table, edge.intervals
    run_start = table.edges[edge.spec.name].run_start
    if len(begin) == len(run_start) - 1 and len(graph.tile_map.end):
        # One piece per sub-vector: only what crosses a boundary of the map can be out of place.
        crossing = np.empty(len(begin), np.int64)
        (n,) = find_crossing(
            graph.tile_map.end, begin, end, graph.tile_map.entries_at(begin), crossing
        )
        mixed = crossing[:n]
        tile = table.tile[row[mixed]].astype(np.int64)
        return _Groups(begin[mixed], end[mixed], tile, np.arange(len(mixed)))
    groups = np.empty((4, len(begin)), np.int64)
    (n,) = contiguous_groups(begin, end, run, row, run_start, table.tile, groups)
    return _Groups(*groups[:, :n])
