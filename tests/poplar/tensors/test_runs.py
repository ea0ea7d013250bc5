"""Runs and intervals against references that look at every element."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tremula import Graph, IPUModel
from tremula.base.errors import PoplarError
from tremula.poplar.tensors.layout import slots_of
from tremula.poplar.tensors.runs import (
    Pieces,
    Runs,
    byte_intervals,
    has_aliases,
    joined_intervals,
    ones,
    strided_runs,
    union_of_runs,
)
from tremula.poplar.tensors.tile_map import ByteTileMap
from tremula.poplar.tensors.variables import VariableTable

intervals = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=12)
runs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 5), st.integers(0, 4)), min_size=1, max_size=8
)


def columns(rows, n=2):
    return np.array(rows, np.int64).reshape(-1, n).T


def as_runs(rows):
    return Runs(*columns(rows, 3))


def elements(begin, end):
    return [i for low, high in zip(begin, end, strict=True) for i in range(low, high)]


@given(intervals)
def test_joined_intervals_cover_the_same_once(rows):
    """Sorted, apart from each other, and of the same places, whatever the order was."""
    begin, size = columns(rows)
    low, high = joined_intervals(begin, begin + size)
    assert (high > low).all()
    assert (low[1:] > high[:-1]).all()
    assert elements(low, high) == sorted(set(elements(begin, begin + size)))


@given(runs)
def test_byte_intervals_cover_all_elements(rows):
    """Those of a run, in order, and nothing else."""
    some = as_runs([(start, max(count, 1), stride) for start, count, stride in rows])
    begin, end, owner = byte_intervals(some, 2)
    for i, (start, count, stride) in enumerate(zip(*some, strict=True)):
        places = dict.fromkeys(start + stride * k for k in range(count))
        mine = owner == i
        assert elements(begin[mine], end[mine]) == [2 * p + b for p in places for b in range(2)]
    assert (np.diff(owner) >= 0).all()


@given(runs, st.integers(1, 30))
def test_union_of_runs_covers_the_same_once(rows, scale):
    """Also of elements far from each other, which are sorted and not marked."""
    some = as_runs([(start * scale, count, stride) for start, count, stride in rows])
    low, high = union_of_runs(some)
    assert (high > low).all()
    assert (low[1:] > high[:-1]).all()
    assert elements(low, high) == sorted(set(some.addresses().tolist()))


@given(runs, runs)
def test_strided_positions_have_the_addresses_of_their_elements(rows, views):
    """Positions may go up, down or stand still, and leap over pieces."""
    pieces = Pieces(as_runs(rows))
    address = pieces.runs.addresses()
    virtual = as_runs([(start, count, stride - 2) for start, count, stride in views])
    positions = virtual.addresses()
    if ((positions >= 0) & (positions < len(address))).all():
        np.testing.assert_array_equal(pieces.lookup(virtual).addresses(), address[positions])


@given(runs, intervals)
def test_lookup_gives_the_addresses_at_positions(rows, cuts):
    """Positions of a virtual buffer are addresses of its pieces, cut where pieces end."""
    pieces = Pieces(as_runs(rows))
    address = pieces.runs.addresses()
    begin, size = columns([(a, s) for a, s in cuts if a + s <= len(address)])
    result, owner = pieces.lookup_intervals(begin, begin + size)
    for i in range(len(begin)):
        expected = address[begin[i] : begin[i] + size[i]]
        np.testing.assert_array_equal(result.take(owner == i).addresses(), expected)


@given(runs, st.lists(st.integers(0, 90), min_size=8, max_size=8), st.lists(st.integers(0, 8)))
def test_moved_pieces_are_their_runs_further_on(rows, distance, order):
    """Each run moves as far as its slot says, also twice; places and counts stay what they were."""
    pieces, slots = Pieces(as_runs(rows)), np.arange(len(rows))
    distance, n = np.array(distance), len(rows)
    moved = pieces.moved(distance, slots).moved(distance, slots)
    questions = [lambda: moved.runs, lambda: moved.start, lambda: moved.n_elems]
    for which in order:  # whatever is asked first
        questions[which % 3]()
    start, count, stride = pieces.runs
    np.testing.assert_array_equal(moved.runs, (start + 2 * distance[:n], count, stride))
    np.testing.assert_array_equal(moved.start, pieces.start)
    assert moved.n_elems == pieces.n_elems


@given(intervals, st.sets(st.integers(0, 70), min_size=2, max_size=12))
def test_split_finds_the_tile_of_every_byte(rows, cuts):
    """Each part lies in one entry of the map; bytes without an entry are left out."""
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    mapped = ByteTileMap(*columns(list(zip(cuts[::2], cuts[1::2], strict=True))), np.arange(35))
    mapped = mapped._replace(tile=mapped.tile[: len(mapped.begin)])
    tile_of = {b: t for low, high, t in zip(*mapped, strict=True) for b in range(low, high)}
    begin, size = columns(rows)
    owner, low, high, tile = mapped.split(begin, begin + size)
    result = [
        (int(o), b, int(t))
        for o, a, z, t in zip(owner, low, high, tile, strict=True)
        for b in range(a, z)
    ]
    expected = [
        (i, b, tile_of[b])
        for i in range(len(begin))
        for b in range(begin[i], begin[i] + size[i])
        if b in tile_of
    ]
    assert result == expected
    n_bytes = sum(size.tolist())
    assert mapped.covers(begin, begin + size) == (len(expected) == n_bytes)


@given(runs)
def test_aliases_are_elements_that_appear_twice(rows):
    """Also those of a run with stride 0."""
    some = as_runs(rows)
    address = some.addresses()
    assert has_aliases(some) == (len(set(address.tolist())) < len(address))


@given(st.lists(st.integers(0, 400), min_size=1, max_size=9))
def test_holders_of_addresses(places):
    """The variable each element lies in, ascending."""
    table = VariableTable()
    table.base_bytes = [0, 128, 256, 1024]
    table.names = list("abcd")
    expected = sorted({table.id_at(4 * place) for place in places})
    assert table.holders_of(np.array(places), 4) == expected


@pytest.mark.parametrize("n", [0, 1, 2, 7, 8, 1000])
def test_ones_are_many_and_for_reading(n):
    """The column has the requested length and is read-only, because callers share it."""
    column = ones(n)
    assert column.tolist() == [1] * n
    assert not column.flags.writeable


def test_transposed_views_of_single_elements_take_one_column():
    """Their counts and strides are all one, and so the column of ones that all runs share."""
    pieces = Pieces(Runs(np.arange(60)[::-1].copy() * 2, np.ones(60, np.int64), ones(60)))
    runs = pieces.lookup(strided_runs(0, (6, 10), (1, 6)))
    expected = (118 - 2 * np.arange(60)).reshape(10, 6).T.ravel()
    np.testing.assert_array_equal(runs.addresses(), expected)
    assert runs.count.base is ones(60).base


@given(st.lists(st.tuples(st.integers(0, 39), st.integers(0, 2)), min_size=1, max_size=12))
def test_slots_number_variables_as_they_are_met(places):
    """Runs without elements have none; variables that were met before keep theirs."""
    graph = Graph(IPUModel("bow").create_device())
    for size in (12, 4, 40, 8):
        graph.add_variable("float", [size])
    variables = graph.state.variables
    bases = np.array(variables.base_bytes) // 4
    start = np.array([bases[at % 4] + at % 4 for at, _ in places])
    runs = Runs(start, np.array([count for _, count in places]), ones(len(places)))
    ids = {2: 0}
    slots = np.broadcast_to(slots_of(runs, 4, variables, ids), len(places))
    expected = {2: 0}
    for (at, count), slot in zip(places, slots.tolist(), strict=True):
        assert slot == (expected.setdefault(at % 4, len(expected)) if count else -1)
    assert ids == expected


def test_views_of_too_many_pieces_are_rejected():
    """A broadcast that would take all memory of the host is an error, not the end of it."""
    graph = Graph(IPUModel("ipu2", tiles_per_ipu=2).create_device())
    x = graph.add_variable("float", [2, 3], "x", mapping=0)
    with pytest.raises(PoplarError, match="separate pieces"):
        x.broadcast(1 << 31, 0)
    assert x.broadcast(4, 0).shape == (8, 3)
