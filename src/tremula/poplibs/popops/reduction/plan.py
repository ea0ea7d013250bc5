"""Where partial results are gathered: how many stages, and which tile joins which outputs.

After every tile has reduced what it holds, an output has a partial result on each of several tiles.
They are gathered as PopLibs does: while there are many for each output, pieces of at least 64 of
them go to tiles in turn, from a first one on, whichever chip sources are on; then all that are left
of an output go to one tile: of a tensor that is there, to its own unless a few tiles have it all.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplar.tensors.tile_map import TileMapping, linear_intervals
from tremula.poplibs.counts import ceil_div, distinct
from tremula.poplibs.popops.reduction.codelets import element_cost, worker_cycles
from tremula.poplibs.popops.reduction.segments import ReductionSegments, cut
from tremula.poplibs.popops.reduction.stages import min_shared_outputs
from tremula.poplibs.poputil.memo import remembered

Ints = np.ndarray
# PopLibs, lib/popops/reduction: ReductionPlan.cpp and ReductionStages.cpp.
MAX_PARTIALS_PER_OUTPUT = 32  # that a last stage takes
MIN_PIECE = 64  # partials that a tile of an intermediate stage takes
LEAST_VECTORS = 4  # that a tile has of a result that goes to other tiles
GROUP = 8  # outputs of a tile, in the estimate of a last stage that is spread


class Destination(NamedTuple):
    """Tiles that join partial results: outputs [begin, end) on `tile`, each output once."""

    begin: Ints
    end: Ints
    tile: Ints


def balanced(
    n_outs: int, type: Type, chip: Chip, n_tiles: int, start_tile: int, n_least: int = 0
) -> Destination:
    """Outputs spread over tiles in whole vectors, as evenly as possible, `n_least` or more each."""
    width = chip.vector_width(type)
    begin, end = linear_intervals(n_outs, width, n_tiles, n_least * width)
    return Destination(begin, end, (start_tile + np.arange(len(begin))) % n_tiles)


def of_mapping(mapping: TileMapping) -> Destination:
    return Destination(mapping.begin, mapping.end, mapping.tile)


def at_first_source(segments: ReductionSegments) -> Destination:
    """Each output on the first tile that has a partial result of it."""
    cuts = distinct(segments.out, segments.out + segments.width)
    first = np.searchsorted(cuts, segments.out)
    last = np.searchsorted(cuts, segments.out + segments.width)
    parts = cut(segments, cuts, first, last - first, np.zeros_like(segments.out))
    order = np.lexsort((parts.tile, parts.out))
    out, owner = np.unique(parts.out[order], return_index=True)
    chosen = order[owner]
    return Destination(out, out + parts.width[chosen], parts.tile[chosen])


def _cut_at(segments: ReductionSegments, begin: Ints) -> tuple[ReductionSegments, Ints]:
    """Segments cut where regions of outputs begin, and the region of each part."""
    first = np.searchsorted(begin, segments.out, "right") - 1
    n_atoms = np.searchsorted(begin, segments.out + segments.width, "left") - first
    parts = cut(segments, begin, first, n_atoms, np.zeros_like(segments.out))
    return parts, np.searchsorted(begin, parts.out, "right") - 1


@remembered
def redirected(segments: ReductionSegments, to: Destination) -> ReductionSegments:
    """Segments as the destination's tiles see them."""
    parts, region = _cut_at(segments, to.begin)
    return parts._replace(tile=to.tile[region])


def needs_another_stage(segments: ReductionSegments, n_outs: int, tiles_per_ipu: int) -> bool:
    """Whether partials of n outputs are gathered in between before the last stage."""
    n_partials = int(segments.width.sum()) / max(1, n_outs)
    return takes_stages(n_partials, len(distinct(segments.tile)), tiles_per_ipu)


def takes_stages(n_partials: float, n_tiles: int, tiles_per_ipu: int) -> bool:
    """PopLibs' rule for n partials of each output on n tiles: gather in between if more than 32.

    Few sources of each output on most of a chip's tiles go straight to where results are.
    """
    if n_partials < 2 * tiles_per_ipu**0.5 and 4 * n_tiles > 3 * tiles_per_ipu:
        return False
    return n_partials > MAX_PARTIALS_PER_OUTPUT


def pays_at_destination(
    segments: ReductionSegments, to: Destination, types: tuple[Type, Type], chip: Chip, n_tiles: int
) -> bool:
    """Whether tiles of the output gather all partials of what they have: PopLibs' choice.

    Or else tiles do so that have a group of outputs each, and send their results. By the estimates
    of `shouldReduceAtDestination` (ReductionPlan.cpp); `types` are those of partials and outputs.
    """
    type, out_type = types
    n_each = np.bincount(to.tile, weights=to.end - to.begin)
    n_there, n_groups = int(n_each.max()), ceil_div(int(n_each.sum()), GROUP)
    n_spread = int(ceil_div(n_groups, n_tiles)) * GROUP
    n_partials, width = _most_partials(segments), chip.vector_width(type)

    def sent(n: int, element: Type) -> int:
        return -int(-n * element.n_bytes // chip.exchange_bytes_per_cycle)

    there = sent(n_there, type) + n_partials * -(-n_there // width)
    spread = sent(n_spread * n_partials, type) + n_partials * -(-n_spread // width)
    return there < spread + sent(n_there, out_type) + chip.sync_cycles


def _most_partials(segments: ReductionSegments) -> int:
    """The most partials of one output."""
    place = np.concatenate((segments.out, segments.out + segments.width))
    change = np.repeat(np.array([1, -1]), len(segments.out))
    cuts, at = np.unique(place, return_inverse=True)
    return int(np.cumsum(np.bincount(at, weights=change, minlength=len(cuts))).max())


@remembered
def in_pieces(
    segments: ReductionSegments, n_outs: int, grain: int, n_tiles: int, start_tile: int
) -> ReductionSegments:
    """Partials as the tiles of an intermediate stage see them, dealt to tiles in turn.

    Outputs are cut into regions of whole grains, at most one for each tile; then the sources of a
    region into pieces of about an equal share of all partials, of MIN_PIECE partials or more, and
    of two or more sources.
    """
    begin, _ = linear_intervals(n_outs, grain, n_tiles, 0)
    parts, region = _cut_at(segments, begin)
    rank, n_sources = _ranks_of_sources(region, parts.tile, len(begin))
    share = max(1, int(segments.width.sum()) // n_tiles)
    n_partials = np.bincount(region, weights=parts.width, minlength=len(begin)).astype(np.int64)
    n_pieces = n_partials // max(share, MIN_PIECE)
    n_pieces = np.maximum(1, np.minimum(n_pieces, n_sources // 2))
    n_rows = np.maximum(2, -(-n_sources // n_pieces))
    n_used = -(-n_sources // n_rows)
    first = np.cumsum(n_used) - n_used
    return parts._replace(tile=(start_tile + first[region] + rank // n_rows[region]) % n_tiles)


def _ranks_of_sources(region: Ints, tile: Ints, n_regions: int) -> tuple[Ints, Ints]:
    """Each part's place among the source tiles of its region, and how many sources regions have."""
    width = int(tile.max()) + 1
    sources, which = np.unique(region * width + tile, return_inverse=True)
    n_sources = np.bincount(sources // width, minlength=n_regions)
    first = np.cumsum(n_sources) - n_sources
    return which - first[region], n_sources


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


@remembered
def largest_gather(parts: ReductionSegments, n_tiles: int) -> tuple[int, int]:
    """(most partials per output, most outputs) on one of the tiles."""
    received = np.bincount(parts.tile, weights=parts.width, minlength=n_tiles)
    busiest = int(np.argmax(received))
    mine = parts.tile == busiest
    n_outs = len(np.unique(parts.out[mine])) * int(parts.width[mine].max())
    return -(-int(received[busiest]) // max(1, n_outs)), n_outs
