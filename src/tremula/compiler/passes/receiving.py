"""What a tile does to receive: the control instructions of an exchange's incoming side.

Words arrive without an address. A tile selects the sender whose words it takes, and sets the
pointer to where they go, which then moves on by itself. Each is an instruction of four bytes
(`delayxpic`, `delaypic`; `sendpicp` is both, in eight), as rows that Poplar's SDK emits show
(osmarks/ipu-stack, docs/EXCHANGE_INSTRUCTION_REFERENCE.md) and patent US10963003B2 describes.

So a piece takes two controls if it comes from another tile than the piece before it and does not
lie behind another piece, else one. A piece from further on in the same sender's memory takes one
wherever it lies: what the sender has in between may be on its way to others.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tremula.compiler.passes.intervals import Edge, sum_per_tile
from tremula.compiler.passes.piece_sweeps import link_neighbours, link_pieces

Ints = np.ndarray

# From the host or another replica: how many packets to wait for (two instructions), and waiting, as
# in ipu-stack's rows that read from the host.
CONTROLS_OF_OUTSIDE_PIECE = 3


class RemotePieces(NamedTuple):
    """Pieces [low, high) of the address space that tiles need and other tiles hold."""

    here: Ints
    low: Ints
    high: Ints
    home: Ints

    def sent_home(self) -> "RemotePieces":
        """These pieces on their way back, from the tiles that have them now."""
        return self._replace(here=self.home, home=self.here)


def controls_of_reads(pieces: RemotePieces, edges: Iterable[Edge], n_tiles: int) -> Ints:
    """int64[n_tiles]: controls for what vertices read; pieces are sorted, each byte once a tile."""
    controls = 2 - (_is_linked(pieces, edges, n_tiles) | _same_sender(pieces))
    return sum_per_tile(pieces.here, controls, n_tiles)


def controls_of_pieces(pieces: RemotePieces, goal: Ints, n_tiles: int) -> Ints:
    """int64[n_tiles]: controls for pieces that go to addresses `goal`."""
    order = _arrival_order(pieces)
    mine, begin = RemotePieces(*(column[order] for column in pieces)), goal[order]
    end = begin + (mine.high - mine.low)
    is_same = _same_sender(mine)
    controls = 2 - (_is_behind(mine.here, begin, end) | is_same)
    goes_on = is_same[1:] & (mine.low[1:] == mine.high[:-1]) & (begin[1:] == end[:-1])
    controls[1:][goes_on] = 0
    return sum_per_tile(mine.here, controls, n_tiles)


def _same_sender(pieces: RemotePieces) -> Ints:
    """bool[n]: pieces that come from the same tile as the piece before them."""
    result = np.zeros(len(pieces.here), bool)
    result[1:] = (pieces.here[1:] == pieces.here[:-1]) & (pieces.home[1:] == pieces.home[:-1])
    return result


def _arrival_order(pieces: RemotePieces) -> Ints:
    """The pieces that bring new bytes to their tile, by tile and address."""
    if not len(pieces.low):
        return np.empty(0, np.int64)
    shift = pieces.here * np.int64(pieces.high.max() + 1)
    begin = pieces.low + shift
    order = np.arange(len(begin))
    if bool((begin[1:] < begin[:-1]).any()):
        order = np.argsort(begin, kind="stable")
    end = (pieces.high + shift)[order]
    brings = np.ones(len(end), bool)
    brings[1:] = end[1:] > np.maximum.accumulate(end)[:-1]
    return order[brings]


def _is_behind(here: Ints, begin: Ints, end: Ints) -> Ints:
    """bool[n]: places that begin where another one of the tile ends."""
    result = np.zeros(len(begin), bool)
    if len(begin):
        order = np.argsort(here * np.int64(end.max() + 1) + begin, kind="stable")
        here, begin, end = here[order], begin[order], end[order]
        result[order[1:]] = (here[1:] == here[:-1]) & (begin[1:] == end[:-1])
    return result


def _is_linked(pieces: RemotePieces, edges: Iterable[Edge], n_tiles: int) -> Ints:
    """bool[n]: pieces that lie behind another one in the fields that vertices read."""
    n = len(pieces.low)
    links = np.stack((np.arange(n), np.arange(n), np.zeros(n, np.int64)))
    start = np.searchsorted(pieces.here, np.arange(n_tiles + 1))
    for edge in edges:
        begin, end, row, run = edge.intervals
        run_start = edge.table.edges[edge.spec.name].run_start
        if n and len(begin) > len(run_start) - 1:  # else one interval for each sub-vector
            of_field = begin, end, run, row, run_start, edge.table.tile
            link_pieces(*of_field, start, pieces.low, pieces.high, links)
    link_neighbours(pieces.here, pieces.low, pieces.high, links)
    return links[2] > 0
