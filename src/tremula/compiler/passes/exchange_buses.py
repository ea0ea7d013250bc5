"""How tiles share the exchange: buses of neighbours, ways of different length, what overlaps."""

import numpy as np

from tremula.compiler.passes.intervals import sum_per_tile
from tremula.hardware import exchange_latency_cycles
from tremula.poplar.target import Target

Ints = np.ndarray
_MAX_MARKS = 2**22
Pieces = tuple[Ints, Ints, Ints]  # tile, begin, end; those of a tile are disjoint


def bus_of_tiles(target: Target) -> Ints:
    """int64[n_tiles]: the exchange bus of each tile; neighbours share one."""
    n_on_bus, per_chip = target.chip.n_tiles_per_exchange_bus, target.tiles_per_ipu
    tile = np.arange(target.n_tiles)
    return tile // per_chip * -(-per_chip // n_on_bus) + tile % per_chip // n_on_bus


def shared_on_buses(got: Pieces, sent: Pieces, target: Target, span: int) -> tuple[Ints, Ints]:
    """int64[n_tiles] each: bytes a tile receives, and bytes it sends, at the rate of a whole bus.

    A bus brings data faster if all its tiles that receive anything take it, and enough tiles of
    the machine do; a sender is faster if all receivers of its data take it so.
    """
    n_tiles, chip = target.n_tiles, target.chip
    nothing = np.zeros(n_tiles, np.int64)
    if chip.n_tiles_per_exchange_bus < 2:
        return nothing, nothing
    tile, low, high = got
    bus_of_tile = bus_of_tiles(target)
    n_buses = int(bus_of_tile[-1]) + 1
    receives = np.zeros(n_tiles, bool)
    receives[tile] = True
    n_receiving = sum_per_tile(bus_of_tile[receives], None, n_buses)
    shift = bus_of_tile[tile] * span
    place, n_takers = _sweep(low + shift, high + shift)
    begin, end, n_takers = place[:-1], place[1:], n_takers[:-1]
    bus = begin // span
    where = begin - bus * span
    together = (n_takers == n_receiving[bus]) & (end > begin)
    few_begin, few_end = _taken_by_few(low, high, chip.n_receivers_for_double_width)
    fast = (end - begin)[together] - _covered(
        few_begin, few_end, where[together], (where + end - begin)[together]
    )
    shared = sum_per_tile(bus[together], fast, n_buses)[bus_of_tile] * receives
    apart = ~together & (n_takers > 0) & (end > begin)
    slow_begin = np.concatenate((few_begin, where[apart]))
    slow_end = np.concatenate((few_end, (where + end - begin)[apart]))
    tile, low, high = sent
    wide = high - low - _covered(slow_begin, slow_end, low, high)
    return shared, sum_per_tile(tile, wide, n_tiles)


def _taken_by_few(low: Ints, high: Ints, n_enough: int) -> tuple[Ints, Ints]:
    """(begin, end) of what fewer than n_enough of the intervals cover, but some do."""
    place, n_takers = _sweep(low, high)
    is_few = (n_takers[:-1] > 0) & (n_takers[:-1] < n_enough)
    return place[:-1][is_few], place[1:][is_few]


def _sweep(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Sorted ends of intervals, and how many intervals lie over what follows each of them."""
    place = np.concatenate((low, high))
    order = np.argsort(place, kind="stable")
    change = np.repeat(np.array([1, -1]), len(low))[order]
    return place[order], np.cumsum(change)


def _covered(low: Ints, high: Ints, begin: Ints, end: Ints) -> Ints:
    """Bytes of each [begin, end) that the union of the intervals [low, high) covers."""
    if not len(low):
        return np.zeros(len(begin), np.int64)
    place, n_over = _sweep(low, high)
    so_far = np.concatenate(([0], np.cumsum(np.diff(place) * (n_over[:-1] > 0))))
    between = np.interp(end, place, so_far) - np.interp(begin, place, so_far)
    return np.rint(between).astype(np.int64)  # exact: addresses stay far below 2**53


def pairs_of_tiles(source: Ints, destination: Ints, n_tiles: int) -> tuple[Ints, Ints]:
    """(sender, receiver) of each pair of tiles that has something to send, in order."""
    pair = source * np.int64(n_tiles) + destination
    if n_tiles * n_tiles <= max(_MAX_MARKS, len(pair)):
        # Marks are much faster than a sort while the table of all pairs is small.
        marked = np.zeros(n_tiles * n_tiles, bool)
        marked[pair] = True
        pair = np.flatnonzero(marked)
    else:
        pair = np.sort(pair)
        pair = pair[np.flatnonzero(np.diff(pair, prepend=-1))]
    return pair // n_tiles, pair % n_tiles


def longest_latency(begin: Ints, end: Ints, target: Target) -> Ints:
    """int64[n_tiles]: cycles of the longest way to or from each tile, for distinct pairs in order.

    Between chips it is that of tiles in the same places of one chip: the ways to and from the
    links. The links' own latency is not counted here.
    """
    per_chip = target.tiles_per_ipu
    way = exchange_latency_cycles(target.chip, begin % per_chip, end % per_chip)
    longest = np.zeros(target.n_tiles, np.int64)
    first = np.flatnonzero(np.diff(begin, prepend=-1))
    longest[begin[first]] = np.maximum.reduceat(way, first)
    order = np.argsort(end, kind="stable")
    first = np.flatnonzero(np.diff(end[order], prepend=-1))
    tile = end[order][first]
    longest[tile] = np.maximum(longest[tile], np.maximum.reduceat(way[order], first))
    return longest


def overlapped_bytes(
    source: Ints, destination: Ints, size: Ints, pairs: tuple[Ints, Ints], n_tiles: int
) -> Ints:
    """int64[n_tiles]: what a tile receives while the data of its farthest sender is on its way.

    Senders that serve this tile alone can be timed so that their data comes one after another.
    """
    sender, receiver = pairs
    n_served = np.bincount(sender, minlength=n_tiles)
    alone = n_served[source] == 1
    n_senders = np.bincount(receiver[n_served[sender] == 1], minlength=n_tiles)
    n_bytes = sum_per_tile(destination[alone], size[alone], n_tiles)
    return n_bytes - -(-n_bytes // np.maximum(n_senders, 1))
