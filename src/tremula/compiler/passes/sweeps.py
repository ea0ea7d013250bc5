"""The sweeps of passes: races, workers, liveness, peaks and places."""
# Columns are many, and a compiled function calls no other.
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0912, PLR0913, PLR0917

import numpy as np

from tremula.column_loops.sweep import n_elements, sweep


@sweep(lambda begin, *_: 4 * len(begin))
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


@sweep(lambda tile, _, workers: len(tile) * workers.shape[1])
def deal_to_workers(tile, cycles, worker_cycles):
    """Add each vertex to the least loaded worker of its tile: `worker_cycles` int64[n_tiles, n]."""
    for i in range(len(tile)):
        mine, least = tile[i], 0
        for worker in range(1, worker_cycles.shape[1]):
            if worker_cycles[mine, worker] < worker_cycles[mine, least]:
                least = worker
        worker_cycles[mine, least] += cycles[i]


@sweep(lambda rows, live_in, *_: 8 * len(rows) * live_in.shape[1])
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
    starts, tile_start, temporary_row, peak = (columns[i] for i in (1, 4, 7, 11))
    n_temporary = int(np.count_nonzero(temporary_row >= 0)) * len(peak)
    return 2 * int(np.diff(tile_start)[starts].sum()) + n_temporary + len(temporary_row)


@sweep(_turns_of_peak)
def sweep_peak(
    starts_at, starts, ends_at, ends, tile_start, tile, n_bytes,
    temporary_row, temporary, absent_row, absent, peak, peak_at, now,
):  # fmt: skip
    """Largest sum of live bytes per tile over all instructions, and where it first was reached.

    Variables `starts[starts_at[i]:starts_at[i+1]]` become live at instruction i, `ends[…]` were
    live until it; v has `n_bytes[k]` on `tile[k]` for k in tile_start[v] … tile_start[v+1].
    Instruction i also needs `temporary[temporary_row[i]]` bytes on each tile (row -1: none), and
    not `absent[absent_row[i]]` of what is live there. `now`, zeros for all tiles, is scratch: bytes
    that are live.
    """
    for i in range(len(starts_at) - 1):
        less = absent_row[i]
        for s in range(starts_at[i], starts_at[i + 1]):
            for k in range(tile_start[starts[s]], tile_start[starts[s] + 1]):
                t = tile[k]
                now[t] += n_bytes[k]
                if now[t] - absent[less, t] > peak[t]:
                    peak[t] = now[t] - absent[less, t]
                    peak_at[t] = i
        if i > 0 and less != absent_row[i - 1]:
            for t in range(len(peak)):
                if now[t] - absent[less, t] > peak[t]:
                    peak[t] = now[t] - absent[less, t]
                    peak_at[t] = i
        row = temporary_row[i]
        if row >= 0:
            for t in range(len(peak)):
                need = now[t] - absent[less, t] + temporary[row, t]
                if temporary[row, t] > 0 and need > peak[t]:
                    peak[t] = need
                    peak_at[t] = i
        for s in range(ends_at[i], ends_at[i + 1]):
            for k in range(tile_start[ends[s]], tile_start[ends[s] + 1]):
                now[tile[k]] -= n_bytes[k]


@sweep(lambda row_start, begin, *_: len(begin) + len(row_start))
def bytes_of_variables(row_start, begin, end, tile, now, entry_start, entry_tile, entry_bytes):
    """The bytes of each variable on each of its tiles, by tile: fills the entries.

    Variable v has bytes [begin[i], end[i]) on `tile[i]` for i in row_start[v] … row_start[v+1]; its
    entries are entry_start[v] … entry_start[v+1]. `now`, zeros for all tiles, is scratch.
    """
    n = 0
    for v in range(len(row_start) - 1):
        first, last = n, -1
        for i in range(row_start[v], row_start[v + 1]):
            if tile[i] < last:
                break
            if tile[i] > last:
                last = tile[i]
                entry_tile[n] = last
                entry_bytes[n] = 0
                n += 1
            entry_bytes[n - 1] += end[i] - begin[i]
            if i == row_start[v + 1] - 1:
                last = len(now)  # all of them ascend
        if last < len(now) and row_start[v + 1] > row_start[v]:
            n = first
            for i in range(row_start[v], row_start[v + 1]):
                now[tile[i]] += end[i] - begin[i]
            for t in range(len(now)):
                if now[t] > 0:
                    entry_tile[n] = t
                    entry_bytes[n] = now[t]
                    now[t] = 0
                    n += 1
        entry_start[v + 1] = n


@sweep(lambda tile_start, tile, *_: len(tile) + len(tile_start))
def add_bytes_of(tile_start, tile, n_bytes, is_chosen, total):
    """Add the bytes of chosen variables to `total`, int64[n_tiles].

    Variable v has `n_bytes[k]` on `tile[k]` for k in tile_start[v] … tile_start[v+1].
    """
    for v in range(len(is_chosen)):
        if is_chosen[v]:
            for k in range(tile_start[v], tile_start[v + 1]):
                total[tile[k]] += n_bytes[k]


@sweep(n_elements)
def raise_tops(variable, tile, address, n_bytes, frame, tops):
    """Raise tops[f, t] to the end of each item on tile t whose variable is in frame f, not -1."""
    for i in range(len(variable)):
        of, end = frame[variable[i]], address[i] + n_bytes[i]
        if of >= 0 and end > tops[of, tile[i]]:
            tops[of, tile[i]] = end


@sweep(n_elements)
def raise_above(over_start, over, variable, tile, tops, lowest):
    """Raise `lowest` of items to the tops, on their tile, of what their variable lies over.

    Variable v lies over the rows `over[k]` of `tops` for k in over_start[v] … over_start[v+1].
    """
    for i in range(len(variable)):
        for k in range(over_start[variable[i]], over_start[variable[i] + 1]):
            lowest[i] = max(lowest[i], tops[over[k], tile[i]])


@sweep(lambda *columns: 16 * len(columns[2]))
def mark_entries(tile_start, tile, variable, wanted, is_marked):
    """Mark the entry of each variable on the wanted tile; its entries ascend by tile.

    Variable v has the entries tile_start[v] … tile_start[v+1].
    """
    for i in range(len(variable)):
        low, high = tile_start[variable[i]], tile_start[variable[i] + 1] - 1
        while low < high:
            middle = (low + high) // 2
            if tile[middle] < wanted[i]:
                low = middle + 1
            else:
                high = middle
        is_marked[low] = True


@sweep(lambda tile_start, tile, *_: len(tile) + len(tile_start))
def count_dealt(tile_start, tile, share, is_apart, n_on_tile):
    """Add to `n_on_tile` how many entries of variables are dealt: 0 none, 1 those apart, 2 all.

    Variable v has the entries tile_start[v] … tile_start[v+1].
    """
    for v in range(len(share)):
        if share[v] > 0:
            for k in range(tile_start[v], tile_start[v + 1]):
                if share[v] > 1 or is_apart[k]:
                    n_on_tile[tile[k]] += 1


@sweep(n_elements)
def deal_to_tiles(
    order, begin, tile_start, tile, n_bytes, share, is_apart, start, place, entry, variable
):  # fmt: skip
    """Fill in the dealt entries of each tile by the `begin` of their variables, larger ones first.

    Variables in `order` ascend by `begin`, and v has the entries tile_start[v] … tile_start[v+1],
    of which its `share` is dealt, as in `count_dealt`.
    Equal ones stay in the order of entries. Those of tile t get the places from start[t] on, also
    in `variable`, whose they are; `place`, the same at first, is scratch: where its next one goes.
    """
    for i in range(len(order)):
        if share[order[i]] == 0:
            continue
        for k in range(tile_start[order[i]], tile_start[order[i] + 1]):
            if share[order[i]] > 1 or is_apart[k]:
                at = place[tile[k]]
                place[tile[k]] += 1
                while at > start[tile[k]]:  # few begin together
                    before = entry[at - 1]
                    if begin[variable[at - 1]] < begin[order[i]]:
                        break
                    if n_bytes[before] > n_bytes[k]:
                        break
                    if n_bytes[before] == n_bytes[k] and before < k:
                        break
                    entry[at], variable[at] = before, variable[at - 1]
                    at -= 1
                entry[at], variable[at] = k, order[i]


def scratch_to_place(item_start, first):
    """What `place_ranges` works with, for one tile at a time.

    `gaps`: where free memory begins and where it ends, by address; those without bytes stay.
    `freed_at[i]`, -1 before and after: an item that is live for the last time at i - 1;
    `next_freed` of it is another one.
    """
    n_most = int(np.diff(item_start).max(initial=0))
    n_times = int(first.max(initial=-1)) + 2
    gaps, next_freed = np.zeros((2, 2 * n_most + 2), np.int64), np.zeros(n_most, np.int64)
    return gaps, next_freed, np.full(n_times, -1)


@sweep(lambda item_start, *_: 16 * int(item_start[-1]))
def place_ranges(
    item_start, first, last, n_bytes, n_padded, lowest, align, least_align, address, highest,
    gaps, next_freed, freed_at,
):  # fmt: skip
    """First-fit by live range: fills `address` of each item and `highest` of each tile.

    Items of tile t are rows item_start[t] … item_start[t+1], sorted by `first`, which is at least
    -1; none is empty. Each gets the lowest aligned address, at or above `lowest`, where nothing is
    that is live at the same time. Every alignment and `lowest` is a multiple of `least_align`, to
    which `n_padded` are sizes rounded up: most items need no division. The rest is scratch.
    """
    for t in range(len(highest)):
        start, time, n_gaps = item_start[t], 0, 1
        gaps[0, 0], gaps[1, 0] = 0, 4611686018427387904
        for item in range(start, item_start[t + 1]):
            while time <= first[item]:
                freed, freed_at[time] = freed_at[time], -1
                time += 1
                while freed >= 0:
                    begin, end = address[start + freed], n_padded[start + freed]
                    end, freed = begin + end, next_freed[freed]
                    low, high = 0, n_gaps - 1  # the first gap behind it: the last one always is
                    while low < high:
                        middle = (low + high) // 2
                        if gaps[0, middle] < end:
                            low = middle + 1
                        else:
                            high = middle
                    is_behind = low > 0 and gaps[1, max(low - 1, 0)] == begin
                    if gaps[0, low] > end and not is_behind:
                        for k in range(n_gaps, low, -1):
                            gaps[0, k], gaps[1, k] = gaps[0, k - 1], gaps[1, k - 1]
                        gaps[0, low], gaps[1, low] = begin, end
                        n_gaps += 1
                    elif gaps[0, low] > end:
                        gaps[1, low - 1] = end
                    elif is_behind:  # two gaps become one
                        gaps[1, low - 1] = gaps[1, low]
                        n_gaps -= 1
                        for k in range(low, n_gaps):
                            gaps[0, k], gaps[1, k] = gaps[0, k + 1], gaps[1, k + 1]
                    else:
                        gaps[0, low] = begin
            hit, at = -1, 0
            while hit < 0 or at + n_padded[item] > gaps[1, hit]:
                hit += 1
                at = max(lowest[item], gaps[0, hit])
                if align[item] > least_align:
                    at = -(-at // align[item]) * align[item]
            if at > gaps[0, hit]:  # there is room below it
                for k in range(n_gaps, hit, -1):
                    gaps[0, k], gaps[1, k] = gaps[0, k - 1], gaps[1, k - 1]
                gaps[1, hit], hit, n_gaps = at, hit + 1, n_gaps + 1
            gaps[0, hit], address[item] = at + n_padded[item], at
            if last[item] < len(freed_at) - 1:
                next_freed[item - start], freed = freed_at[last[item] + 1], item - start
                freed_at[last[item] + 1] = freed
            highest[t] = max(highest[t], at + n_bytes[item])
        for k in range(time, len(freed_at)):
            freed_at[k] = -1
