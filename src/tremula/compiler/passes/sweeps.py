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
    starts, tile_start, temporary_row, peak = (columns[i] for i in (1, 4, 7, 9))
    n_temporary = int(np.count_nonzero(temporary_row >= 0)) * len(peak)
    return 2 * int(np.diff(tile_start)[starts].sum()) + n_temporary + len(temporary_row)


@sweep(_turns_of_peak)
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


@sweep(lambda row_start, tile, *_: len(tile) + len(row_start))
def bytes_of_variables(row_start, tile, n_bytes, now, entry_start, entry_tile, entry_bytes):
    """The bytes of each variable on each of its tiles, by tile: fills the entries.

    Variable v has `n_bytes[i]` more on `tile[i]` for i in row_start[v] … row_start[v+1]; its
    entries are entry_start[v] … entry_start[v+1]. `now`, zeros for all tiles, is scratch.
    """
    n = 0
    for v in range(len(row_start) - 1):
        begin, last = n, -1
        for i in range(row_start[v], row_start[v + 1]):
            if tile[i] < last:
                break
            if tile[i] > last:
                last = tile[i]
                entry_tile[n] = last
                entry_bytes[n] = 0
                n += 1
            entry_bytes[n - 1] += n_bytes[i]
            if i == row_start[v + 1] - 1:
                last = len(now)  # all of them ascend
        if last < len(now) and row_start[v + 1] > row_start[v]:
            n = begin
            for i in range(row_start[v], row_start[v + 1]):
                now[tile[i]] += n_bytes[i]
            for t in range(len(now)):
                if now[t] > 0:
                    entry_tile[n] = t
                    entry_bytes[n] = now[t]
                    now[t] = 0
                    n += 1
        entry_start[v + 1] = n


@sweep(n_elements)
def deal_to_tiles(
    order, begin, tile_start, tile, n_bytes, variable, is_dealt, start, place, entry
):  # fmt: skip
    """Fill in the dealt entries of each tile by the `begin` of their variables, larger ones first.

    Variables in `order` ascend by `begin`, and v has the entries tile_start[v] … tile_start[v+1].
    Equal ones stay in the order of entries. Those of tile t get the places from start[t] on;
    `place`, the same at first, is scratch: where its next one goes.
    """
    for i in range(len(order)):
        for k in range(tile_start[order[i]], tile_start[order[i] + 1]):
            if is_dealt[k]:
                at = place[tile[k]]
                place[tile[k]] += 1
                while at > start[tile[k]]:  # few begin together
                    before = entry[at - 1]
                    if begin[variable[before]] < begin[order[i]]:
                        break
                    if n_bytes[before] > n_bytes[k]:
                        break
                    if n_bytes[before] == n_bytes[k] and before < k:
                        break
                    entry[at] = before
                    at -= 1
                entry[at] = k


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
    item_start, first, last, n_bytes, n_padded, lowest, align, address, highest,
    gaps, next_freed, freed_at,
):  # fmt: skip
    """First-fit by live range: fills `address` of each item and `highest` of each tile.

    Items of tile t are rows item_start[t] … item_start[t+1], sorted by `first`, which is at least
    -1; none is empty. Each gets the lowest aligned address, at or above `lowest`, where nothing is
    that is live at the same time. `n_padded` are sizes rounded up to the least alignment, of which
    every alignment is a multiple. The rest is scratch.
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
            hit, at = 0, -(-max(lowest[item], gaps[0, 0]) // align[item]) * align[item]
            while at + n_padded[item] > gaps[1, hit]:
                hit += 1
                at = -(-max(lowest[item], gaps[0, hit]) // align[item]) * align[item]
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


@sweep(n_elements)
def union_per_tile(tile, low, high, counts, joined):
    """Fill in intervals, those that go on where the one before on their tile is made one with it.

    Returns how many, and whether (1 or 0) they ascend by tile, then by `low`. If so, `joined`
    (tile, low, high) are the union of each tile, and `counts`, zeros for all tiles, get the bytes
    of the union, the intervals that bring new bytes, and those of the union.
    """
    n, ascend, here, last, reached = 0, 1, -1, 0, 0
    for i in range(len(tile)):
        if high[i] <= low[i]:
            continue
        if tile[i] != here or low[i] < last:
            if tile[i] <= here:
                ascend = 0
            here, reached = tile[i], low[i] - 1
        last = low[i]
        if last > reached:
            counts[0, here] += high[i] - last
            counts[1, here] += 1
            counts[2, here] += 1
            reached = high[i]
            joined[0, n] = here
            joined[1, n] = last
            joined[2, n] = reached
            n += 1
        elif high[i] > reached:
            counts[0, here] += high[i] - reached
            counts[1, here] += 1
            reached = high[i]
            joined[2, n - 1] = reached
    return n, ascend


@sweep(n_elements)
def pairs_in_turn(source, destination, pairs):
    """Fill in pairs of tiles, one for those that are the same in a row: how many."""
    n = 0
    for i in range(len(source)):
        if n == 0 or source[i] != pairs[0, n - 1] or destination[i] != pairs[1, n - 1]:
            pairs[0, n] = source[i]
            pairs[1, n] = destination[i]
            n += 1
    return (n,)


@sweep(n_elements)
def longest_ways(source, destination, least, up, along, across, longest):
    """Raise `longest` of both tiles of each pair to the cycles between them.

    These are `least`, both tiles' `up`, and how far they are from each other in the other two.
    """
    for i in range(len(source)):
        a, b = source[i], destination[i]
        cycles = least + up[a] + up[b] + max(along[a] - along[b], along[b] - along[a])
        cycles += max(across[a] - across[b], across[b] - across[a])
        longest[a] = max(longest[a], cycles)
        longest[b] = max(longest[b], cycles)


@sweep(n_elements)
def served_alone(pair_source, pair_destination, source, low, high, receiver, n_senders, n_bytes):
    """Bytes that tiles receive from senders that serve no other, and the number of such senders.

    `receiver` of all tiles, -1 at first, gets the only one that each serves (-2: there are more).
    """
    for i in range(len(pair_source)):
        sender = pair_source[i]
        if receiver[sender] == -1:
            receiver[sender] = pair_destination[i]
        elif receiver[sender] != pair_destination[i]:
            receiver[sender] = -2
    for sender in range(len(receiver)):
        if receiver[sender] >= 0:
            n_senders[receiver[sender]] += 1
    for i in range(len(source)):
        if receiver[source[i]] >= 0:
            n_bytes[receiver[source[i]]] += high[i] - low[i]


@sweep(n_elements)
def count_covering(low, high, result):
    """Merge sorted ends of intervals; (place, how many of them lie over what follows it)."""
    i, k, over = 0, 0, 0
    for at in range(result.shape[1]):
        if i < len(low) and low[i] <= high[k]:
            result[0, at] = low[i]
            i += 1
            over += 1
        else:
            result[0, at] = high[k]
            k += 1
            over -= 1
        result[1, at] = over


@sweep(n_elements)
def contiguous_groups(begin, end, run, row, run_start, tile, groups):
    """Join intervals that continue each other in a sub-vector: (begin, end, tile, sub-vector).

    Sub-vector j has the runs from run_start[j] on; `row` is each interval's vertex, `tile` that of
    each vertex. Returns how many groups there are.
    """
    n, sub = 0, 0
    for i in range(len(begin)):
        if end[i] <= begin[i]:
            continue
        while run_start[sub + 1] <= run[i]:
            sub += 1
        if n > 0 and groups[1, n - 1] == begin[i] and groups[3, n - 1] == sub:
            groups[1, n - 1] = end[i]
            continue
        groups[0, n] = begin[i]
        groups[1, n] = end[i]
        groups[2, n] = tile[row[i]]
        groups[3, n] = sub
        n += 1
    return (n,)


@sweep(n_elements)
def link_pieces(begin, end, run, row, run_start, tile, piece_start, low, high, links):
    """Link pieces that a sub-vector has directly one behind the other.

    Tile t has pieces piece_start[t] to piece_start[t + 1], sorted. Sub-vector j has the runs from
    run_start[j] on; `row` is each interval's vertex, `tile` that of each vertex. Pieces form
    chains: `links` has the first piece of the chain that ends with a piece (-1: others follow),
    the last of that which begins with it, and whether another piece comes before it.
    """
    sub = 0
    for i in range(1, len(begin)):
        while run_start[sub + 1] <= run[i]:
            sub += 1
        if run[i - 1] < run_start[sub] or begin[i] == end[i - 1]:
            continue
        first, last = piece_start[tile[row[i]]], piece_start[tile[row[i]] + 1]
        at, stop = first, last
        while at < stop:
            middle = (at + stop) // 2
            if low[middle] < begin[i]:
                at = middle + 1
            else:
                stop = middle
        if at == last or low[at] != begin[i] or links[2, at] == 1:
            continue
        before, stop = first, last
        while before < stop:
            middle = (before + stop) // 2
            if high[middle] < end[i - 1]:
                before = middle + 1
            else:
                stop = middle
        if before == last or high[before] != end[i - 1]:
            continue
        head = links[0, before]
        if head >= 0 and head != at:  # else it would go round
            links[0, links[1, at]] = head
            links[1, head] = links[1, at]
            links[2, at] = 1
            links[0, before] = -1


@sweep(n_elements)
def link_neighbours(here, low, high, links):
    """Link pieces that follow each other in the address space, where no field says otherwise."""
    for at in range(1, len(low)):
        head = links[0, at - 1]
        is_next = here[at] == here[at - 1] and low[at] == high[at - 1]
        if is_next and links[2, at] == 0 and head >= 0 and head != at:
            links[0, links[1, at]] = head
            links[1, head] = links[1, at]
            links[2, at] = 1
            links[0, at - 1] = -1


@sweep(n_elements)
def cut_elsewhere(map_begin, map_end, map_tile, tile, begin, end, parts):
    """Fill in (tile, begin, end, home) of parts of intervals that another tile's entry holds.

    Entries of the map are sorted. Returns how many parts there are; `parts` need not have room for
    all.
    """
    at, total, n = 0, 0, len(map_end)
    for i in range(len(begin)):
        low = begin[i]
        if at < n and map_end[at] <= low:
            at += 1
        high, leap = at, 1
        if at < n and map_end[at] <= low:  # it is further on
            while at + leap < n and map_end[at + leap] <= low:
                at, leap = at + leap, leap + leap
            at, high = at + 1, min(at + leap, n)
        elif at > 0 and map_end[at - 1] > low:  # it is further back
            high = at - 1
            while high >= leap and map_end[high - leap] > low:
                high, leap = high - leap, leap + leap
            at = max(high - leap + 1, 0)
        while at < high:
            middle = (at + high) // 2
            if map_end[middle] > low:
                high = middle
            else:
                at = middle + 1
        entry = at
        while entry < n and map_begin[entry] < end[i]:
            if map_tile[entry] != tile[i]:
                if total < parts.shape[1]:
                    parts[0, total] = tile[i]
                    parts[1, total] = max(low, map_begin[entry])
                    parts[2, total] = min(end[i], map_end[entry])
                    parts[3, total] = map_tile[entry]
                total += 1
            entry += 1
    return (total,)


@sweep(n_elements)
def cut_copies(map_begin, map_end, map_tile, source, goal, n_bytes, source_at, goal_at, pieces):
    """Fill in (from tile, to tile, begin, goal, bytes) of copies, cut where a sorted map has cuts.

    Copy i moves `n_bytes[i]` from source[i] to goal[i]; `source_at[i]` and `goal_at[i]` are the
    first entries that end behind these. Returns how many pieces there are; `pieces` need not have
    room for all.
    """
    total, n = 0, len(map_end)
    for i in range(len(source)):
        entry, to, end = source_at[i], goal_at[i], source[i] + n_bytes[i]
        while entry < n and map_begin[entry] < end:
            first = max(source[i], map_begin[entry])
            low = goal[i] + first - source[i]
            last = low + min(end, map_end[entry]) - first
            while to < n and map_end[to] <= low:
                to += 1
            part = to
            while part < n and map_begin[part] < last:
                if total < pieces.shape[1]:
                    begin = max(low, map_begin[part])
                    pieces[0, total] = map_tile[entry]
                    pieces[1, total] = map_tile[part]
                    pieces[2, total] = first + begin - low
                    pieces[3, total] = begin
                    pieces[4, total] = min(last, map_end[part]) - begin
                total += 1
                part += 1
            entry += 1
    return (total,)


@sweep(n_elements)
def find_moving(map_begin, map_tile, end, tile, sub, entry, moves):
    """Mark sub-vectors that are not one contiguous piece of their tile.

    Group i, of `sub[i]` up to end[i], is wanted on `tile[i]`; `entry[i]` of a sorted map is the
    first that may hold a part of it.
    """
    n = len(map_begin)
    for i in range(len(end)):
        if i > 0 and sub[i] == sub[i - 1]:
            moves[sub[i]] = 1
        part = entry[i]
        while part < n and map_begin[part] < end[i]:
            if map_tile[part] != tile[i]:
                moves[sub[i]] = 1
                break
            part += 1


@sweep(n_elements)
def keep_first_of_kind(begin, end, tile, sub, firsts, moves):
    """Unmark sub-vectors of the same intervals, on the same tile, as a marked one before them.

    `firsts`, zeros, a power of two and more than there are groups, is scratch: where those that
    stay marked begin, plus 1, by a number of 40 bits made of all their intervals.
    """
    i, n = 0, len(sub)
    while i < n:
        last = i + 1
        while last < n and sub[last] == sub[i]:
            last += 1
        if moves[sub[i]]:
            number = tile[i]
            for k in range(i, last):
                number = (number * 1000003 + begin[k]) & 1099511627775
                number = (number * 1000003 + end[k]) & 1099511627775
            place = (number + number // 1048576) & (len(firsts) - 1)
            while firsts[place] > 0:
                other, k = firsts[place] - 1, i
                if tile[other] == tile[i]:
                    while (
                        k < last
                        and sub[other + k - i] == sub[other]
                        and begin[other + k - i] == begin[k]
                        and end[other + k - i] == end[k]
                    ):
                        k += 1
                if k == last and sub[other + k - i] != sub[other]:
                    moves[sub[i]] = 0
                    break
                place = (place + 1) & (len(firsts) - 1)
            if moves[sub[i]]:
                firsts[place] = i + 1
        i = last


@sweep(n_elements)
def take_moving(map_begin, map_end, map_tile, begin, end, tile, sub, entry, moves, pieces):
    """Fill in (tile, begin, bytes) of parts, on their own tile, of marked sub-vectors.

    Returns how many there are; `pieces` need not have room for all.
    """
    total, n = 0, len(map_end)
    for i in range(len(begin)):
        part = entry[i]
        while moves[sub[i]] and part < n and map_begin[part] < end[i]:
            if map_tile[part] == tile[i]:
                if total < pieces.shape[1]:
                    low = max(begin[i], map_begin[part])
                    pieces[0, total] = tile[i]
                    pieces[1, total] = low
                    pieces[2, total] = min(end[i], map_end[part]) - low
                total += 1
            part += 1
    return (total,)


@sweep(n_elements)
def find_crossing(map_end, begin, end, crossing):
    """Which intervals go beyond the end of an entry of a sorted map: their places, how many."""
    at, result, n = 0, 0, len(map_end)
    for i in range(len(begin)):
        low = begin[i]
        if at < n and map_end[at] <= low:
            at += 1
        high, leap = at, 1
        if at < n and map_end[at] <= low:  # it is further on
            while at + leap < n and map_end[at + leap] <= low:
                at, leap = at + leap, leap + leap
            at, high = at + 1, min(at + leap, n)
        elif at > 0 and map_end[at - 1] > low:  # it is further back
            high = at - 1
            while high >= leap and map_end[high - leap] > low:
                high, leap = high - leap, leap + leap
            at = max(high - leap + 1, 0)
        while at < high:
            middle = (at + high) // 2
            if map_end[middle] > low:
                high = middle
            else:
                at = middle + 1
        if end[i] > low and (at == n or end[i] > map_end[at]):
            crossing[result] = i
            result += 1
    return (result,)


@sweep(n_elements)
def words_in_order(order, tile, source, goal, size, of_piece, of_series, words):
    """Add up the words that describe the pieces of each tile, taken in an order.

    Three or more equal pieces in a row, at equal distances on both sides, are a series and take
    `of_series` words; others take `of_piece` each. Two series may meet in a piece.
    """
    n, before, last = len(order), 0, 0  # whether a series goes on from the two pieces before
    for i in range(n):
        a, goes_on = order[i], 0
        if i + 2 < n:
            b, c = order[i + 1], order[i + 2]
            is_alike = tile[a] == tile[b] and tile[b] == tile[c] and size[a] == size[b]
            is_alike = is_alike and size[b] == size[c]
            is_alike = is_alike and source[c] - source[b] == source[b] - source[a]
            if is_alike and goal[c] - goal[b] == goal[b] - goal[a]:
                goes_on = 1
        if goes_on > last:
            words[tile[a]] += of_series
        if goes_on + last + before == 0:
            words[tile[a]] += of_piece
        before, last = last, goes_on
