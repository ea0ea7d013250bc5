"""The sweeps of exchanges and copies: pieces of data between tiles and within them."""
# Columns are many, and a compiled function calls no other.
# ruff: noqa: ANN001, ANN201, C901, PLR0913, PLR0917

from tremula.column_loops.sweep import n_elements, sweep


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
def count_covered(low, so_far, begin, end, entries, result):
    """Fill in the bytes of each [begin, end) that sorted, disjoint intervals cover.

    The k-th begins at low[k], so_far[k] bytes are in those before it. entries[0, i] is the first
    that ends behind begin[i], entries[1, i] the first that ends behind end[i].
    """
    n = len(low)
    for i in range(len(begin)):
        first, last = entries[0, i], entries[1, i]
        n_bytes = so_far[last] - so_far[first]
        if first < n and begin[i] > low[first]:
            n_bytes -= begin[i] - low[first]
        if last < n and end[i] > low[last]:
            n_bytes += end[i] - low[last]
        result[i] = n_bytes


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
def cut_elsewhere(map_begin, map_end, map_tile, tile, begin, end, entry, parts):
    """Fill in (tile, begin, end, home) of parts of intervals that another tile's entry holds.

    Entries of the map are sorted; entry[i] is the first that ends behind begin[i]. Returns how many
    parts there are; `parts` need not have room for all.
    """
    total, n = 0, len(map_end)
    for i in range(len(begin)):
        at = entry[i]
        while at < n and map_begin[at] < end[i]:
            if map_tile[at] != tile[i]:
                if total < parts.shape[1]:
                    parts[0, total] = tile[i]
                    parts[1, total] = max(begin[i], map_begin[at])
                    parts[2, total] = min(end[i], map_end[at])
                    parts[3, total] = map_tile[at]
                total += 1
            at += 1
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
def find_crossing(map_end, begin, end, entry, crossing):
    """Which intervals go beyond the end of an entry of a sorted map: their places, how many.

    entry[i] is the first that ends behind begin[i].
    """
    result, n = 0, len(map_end)
    for i in range(len(begin)):
        at = entry[i]
        if end[i] > begin[i] and (at == n or end[i] > map_end[at]):
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
