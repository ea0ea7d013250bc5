"""Sweeps: Python and native code are the same function."""

import shutil

import numpy as np
import pytest

from tremula.column_loops import native as native_sweeps
from tremula.column_loops import sweep as sweep_module
from tremula.column_loops.native import LoopColumn, NativeSweep, compiled, kind_of
from tremula.column_loops.sweep import Sweep
from tremula.compiler.passes import piece_sweeps, sweeps
from tremula.poplar.tensors import interval_sweeps
from tremula.poplar.tensors.interval_sweeps import filled
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tile_map import ByteTileMap


def race_columns(random):
    begin = np.sort(random.integers(0, 40, 12))
    written = random.random(12) < 0.3
    return begin, begin + random.integers(1, 9, 12), random.integers(0, 6, 12), written


def worker_columns(random):
    tile = random.integers(0, 3, 20).astype(np.int32)
    return tile, random.integers(0, 50, 20), np.zeros((3, 6), np.int64)


def liveness_columns(random):
    n, words = 6, 2
    live_in, live_out = np.zeros((2, n, words), np.uint64)
    use, kill = random.integers(0, 2**63, (2, n, words)).astype(np.uint64)
    successor_start = np.minimum(np.arange(n + 1), n - 1)
    called = np.array([-1, -1, 4, -1, -1, -1])
    rows, returns = np.arange(n), np.array([[4, 5]])
    return rows, live_in, live_out, use, kill, successor_start, np.arange(1, n), called, returns


def peak_columns(random):
    n, n_tiles = 8, 3
    first = np.sort(random.integers(0, n, 5))
    last = np.minimum(first + random.integers(0, 4, 5), n - 1)
    variables, by_last, at = (
        random.permutation(5),
        np.argsort(last, kind="stable"),
        np.arange(n + 1),
    )
    starts_at, ends_at = np.searchsorted(first, at), np.searchsorted(last[by_last], at)
    tiles, sizes = random.integers(0, n_tiles, 10), random.integers(1, 99, 10)
    temporary_row, temporary = random.integers(-1, 2, n), random.integers(0, 50, (2, n_tiles))
    peak, peak_at = np.zeros(n_tiles, np.int64), np.full(n_tiles, -1)
    ranges = (starts_at, variables, ends_at, variables[by_last])
    absent = np.stack([np.zeros(n_tiles, np.int64), random.integers(0, 20, n_tiles)])
    held = (np.arange(0, 11, 2), tiles, sizes, temporary_row, temporary)
    held += (random.integers(0, 2, n), absent)
    return *ranges, *held, peak, peak_at, np.zeros_like(peak)


def placement_columns(random):
    start = np.array([0, 7, 12])
    first = np.concatenate([np.sort(random.integers(0, 9, 7)), np.sort(random.integers(0, 9, 5))])
    last, sizes = first + random.integers(0, 5, 12), random.integers(1, 40, 12)
    lowest, align = 4 * random.integers(0, 8, 12), random.choice([4, 8, 16], 12)
    results, padded = (np.zeros(12, np.int64), np.zeros(2, np.int64)), -(-sizes // 4) * 4
    scratch = sweeps.scratch_to_place(start, first)
    return start, first, last, sizes, padded, lowest, align, 4, *results, *scratch


def dealt_columns(random):
    begin, tile_start = random.integers(-1, 4, 6), np.array([0, 3, 6, 6, 9, 12, 15])
    tile, n_bytes = random.integers(0, 3, (2, 15))
    share, is_apart = random.integers(0, 3, 6), random.random(15) < 0.5
    dealt = tile[is_dealt(tile_start, share, is_apart)]
    start = np.concatenate(([0], np.cumsum(np.bincount(dealt, minlength=3))))
    order = np.argsort(begin, kind="stable")
    columns = order, begin, tile_start, tile, n_bytes, share, is_apart, start
    return *columns, start[:-1].copy(), *empty(int(start[-1]), int(start[-1]))


def is_dealt(tile_start, share, is_apart):
    share = np.repeat(share, np.diff(tile_start))
    return (share == 2) | ((share == 1) & is_apart)


def counted_columns(random):
    _, _, tile_start, tile, _, share, is_apart, *_ = dealt_columns(random)
    return tile_start, tile, share, is_apart, np.zeros(3, np.int64)


def variable_columns(random):
    start = np.array([0, 4, 4, 9, 12])
    tile = random.integers(0, 3, 12)
    tile[:4] = np.sort(tile[:4])  # of the first, tiles ascend
    begin = np.sort(random.integers(0, 60, 12))
    return start, begin, begin + random.integers(1, 9, 12), tile, *empty(3, 5, 12, 12)


def frame_columns(random):
    items = random.integers(0, [[4], [3], [40], [9]], (4, 12))
    return *items, random.integers(-1, 2, 4), random.integers(0, 30, (2, 3))


def chosen_columns(random):
    start, begin, end, tile, *_ = variable_columns(random)
    return start, tile, end - begin, random.random(4) < 0.5, np.zeros(3, np.int64)


def raised_columns(random):
    start = np.concatenate(([0], np.cumsum(random.integers(0, 3, 4))))
    over, tops = random.integers(0, 5, start[-1]), random.integers(0, 30, (5, 3))
    variable, tile = random.integers(0, [[4], [3]], (2, 9))
    return start, over, variable, tile, tops, random.integers(0, 30, 9)


def marked_columns(random):
    """Of each variable the tiles ascend; what is wanted is one of them."""
    start, tile = np.array([0, 3, 3, 5]), np.array([0, 2, 5, 1, 4])
    wanted = random.integers(0, 5, 8)
    return start, tile, np.array([0, 0, 0, 2, 2])[wanted], tile[wanted], np.zeros(5, bool)


def columns_to_cover(random):
    """Disjoint intervals, and others of which each end has its entry, also behind the last one."""
    ends = np.sort(random.choice(60, 8, replace=False))
    low, high = ends[::2].copy(), ends[1::2].copy()
    begin, end = ascending(random, 6)
    entries = np.stack([np.searchsorted(high, at, "right") for at in (begin, end)])
    so_far = np.concatenate(([0], np.cumsum(high - low)))
    return low, so_far, begin, end, entries, np.zeros(6, np.int64)


def ascending(random, n):
    begin = np.sort(random.integers(0, 60, n))
    return begin, begin + random.integers(0, 9, n)


def series(random, n):
    """Ascending intervals; of some seeds, two series of them."""
    begin, end = ascending(random, n)
    order = np.argsort(np.arange(n) % random.integers(1, 3), kind="stable")
    return begin[order], end[order]


def empty(*lengths):
    return [np.zeros(n, np.int64) for n in lengths]


def tile_map(random):
    cuts = np.sort(random.choice(70, 12, replace=False))
    return cuts[::2], cuts[1::2], random.integers(0, 4, 6)


def room(n_columns, n):
    return np.zeros((n_columns, n), np.int64)


def in_map(random, n):
    """A tile map, intervals, and the first entry of the map that ends behind where each begins."""
    of_map, (begin, end) = tile_map(random), ascending(random, n)
    return of_map, begin, end, np.searchsorted(of_map[1], begin, side="right")


def cut_columns(random):
    of_map, *intervals = in_map(random, 5)
    return *of_map, *intervals, room(4, random.integers(0, 40))


def piece_columns(random):
    start = np.concatenate(([0], np.cumsum(random.integers(0, 9, 8))))
    begin = random.integers(0, start[-1], 5)
    return start, begin, np.minimum(begin + random.integers(0, 20, 5), start[-1]), *empty(5)


def piece_cut_columns(random):
    columns = piece_columns(random)
    (n,) = interval_sweeps.count_pieces.function(*columns)
    start, *rest = columns
    return start, *random.integers(0, 99, (2, 8)), *rest, *empty(n, n, n, n)


def strided_columns(random):
    start = np.concatenate(([0], np.cumsum(random.integers(0, 9, 8)), [70]))
    count, stride = random.integers(0, 5, 7), random.integers(-3, 4, 7)
    runs = random.integers(15, 55, 7), count, stride
    places = np.zeros(3, np.int64)
    return start, *random.integers(0, 99, (2, 9)), *runs, places, *room(2, count.sum())


def numbered_columns(random):
    base, numbers = np.sort(random.integers(0, 90, 5)), random.integers(-1, 2, 5)
    base[0] = 0
    return *random.integers(0, 30, (2, 7)), 4, base, 2, numbers, *empty(5, 7)


def piece_word_columns(random):
    columns = random.integers(0, 2, 20), *np.sort(random.integers(0, 9, (2, 20))), np.ones(20, int)
    return np.arange(20), *columns, 3, 6, np.zeros(2, np.int64)


def run_columns(random):
    return random.integers(0, 99, 7), random.integers(0, 5, 7), random.integers(0, 4, 7)


def cover_columns(random):
    return *run_columns(random), 4, room(3, random.integers(0, 40))


def unroll_columns(random):
    runs = run_columns(random)
    return *runs, *empty(int(runs[1].sum()))


def row_columns(random):
    run_start = np.concatenate(([0], np.cumsum(random.integers(0, 4, 6))))
    return np.sort(np.append(random.integers(0, 7, 3), [0, 6])), run_start, *empty(run_start[-1])


def amount_columns(random):
    return random.integers(0, 4, 9).astype(np.int32), random.integers(-9, 9, 9), *empty(4)


def holder_columns(random):
    base = np.sort(random.choice(50, 6, replace=False))
    return random.integers(base[0], 60, 9), base, np.zeros(6, bool)


def union_columns(random):
    tile = np.sort(random.integers(0, 3, 9))
    return tile, *series(random, 9), room(3, 3), room(3, 9)


def alone_columns(random):
    source, destination, low = random.integers(0, 5, (3, 8))
    pieces = low, low + random.integers(1, 9, 8)
    return source, destination, source, *pieces, np.full(5, -1), *empty(5, 5)


def way_columns(random):
    return *random.integers(0, 5, (2, 8)), 19, *random.integers(0, 9, (3, 5)), *empty(5)


def tile_pairs(random):
    return random.integers(0, 2, (2, 9))


def sorted_ends(random):
    begin, end = ascending(random, 8)
    return begin, np.sort(end), room(2, 16)


def group_columns(random):
    run_start = np.concatenate(([0], np.cumsum(random.integers(0, 4, 6))))
    n = int(run_start[-1])
    run, row = np.arange(n), np.sort(random.integers(0, 3, n))
    begin = np.cumsum(random.integers(0, 2, n) * 4)
    tile = np.array([0, 0, 2], np.int32)
    return begin, begin + random.integers(0, 2, n) * 4, run, row, run_start, tile, room(4, n)


def moving_columns(random):
    """Groups of sub-vectors, some alike, on few tiles, and a map of where everything lies."""
    of_map, sub = tile_map(random), np.sort(random.integers(0, 6, 12))
    begin, tile = random.integers(0, 60, 6)[random.integers(0, 6, 12)], random.integers(0, 4, 6)
    groups = begin, begin + random.integers(1, 9, 6)[sub], tile[sub], sub
    return of_map, groups, np.searchsorted(of_map[1], begin, side="right"), np.zeros(6, bool)


def find_moving_columns(random):
    (begin, _, tile), groups, entry, marks = moving_columns(random)
    return begin, tile, *groups[1:], entry, marks


def kind_columns(random):
    _, groups, _, marks = moving_columns(random)
    marks[:] = random.integers(0, 4, 6) > 0
    return *groups, np.zeros(16, np.int64), marks


def take_columns(random):
    of_map, groups, entry, marks = moving_columns(random)
    marks[:] = random.integers(0, 2, 6)
    return *of_map, *groups, entry, marks, room(3, random.integers(0, 20))


def elsewhere_columns(random):
    tiles = random.integers(0, 4, 5)
    of_map, *intervals = in_map(random, 5)
    return *of_map, tiles, *intervals, room(4, random.integers(0, 40))


def crossing_columns(random):
    (_, map_end, _), *intervals = in_map(random, 9)
    return map_end, *intervals, *empty(9)


def covered_columns(random):
    (map_begin, map_end, _), *intervals = in_map(random, 3)
    return map_begin, map_end, *intervals


def copy_columns(random):
    (begin, end, tile), sizes = tile_map(random), random.integers(0, 20, 5)
    ends = random.integers(0, 60, (2, 5))
    entries = np.searchsorted(end, ends, side="right")
    return begin, end, tile, *ends, sizes, *entries, room(5, random.integers(0, 40))


SWEEPS = {
    piece_sweeps.cut_copies: copy_columns,
    piece_sweeps.cut_elsewhere: elsewhere_columns,
    piece_sweeps.find_moving: find_moving_columns,
    piece_sweeps.keep_first_of_kind: kind_columns,
    piece_sweeps.take_moving: take_columns,
    piece_sweeps.contiguous_groups: group_columns,
    piece_sweeps.find_crossing: crossing_columns,
    interval_sweeps.join_in_turn: lambda random: (*series(random, 9), room(2, 9)),
    interval_sweeps.all_in_entries: covered_columns,
    interval_sweeps.find_entries: lambda r: (tile_map(r)[1], r.integers(0, 60, 9), *empty(9)),
    interval_sweeps.cut_at_entries: cut_columns,
    interval_sweeps.count_pieces: piece_columns,
    interval_sweeps.cut_at_pieces: piece_cut_columns,
    interval_sweeps.look_up_strided: strided_columns,
    interval_sweeps.number_holders: numbered_columns,
    interval_sweeps.mark_runs: lambda random: (*run_columns(random), 0, np.zeros(120, bool)),
    interval_sweeps.cover_runs: cover_columns,
    interval_sweeps.unroll_runs: unroll_columns,
    interval_sweeps.rows_of_runs: row_columns,
    interval_sweeps.add_per_tile: amount_columns,
    interval_sweeps.mark_holders: holder_columns,
    piece_sweeps.union_per_tile: union_columns,
    piece_sweeps.words_in_order: piece_word_columns,
    piece_sweeps.pairs_in_turn: lambda random: (*tile_pairs(random), room(2, 9)),
    piece_sweeps.longest_ways: way_columns,
    piece_sweeps.served_alone: alone_columns,
    piece_sweeps.count_covering: sorted_ends,
    piece_sweeps.count_covered: columns_to_cover,
    sweeps.find_race: race_columns,
    sweeps.deal_to_workers: worker_columns,
    sweeps.flow_back: liveness_columns,
    sweeps.sweep_peak: peak_columns,
    sweeps.place_ranges: placement_columns,
    sweeps.deal_to_tiles: dealt_columns,
    sweeps.count_dealt: counted_columns,
    sweeps.bytes_of_variables: variable_columns,
    sweeps.add_bytes_of: chosen_columns,
    sweeps.raise_tops: frame_columns,
    sweeps.raise_above: raised_columns,
    sweeps.mark_entries: marked_columns,
}


def by_c_compiler(sweep, columns):
    """As the C compiler makes it, which must be there."""
    run = compiled(sweep.function, [kind_of(column) for column in columns])
    assert run is not None
    return run(*columns)


def on_arrays(sweep, columns):
    """As machine code that reads the arrays."""
    run = compiled(sweep.function, [kind_of(column) for column in columns])
    return run.on_arrays(
        tuple(c if isinstance(c, int) else np.ascontiguousarray(c) for c in columns)
    )


NATIVE = {
    "C": by_c_compiler,
    "C on arrays": on_arrays,
    "Numba": lambda sweep, columns: sweep.by_numba(*columns),
}


# Numba takes two seconds for each, and is used only where there is no C compiler.
BY_NUMBA = [
    pytest.param(sweep, "Numba", marks=() if i % 7 == 0 else pytest.mark.wide)
    for i, sweep in enumerate(SWEEPS)
]


@pytest.mark.parametrize(
    ("sweep", "native"),
    [*((sweep, way) for sweep in SWEEPS for way in ("C", "C on arrays")), *BY_NUMBA],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_python_and_native_code_agree(sweep, native):
    """A sweep returns and writes the same, whichever way it runs."""
    if native != "Numba" and shutil.which("g++") is None:
        pytest.skip("no C compiler")
    for seed in range(20):
        columns = [SWEEPS[sweep](np.random.default_rng(seed)) for _ in range(2)]
        assert sweep.function(*columns[0]) == NATIVE[native](sweep, columns[1])
        for ours, other in zip(*columns, strict=True):
            np.testing.assert_array_equal(ours, other)


def test_numba_helps_where_no_compiler_is(monkeypatch, tmp_path):
    """Neither a compiler nor what one made before."""
    monkeypatch.setenv("TREMULA_CXX", "no-such-compiler")
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    sweep = NativeSweep(sweeps.find_race.function, lambda: lambda *_: "by Numba")
    assert sweep(*race_columns(np.random.default_rng(0))) == "by Numba"


def test_c_that_does_not_compile_is_warned_of(monkeypatch, tmp_path):
    """A warning says why compilation takes longer; Numba computes the same results."""
    if shutil.which("g++") is None:
        pytest.skip("no C compiler")
    monkeypatch.setenv("TREMULA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(native_sweeps, "_HEAD", "no such statement;")
    sweep = NativeSweep(sweeps.find_race.function, lambda: lambda *_: "by Numba")
    with pytest.warns(UserWarning, match="find_race is compiled by Numba.*does not compile"):
        assert sweep(*race_columns(np.random.default_rng(0))) == "by Numba"


def test_columns_of_other_types_follow_each_other():
    """A sweep takes columns of another type, of another rank or with gaps as it does the first."""
    sweep = NativeSweep(_total, lambda: pytest.fail("the C compiler is there"))
    wide, gaps = np.arange(5), np.arange(20)[::2]
    for column in (wide, wide, wide.astype(np.int32), gaps, wide.astype(np.longlong), wide, gaps):
        assert sweep(column, 3) == (int(column.sum()) + 3,)
    assert sweep(wide, True) == (11,)
    assert sweep(wide.view(Column), 1) == (11,)


class Column(np.ndarray):
    """Arrays of other classes may be laid out differently."""


def _total(column, more):
    total = more
    for i in range(len(column)):
        total += column[i]
    return (total,)


def test_division_rounds_down():
    """As Python's does, and C's does not."""
    columns = np.array([-7, 7, -7, 7]), np.array([2, -2, -2, 2]), np.zeros(4, np.int64)
    by_c_compiler(Sweep(_divide, len), columns)
    assert columns[2].tolist() == [-4, -4, 3, 3]


def _divide(a, b, quotient):
    for i in range(len(a)):
        quotient[i] = a[i] // b[i]


def test_other_statements_are_refused():
    """A sweep that C cannot say is an error of its author, not a slow sweep."""
    with pytest.raises(NotImplementedError, match="sorted"):
        compiled(_sort, [LoopColumn("i8", 1)])


def _sort(column):
    return sorted(column)


def test_a_sweep_turns_native_when_it_was_called_enough(monkeypatch):
    """Calls in Python are few: many short columns take native code as one long one does."""
    called = []
    monkeypatch.setattr(sweep_module, "TURNS_IN_PYTHON", 10)
    sweep = Sweep(lambda *_: called.append("python"), len)
    sweep.__dict__["native"] = lambda *_: called.append("native")
    for _ in range(4):
        sweep([0] * 4)
    assert called == ["python", "python", "native", "native"]


def test_only_the_first_of_sub_vectors_alike_moves():
    """Alike are those of the same intervals on the same tile, in number, too."""
    for seed in range(200):
        begin, end, tile, sub, firsts, marks = kind_columns(np.random.default_rng(seed))
        wanted, known = [], set()
        for number, is_marked in enumerate(marks.tolist()):
            rows = np.flatnonzero(sub == number)
            kind = tuple(zip(*(c[rows].tolist() for c in (begin, end, tile)), strict=True))
            wanted.append(is_marked and kind not in known if len(rows) else is_marked)
            if is_marked:
                known.add(kind)
        piece_sweeps.keep_first_of_kind.function(begin, end, tile, sub, firsts, marks)
        assert marks.tolist() == wanted


def test_parts_of_intervals_are_those_of_a_comparison_with_every_entry():
    """Intervals in any order are cut where a comparison with every entry cuts them."""
    random = np.random.default_rng(0)
    for n in (1, 2, 40, 300):
        cuts = np.sort(random.choice(9 * n + 9, 2 * n, replace=False))
        begin, end = cuts[::2], cuts[1::2]
        low = random.integers(-3, 9 * n + 12, 60)  # in no order: near and far, both ways
        high = low + random.integers(1, 30, 60)
        meets = (begin < high[:, None]) & (end > low[:, None])
        owner, entry = np.nonzero(meets)
        expected = owner, np.maximum(low[owner], begin[entry]), np.minimum(high[owner], end[entry])
        parts = ByteTileMap(begin, end, np.arange(n)).split(low, high)
        np.testing.assert_array_equal(parts, (*expected, entry))


def test_positions_are_looked_up_in_pieces_in_any_order():
    """Runs of position intervals in any order are the elements of the whole buffer there."""
    random = np.random.default_rng(0)
    for n in (1, 2, 40, 300):
        count, address = random.integers(0, 5, n), random.integers(0, 99, n)
        count[0] = 1
        pieces = Pieces(Runs(address, count, np.ones(n, np.int64)))
        each = pieces.runs.addresses()
        begin = random.integers(0, len(each), 60)
        end = np.minimum(begin + random.integers(1, 9, 60), len(each))
        runs, owner = pieces.lookup_intervals(begin, end)
        expected = [each[a:b] for a, b in zip(begin, end, strict=True)]
        np.testing.assert_array_equal(runs.addresses(), np.concatenate(expected))
        np.testing.assert_array_equal(
            np.repeat(owner, runs.count), np.repeat(np.arange(60), end - begin)
        )


def test_sub_vectors_move_unless_they_are_one_piece_of_their_tile():
    """What is in parts, or elsewhere, moves; and of it the parts on its own tile are copied."""
    random = np.random.default_rng(0)
    for _ in range(20):
        (begin, end, tile), groups, entry, moves = moving_columns(random)
        piece_sweeps.find_moving.native(begin, tile, *groups[1:], entry, moves)
        low, high, wanted, sub = groups
        meets = (begin < high[:, None]) & (end > low[:, None])
        is_away = (meets & (tile != wanted[:, None])).any(axis=1)
        is_split = np.bincount(sub, minlength=6)[sub] > 1
        expected = np.bincount(sub, weights=is_away | is_split, minlength=6) > 0
        np.testing.assert_array_equal(moves, expected)
        n_most = int(meets.sum())
        (n,) = piece_sweeps.take_moving.native(
            *(begin, end, tile), *groups, entry, moves, pieces := room(3, n_most)
        )
        owner, part = np.nonzero(meets & moves[sub][:, None] & (tile == wanted[:, None]))
        starts, ends = np.maximum(low[owner], begin[part]), np.minimum(high[owner], end[part])
        np.testing.assert_array_equal(pieces[:, :n], (wanted[owner], starts, ends - starts))


def test_copies_are_cut_where_either_side_changes_tiles():
    """Pieces of copies are those of a comparison of both sides with every entry of the map."""
    random = np.random.default_rng(0)
    for n in (1, 2, 40, 300):
        cuts = np.sort(random.choice(9 * n + 9, 2 * n, replace=False))
        tile_map = ByteTileMap(cuts[::2], cuts[1::2], random.integers(0, 9, n))
        source, goal = random.integers(-3, 9 * n + 12, (2, 60))
        n_bytes = random.integers(1, 30, 60)
        owner, low, high, from_tile = tile_map.split(source, source + n_bytes)
        to = goal[owner] + (low - source[owner])
        part, goal_low, goal_high, to_tile = tile_map.split(to, to + (high - low))
        begin = low[part] + (goal_low - to[part])
        expected = from_tile[part], to_tile, begin, goal_low, goal_high - goal_low
        entries = tile_map.entries_at(source), tile_map.entries_at(goal)
        pieces = filled(piece_sweeps.cut_copies, 5, 3, *tile_map, source, goal, n_bytes, *entries)
        np.testing.assert_array_equal(pieces, expected)


def test_entries_are_dealt_to_tiles_as_a_sort_has_them():
    """Entries by tile, by when their variables begin, larger ones first, then in their order."""
    random = np.random.default_rng(0)
    for _ in range(30):
        columns = dealt_columns(random)
        _, begin, tile_start, tile, n_bytes, share, is_apart, *_, entry, holder = columns
        sweeps.deal_to_tiles.native(*columns)
        variable = np.repeat(np.arange(6), np.diff(tile_start))
        dealt = np.flatnonzero(is_dealt(tile_start, share, is_apart))
        expected = dealt[np.lexsort((-n_bytes[dealt], begin[variable[dealt]], tile[dealt]))]
        np.testing.assert_array_equal(entry, expected)
        np.testing.assert_array_equal(holder, variable[expected])
