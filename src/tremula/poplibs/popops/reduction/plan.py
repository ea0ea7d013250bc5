"""Where partial results are gathered: how many stages, and which tile joins which outputs.

After every tile has reduced what it holds, an output has a partial result on each of several tiles.
They are gathered on one tile at once or, since a tile receives few bytes per cycle, in stages:
first in `n_pieces` tiles per output, then in one. Estimated sync, exchange and compute decide.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplar.tensors.tile_map import TileMapping, linear_intervals
from tremula.poplibs.popops.reduction.codelets import element_cost, worker_cycles
from tremula.poplibs.popops.reduction.segments import ReductionSegments, cut
from tremula.poplibs.popops.reduction.stages import min_shared_outputs
from tremula.poplibs.poputil.memo import remembered

Ints = np.ndarray


class Destination(NamedTuple):
    """Tiles that join partial results: outputs [begin, end) on `tile`, each output once."""

    begin: Ints
    end: Ints
    tile: Ints


def balanced(n_outs: int, type: Type, chip: Chip, n_tiles: int, start_tile: int) -> Destination:
    """Outputs spread over tiles in whole vectors, as evenly as possible."""
    begin, end = linear_intervals(n_outs, chip.vector_width(type), n_tiles, 0)
    return Destination(begin, end, (start_tile + np.arange(len(begin))) % n_tiles)


def of_mapping(mapping: TileMapping) -> Destination:
    return Destination(mapping.begin, mapping.end, mapping.tile)


def at_first_source(segments: ReductionSegments) -> Destination:
    """Each output on the first tile that has a partial result of it."""
    cuts = np.unique(np.concatenate((segments.out, segments.out + segments.width)))
    first = np.searchsorted(cuts, segments.out)
    last = np.searchsorted(cuts, segments.out + segments.width)
    parts = cut(segments, cuts, first, last - first, np.zeros_like(segments.out))
    order = np.lexsort((parts.tile, parts.out))
    out, owner = np.unique(parts.out[order], return_index=True)
    chosen = order[owner]
    return Destination(out, out + parts.width[chosen], parts.tile[chosen])


@remembered
def redirected(
    segments: ReductionSegments, to: Destination, piece_shift: Ints, n_tiles: int
) -> ReductionSegments:
    """Segments as the destination's tiles see them; `piece_shift` separates pieces."""
    first = np.searchsorted(to.begin, segments.out, "right") - 1
    n_atoms = np.searchsorted(to.begin, segments.out + segments.width, "left") - first
    parts = cut(segments, to.begin, first, n_atoms, np.zeros_like(segments.out))
    place = np.searchsorted(to.begin, parts.out, "right") - 1
    tile = (to.tile[place] + np.repeat(piece_shift, n_atoms)) % n_tiles
    return parts._replace(tile=tile)


def piece_of(tile: Ints, n_pieces: int) -> Ints:
    """Sources in tile order, cut into n_pieces parts: neighbours and chips stay together."""
    used, rank = np.unique(tile, return_inverse=True)
    return rank * n_pieces // max(1, len(used))


@cache
def gather_cycles(fan_in: int, n_outs: int, operation: str, type: Type, chip: Chip) -> int:
    """Estimated cycles until a tile has received and reduced fan_in partials of n_outs outputs."""
    payload = fan_in * n_outs * type.n_bytes / chip.exchange_bytes_per_cycle
    exchange = chip.exchange_latency_cycles + max(payload, fan_in * chip.exchange_fragment_cycles)
    n_workers = chip.n_workers
    share = -(-n_outs // n_workers) if n_outs >= min_shared_outputs(n_workers) else n_outs
    one = np.ones(1, np.int64)
    worker = worker_cycles(
        operation, type, chip, one * share, one * share * fan_in, one, one == n_outs
    )
    cost = element_cost(operation, type, chip)
    if share == n_outs:  # workers may share the partials instead, and join their results
        again = worker - fan_in * n_outs * cost.slots / cost.width * (1 - 1 / n_workers)
        worker = np.minimum(worker, again + chip.sync_cycles / n_workers + 40)
    return int(chip.sync_cycles + exchange + n_workers * worker[0])


@cache
def choose_pieces(
    fan_in: int, n_outs: int, operation: str, type: Type, chip: Chip, n_ipus: int, n_tiles: int
) -> tuple[int, int]:
    """(pieces of the next stage, cycles until the end); one piece means the last stage."""
    best = (1, gather_cycles(fan_in, _outs_per_tile(n_outs, n_tiles, 1), operation, type, chip))
    for n_pieces in _candidates(fan_in, n_ipus):
        outs = _outs_per_tile(n_outs, n_tiles, n_pieces)
        here = gather_cycles(-(-fan_in // n_pieces), outs, operation, type, chip)
        if here >= best[1]:
            continue
        after = choose_pieces(n_pieces, n_outs, operation, type, chip, n_ipus, n_tiles)[1]
        best = min(best, (n_pieces, here + after), key=lambda choice: choice[1])
    return best


def _outs_per_tile(n_outs: int, n_tiles: int, n_pieces: int) -> int:
    return -(-n_outs // max(1, n_tiles // n_pieces))


def _candidates(fan_in: int, n_ipus: int) -> list[int]:
    """Powers of two and the root, rounded to multiples of the chips, up to half the fan-in."""
    powers = [2**k for k in range(1, 12)]
    root = round(fan_in**0.5)
    wanted = {-(-n // n_ipus) * n_ipus for n in (*powers, root)}
    return sorted(n for n in wanted if 2 <= n <= fan_in // 2)


@remembered
def largest_gather(parts: ReductionSegments, n_tiles: int) -> tuple[int, int]:
    """(most partials per output, most outputs) on one of the tiles."""
    received = np.bincount(parts.tile, weights=parts.width, minlength=n_tiles)
    busiest = int(np.argmax(received))
    mine = parts.tile == busiest
    n_outs = len(np.unique(parts.out[mine])) * int(parts.width[mine].max())
    return -(-int(received[busiest]) // max(1, n_outs)), n_outs
