"""Which partials lie where: segments of a tensor in memory order, grouped by tile and output.

A tensor is looked at with its dimensions in memory order. Neighbouring dimensions that are all
reduced, or all kept, are merged into *factors*. The innermost two make a *block* of rows and decide
what a stretch of memory looks like: rows of outputs (the last factor is kept), or runs of partials
of one output (the last factor is reduced: `is_inner`).

Example: [2, 3, 4] summed over the middle dimension. The factors are 2 kept, 3 reduced, 4 kept, a
block is 3 rows of 4 outputs, and there are two blocks. Elements 0 to 5 lie on tile 0, the rest on
tile 1:

    outputs        0   1   2   3             4   5   6   7
                +---------------+         +---------------+
    row 0       | 0   1   2   3 | tile 0  |12  13  14  15 | tile 1
    row 1       | 4   5 : 6   7 | 0 : 1   |16  17  18  19 |
    row 2       | 8   9  10  11 | tile 1  |20  21  22  23 |
                +---------------+         +---------------+

`segments_of` cuts what each tile holds of a block into the end of a first row, whole rows, and the
beginning of a last row:

    tile  elements   outputs
       0   0 ..  3   0 .. 3    whole rows
       0   4 ..  5   0 .. 1    beginning of a row
       1   6 ..  7   2 .. 3    end of a row
       1   8 .. 11   0 .. 3    whole rows
       1  12 .. 23   4 .. 7    whole rows, three partials per output

`grouped` puts segments of a tile with the same outputs together, for one vertex to reduce. Those
that share only some outputs are cut there first:

    tile  outputs  slices of partials
       0   0 .. 1   0 .. 1,  4 .. 5
       0   2 .. 3   2 .. 3
       1   0 .. 1   8 .. 9
       1   2 .. 3   6 .. 7, 10 .. 11
       1   4 .. 7  12 .. 23

Outputs 0 to 3 then have a partial result on each of two tiles, which plan.py brings together.
`split_outputs` and `split_rows` deal a group to several workers.
"""

from typing import NamedTuple

import numpy as np

from tremula.poplar.tensors.runs import expand
from tremula.poplibs.poputil.memo import remembered

Ints = np.ndarray


class ReductionSegments(NamedTuple):
    """Stretches of a flat tensor: partials of outputs [out, out + width), equally many of each."""

    tile: Ints
    begin: Ints
    n_elems: Ints
    out: Ints
    width: Ints

    def take(self, index: Ints) -> "ReductionSegments":
        return ReductionSegments(*(column[index] for column in self))


class Groups(NamedTuple):
    """Outputs [out, out + width) on a tile, with the slices start[g] … start[g+1] of partials."""

    tile: Ints
    out: Ints
    width: Ints
    start: Ints
    begin: Ints
    n_elems: Ints  # of each slice

    @property
    def totals(self) -> Ints:
        """Elements of each group."""
        ends = np.concatenate(([0], np.cumsum(self.n_elems)))
        return ends[self.start[1:]] - ends[self.start[:-1]]

    def take(self, index: Ints) -> "Groups":
        counts = np.diff(self.start)[index]
        owner, within = expand(counts)
        slices = self.start[index][owner] + within
        start = np.concatenate(([0], np.cumsum(counts)))
        head = (self.tile[index], self.out[index], self.width[index], start)
        return Groups(*head, self.begin[slices], self.n_elems[slices])


Factor = tuple[int, bool]  # size, is it reduced


def factors_of(sizes: list[int], is_reduced: list[bool]) -> list[Factor]:
    """Dimensions, outermost first, merged; the last two are one reduced and one kept."""
    factors: list[Factor] = []
    for size, reduced in zip(sizes, is_reduced, strict=True):
        if size == 1:
            continue
        if factors and factors[-1][1] == reduced:
            size *= factors.pop()[0]
        factors.append((size, reduced))
    if not factors:
        return [(1, True), (1, False)]
    return factors if len(factors) > 1 else [(1, not factors[0][1]), *factors]


@remembered
def segments_of(begin: Ints, end: Ints, tile: Ints, factors: list[Factor]) -> ReductionSegments:
    """Cut intervals of the flattened tensor into segments of whole or partial rows."""
    (n_rows, _), (row, is_inner) = factors[-2:]
    block = n_rows * row
    first = begin // block
    owner, within = expand(np.maximum((end - 1) // block - first + 1, 0))
    which = first[owner] + within
    base = which * block
    low = np.maximum(begin[owner] - base, 0)
    high = np.minimum(end[owner] - base, block)
    n_inner_outs = n_rows if is_inner else row
    out = _outer_output(which, factors[:-2]) * n_inner_outs
    return _head_body_tail(tile[owner], base, low, high, out, row, is_inner)


def _outer_output(index: Ints, outer: list[Factor]) -> Ints:
    """The output that a block begins with: the kept digits of its mixed-radix number."""
    out, step = np.zeros_like(index), 1
    for size, reduced in reversed(outer):
        if not reduced:
            out = out + index % size * step
            step *= size
        index = index // size
    return out


def _head_body_tail(
    tile: Ints, base: Ints, low: Ints, high: Ints, out: Ints, row: int, is_inner: bool
) -> ReductionSegments:
    """The part of a first row, whole rows, and the part of a last row of each interval."""
    first_row, first_whole, last_row = low // row, -(-low // row), high // row
    has_head = (low % row > 0) | (last_row == first_row)
    has_body = last_row > first_whole
    has_tail = (high % row > 0) & (last_row > first_row)
    head_end = np.minimum(high, (first_row + 1) * row)
    one = np.ones_like(low)
    n_whole = last_row - first_whole
    if is_inner:
        outs = (out + first_row, out + first_whole, out + last_row)
        widths = (one, n_whole, one)
    else:
        outs = (out + low - first_row * row, out, out)
        widths = (head_end - low, one * row, high - last_row * row)
    begins = (low, first_whole * row, last_row * row)
    sizes = (head_end - low, n_whole * row, high - last_row * row)
    parts = [
        ReductionSegments(tile, base + b, n, o, w).take(np.flatnonzero(has))
        for b, n, o, w, has in zip(
            begins, sizes, outs, widths, (has_head, has_body, has_tail), strict=True
        )
    ]
    return ReductionSegments(*(np.concatenate(column) for column in zip(*parts, strict=True)))


# Segments of at least this many rows stay whole even if they share outputs with others.
MIN_ROWS_KEPT = 8


@remembered
def grouped(segments: ReductionSegments, n_outs: int, is_inner: bool) -> Groups:
    """Segments of a tile with the same outputs together; cut where they overlap in part.

    Segments of many rows are not cut: then a tile has several groups with the same outputs, which
    are gathered in the next stage.
    """
    low = segments.tile * (n_outs + 1) + segments.out
    if not bool((segments.width > 1).any()):
        return _by_place(segments, low)
    cuts = np.unique(np.concatenate((low, low + segments.width)))
    n_atoms = np.searchsorted(cuts, low + segments.width) - np.searchsorted(cuts, low)
    n_rows = np.where(is_inner, 1, segments.n_elems // segments.width)
    is_kept = (n_atoms > 1) & (n_rows >= MIN_ROWS_KEPT)
    if not bool(is_kept.any()):
        return _cut_and_grouped(segments, cuts, n_atoms, n_outs, is_inner)
    uncut = segments.take(np.flatnonzero(is_kept))
    rest = grouped(segments.take(np.flatnonzero(~is_kept)), n_outs, is_inner)
    whole = _by_place(uncut, (uncut.tile * (n_outs + 1) + uncut.out) * (n_outs + 1) + uncut.width)
    start = np.concatenate((whole.start, whole.start[-1] + rest.start[1:]))
    columns = [np.concatenate(pair) for pair in zip(whole, rest, strict=True)]
    return Groups(*columns)._replace(start=start)


def _cut_and_grouped(
    segments: ReductionSegments, cuts: Ints, n_atoms: Ints, n_outs: int, is_inner: bool
) -> Groups:
    low = segments.tile * (n_outs + 1) + segments.out
    if bool((n_atoms > 1).any()):
        if not is_inner:  # rows of outputs can only be cut one by one
            n_rows = np.where(n_atoms > 1, segments.n_elems // segments.width, 1)
            owner, row = expand(n_rows)
            size = (segments.n_elems // n_rows)[owner]
            segments = segments.take(owner)
            segments = segments._replace(begin=segments.begin + row * size, n_elems=size)
            low, n_atoms = low[owner], n_atoms[owner]
        segments = cut(segments, cuts, np.searchsorted(cuts, low), n_atoms, low - segments.out)
        low = segments.tile * (n_outs + 1) + segments.out
    return _by_place(segments, low)


def _by_place(segments: ReductionSegments, place: Ints) -> Groups:
    """Segments with the same place, which says tile and outputs, are a group."""
    order = np.lexsort((segments.begin, place))
    segments, place = segments.take(order), place[order]
    is_first = np.append(place[:1] == place[:1], place[1:] != place[:-1])
    first = np.flatnonzero(is_first)
    head = (segments.tile[first], segments.out[first], segments.width[first])
    return Groups(*head, np.append(first, len(place)), segments.begin, segments.n_elems)


def cut(
    segments: ReductionSegments, cuts: Ints, first: Ints, n_atoms: Ints, shift: Ints
) -> ReductionSegments:
    """Segments cut at outputs cuts[first] … (less `shift`) into n_atoms parts each.

    Segments with several rows of outputs must not be cut.
    """
    owner, within = expand(n_atoms)
    atom = first[owner] + within
    old = segments.take(owner)
    out = np.maximum(cuts[atom] - shift[owner], old.out)
    after = np.minimum(np.append(cuts, cuts[-1:])[atom + 1] - shift[owner], old.out + old.width)
    after = np.where(atom + 1 < len(cuts), after, old.out + old.width)
    width = after - out
    per_out = np.where(n_atoms[owner] > 1, old.n_elems // old.width, 1)
    is_whole = n_atoms[owner] == 1
    begin = np.where(is_whole, old.begin, old.begin + (out - old.out) * per_out)
    size = np.where(is_whole, old.n_elems, width * per_out)
    return ReductionSegments(old.tile, begin, size, out, width)


def split_outputs(groups: Groups, n_parts: Ints) -> Groups:
    """Groups of runs of partials (`is_inner`) cut into n_parts groups each, by outputs."""
    if bool((n_parts == 1).all()):
        return groups
    group, part = expand(n_parts)
    low = part * groups.width[group] // n_parts[group]
    high = (part + 1) * groups.width[group] // n_parts[group]
    taken = groups.take(group)
    of_slice = np.repeat(np.arange(len(group)), np.diff(taken.start))
    per_out = taken.n_elems // taken.width[of_slice]
    return Groups(
        taken.tile,
        taken.out + low,
        high - low,
        taken.start,
        taken.begin + low[of_slice] * per_out,
        (high - low)[of_slice] * per_out,
    )


def split_rows(groups: Groups, n_parts: Ints) -> Groups:
    """Groups cut into n_parts groups of the same outputs each, by partials."""
    after = np.cumsum(groups.n_elems)
    before = after - groups.n_elems
    totals = groups.totals
    base = np.cumsum(totals) - totals
    group, part = expand(n_parts)
    width, n_rows = groups.width[group], totals[group] // groups.width[group]
    low = base[group] + part * n_rows // n_parts[group] * width
    high = base[group] + (part + 1) * n_rows // n_parts[group] * width
    first = np.searchsorted(after, low, "right")
    n_slices = np.searchsorted(before, high, "left") - first
    owner, within = expand(n_slices)
    which = first[owner] + within
    begin = groups.begin[which] + np.maximum(low[owner] - before[which], 0)
    end = groups.begin[which] + np.minimum(high[owner] - before[which], groups.n_elems[which])
    start = np.concatenate(([0], np.cumsum(n_slices)))
    return Groups(groups.tile[group], groups.out[group], width, start, begin, end - begin)
