"""Sequential sweeps over sorted columns: Python for a few short ones, native code beyond.

Each is a loop whose iterations depend on earlier ones, which NumPy cannot express. Small programs
need no native code at all.
"""
# Columns are many, and a compiled function calls no other.
# ruff: noqa: ANN001, ANN201, ANN202, ANN401, C901, PLR0912, PLR0913, PLR0917

from collections.abc import Callable
from functools import cached_property, update_wrapper
from typing import Any

import numpy as np

from tremula.compiler.passes.native_sweeps import NativeSweep

# So many turns of its innermost loop a sweep takes in Python, in all calls together: about 10 ms.
TURNS_IN_PYTHON = 20_000


class Sweep:
    """A loop over columns, and about how many turns it takes for given ones."""

    def __init__(self, function: Callable[..., Any], n_turns: Callable[..., int]):
        update_wrapper(self, function)
        self.function, self._n_turns, self._n_spent = function, n_turns, 0

    def __call__(self, *columns: Any) -> Any:
        if self._n_spent <= TURNS_IN_PYTHON:
            self._n_spent += self._n_turns(*columns)
        is_short = self._n_spent <= TURNS_IN_PYTHON
        return (self.function if is_short else self.native)(*columns)

    @cached_property
    def native(self) -> NativeSweep:
        """The same, compiled, or taken from a cache."""
        return NativeSweep(self.function, lambda: self.by_numba)

    @cached_property
    def by_numba(self) -> Callable[..., Any]:
        """The same where no C compiler is."""
        from numba import njit  # slow to load

        return njit(cache=True, nogil=True)(self.function)


def _sweep(n_turns: Callable[..., int]) -> Callable[[Callable[..., Any]], Sweep]:
    return lambda function: Sweep(function, n_turns)


@_sweep(lambda begin, *_: 4 * len(begin))
def find_race(begin, end, owner, is_written):
    """The first two overlapping intervals of different owners of which one is written, or -1, -1.

    Intervals are sorted by `begin`. Of all intervals so far, and of the written ones, it is enough
    to remember the two of different owners that reach furthest.
    """
    far, far_other, far_written, far_written_other = -1, -1, -1, -1
    for i in range(len(begin)):
        if is_written[i]:
            first, second = far, far_other
        else:
            first, second = far_written, far_written_other
        if first >= 0 and owner[first] != owner[i] and end[first] > begin[i]:
            return first, i
        if second >= 0 and owner[second] != owner[i] and end[second] > begin[i]:
            return second, i
        if far < 0 or owner[far] == owner[i]:
            if far < 0 or end[i] > end[far]:
                far = i
        elif end[i] > end[far]:
            far, far_other = i, far
        elif far_other < 0 or end[i] > end[far_other]:
            far_other = i
        if not is_written[i]:
            continue
        if far_written < 0 or owner[far_written] == owner[i]:
            if far_written < 0 or end[i] > end[far_written]:
                far_written = i
        elif end[i] > end[far_written]:
            far_written, far_written_other = i, far_written
        elif far_written_other < 0 or end[i] > end[far_written_other]:
            far_written_other = i
    return -1, -1


@_sweep(lambda tile, _, workers: len(tile) * workers.shape[1])
def deal_to_workers(tile, cycles, worker_cycles):
    """Add each vertex to the least loaded worker of its tile: `worker_cycles` int64[n_tiles, n]."""
    for i in range(len(tile)):
        mine, least = tile[i], 0
        for worker in range(1, worker_cycles.shape[1]):
            if worker_cycles[mine, worker] < worker_cycles[mine, least]:
                least = worker
        worker_cycles[mine, least] += cycles[i]


@_sweep(lambda rows, live_in, *_: 8 * len(rows) * live_in.shape[1])
def flow_back(
    rows, live_in, live_out, use, kill, successor_start, successor, entry_of_call, returns
):
    """Backward liveness over the given rows of bitsets until nothing changes.

    `live_in` and `live_out` are the results; they start from what they hold.

    A call row (`entry_of_call` >= 0) passes on only what its function does not surely write: `kill`
    and `use` of the row are the function's. `returns` rows get their `live_out` from all callers.
    """
    n_words = live_in.shape[1]
    changed = True
    while changed:
        changed = False
        for backwards in range(len(rows) - 1, -1, -1):
            i = rows[backwards]
            for word in range(n_words):
                for k in range(successor_start[i], successor_start[i + 1]):
                    live_out[i, word] |= live_in[successor[k], word]
                new = use[i, word] | (live_out[i, word] & ~kill[i, word])
                if new != live_in[i, word]:
                    live_in[i, word] = new
                    changed = True
            for r in range(len(returns)):
                if returns[r, 0] == entry_of_call[i]:
                    at = returns[r, 1]
                    for word in range(n_words):
                        both = live_out[at, word] | live_out[i, word]
                        if both != live_out[at, word]:
                            live_out[at, word] = both
                            changed = True


def _turns_of_peak(*columns):
    starts, tile_start, temporary_row, peak = (columns[i] for i in (1, 4, 7, 9))
    n_temporary = int(np.count_nonzero(temporary_row >= 0)) * len(peak)
    return 2 * int(np.diff(tile_start)[starts].sum()) + n_temporary + len(temporary_row)


@_sweep(_turns_of_peak)
def sweep_peak(
    starts_at, starts, ends_at, ends, tile_start, tile, n_bytes,
    temporary_row, temporary, peak, peak_at, now,
):  # fmt: skip
    """Largest sum of live bytes per tile over all instructions, and where it first was reached.

    Variables `starts[starts_at[i]:starts_at[i+1]]` become live at instruction i, `ends[…]` were
    live until it; v has `n_bytes[k]` on `tile[k]` for k in tile_start[v] … tile_start[v+1].
    Instruction i also needs `temporary[temporary_row[i]]` bytes on each tile (row -1: none).
    `now`, zeros for all tiles, is scratch: bytes that are live.
    """
    for i in range(len(starts_at) - 1):
        for s in range(starts_at[i], starts_at[i + 1]):
            for k in range(tile_start[starts[s]], tile_start[starts[s] + 1]):
                t = tile[k]
                now[t] += n_bytes[k]
                if now[t] > peak[t]:
                    peak[t] = now[t]
                    peak_at[t] = i
        row = temporary_row[i]
        if row >= 0:
            for t in range(len(peak)):
                if temporary[row, t] > 0 and now[t] + temporary[row, t] > peak[t]:
                    peak[t] = now[t] + temporary[row, t]
                    peak_at[t] = i
        for s in range(ends_at[i], ends_at[i + 1]):
            for k in range(tile_start[ends[s]], tile_start[ends[s] + 1]):
                now[tile[k]] -= n_bytes[k]


@_sweep(lambda item_start, *_: int(np.square(np.diff(item_start)).sum()))
def place_ranges(item_start, first, last, n_bytes, lowest, align, address, active, highest):
    """First-fit by live range: fills `address` of each item and `highest` of each tile.

    Items of tile t are rows item_start[t] … item_start[t+1], sorted by `first`. An item gets the
    lowest aligned address, at or above `lowest`, where nothing lies that is live at the same time.
    `active`, as long as there are items, is scratch: items now live, sorted by address.
    """
    for t in range(len(highest)):
        n_active = 0
        for item in range(item_start[t], item_start[t + 1]):
            kept = 0
            for k in range(n_active):
                if last[active[k]] >= first[item]:
                    active[kept] = active[k]
                    kept += 1
            n_active = kept
            at = -(-lowest[item] // align[item]) * align[item]
            slot = n_active
            for k in range(n_active):
                other = active[k]
                if address[other] >= at + n_bytes[item]:
                    slot = k
                    break
                if address[other] + n_bytes[other] > at:
                    above = address[other] + n_bytes[other]
                    at = -(-above // align[item]) * align[item]
            for k in range(n_active, slot, -1):
                active[k] = active[k - 1]
            active[slot] = item
            n_active += 1
            address[item] = at
            if at + n_bytes[item] > highest[t]:  # noqa: PLR1730 - `max` compiles slowly
                highest[t] = at + n_bytes[item]
