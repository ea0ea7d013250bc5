"""Sorting networks, top-k layouts, padding and regrouping beyond the registry's samples."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import run_op, small_graph
from tremula.poplibs import popops
from tremula.poplibs.popops.sorting.sort import choose_blocks, network
from tremula.poplibs.registry import PoplibsError


@pytest.mark.parametrize("n_blocks", range(1, 20))
def test_network_sorts(n_blocks):
    """The network sorts all sequences of zeros and ones it can, and so all sequences."""
    random = np.random.default_rng(n_blocks)
    rows = (random.random((500, n_blocks)) < random.random((500, 1))).astype(int)
    for lower, upper in network(n_blocks):
        low, high = rows[:, lower], rows[:, upper]
        rows[:, lower], rows[:, upper] = np.minimum(low, high), np.maximum(low, high)
    assert (np.diff(rows, axis=1) >= 0).all()


def test_long_rows_are_cut_into_blocks():
    """A long row is sorted by many tiles, many short rows by one worker each."""
    chip = tr.chip("bow")
    assert choose_blocks(1, 100_000, 4, False, chip, 1472) > 100
    assert choose_blocks(10_000, 20, 4, False, chip, 1472) == 1


def test_key_value_in_place():
    """Keys and values are both brought into order."""

    def function(graph, keys, values, sequence):
        popops.sort_key_value_in_place(graph, keys, values, 0, sequence)
        return keys, values

    keys = np.array([3, -1, 7, 0], np.int32)
    got = run_op(function, [keys, np.arange(4, dtype=np.float32)], tr.INT)
    np.testing.assert_array_equal(got[0], [-1, 0, 3, 7])
    np.testing.assert_array_equal(got[1], [1, 3, 0, 2])


def test_infinite_keys_keep_their_values():
    """Infinite keys are not mistaken for padding: their values stay."""
    keys = np.full(70, np.inf, np.float32)
    keys[:3] = [5, 1, 3]
    values = np.arange(70, dtype=np.int32)
    (got,) = run_op(popops.sort_key_value, [keys, values], options={"dim": 0})
    np.testing.assert_array_equal(got[:3], [1, 2, 0])
    np.testing.assert_array_equal(np.sort(got), values)


def test_top_k_input_needs_no_exchange():
    """top_k of a tensor made by create_top_k_input sorts its blocks where they are."""
    graph, sequence = small_graph(), tr.Sequence()
    x = popops.create_top_k_input(graph, tr.FLOAT, (3, 400))
    popops.top_k(graph, x, 5, sequence)
    engine = tr.Engine(graph, sequence).load()
    engine.run()
    assert engine.report().steps.exchange[0].max() == 0


def test_rows_of_an_arg_max_meet_on_different_tiles():
    """Where every row lies on all eight tiles, each of them compares the parts of one row."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, (64, 8), mapping="linear").transpose()
    places = popops.arg_max(graph, x, sequence)
    assert sorted(graph.get_tile_mapping(places).tile.tolist()) == list(range(8))


@pytest.mark.parametrize("shape", [(1, 64), (3, 50), (5, 7)])
def test_many_parts_of_a_row_meet_in_groups(shape, monkeypatch):
    """Groups of parts that meet first change nothing: of equal elements the first counts."""
    monkeypatch.setattr("tremula.poplibs.popops.sorting.arg_max.MOST_AT_ONCE", 2)
    values = np.random.default_rng(7).integers(0, 5, shape).astype(np.float32)

    def function(graph, x, sequence):
        turned = graph.add_variable(x.type, shape[::-1], mapping="linear").transpose()
        sequence.add(tr.Copy(x, turned))
        return popops.arg_max(graph, turned, sequence)

    (got,) = run_op(function, [values])
    np.testing.assert_array_equal(got, values.argmax(axis=1))


MODES = [("CONSTANT", {"mode": "constant", "constant_values": 2}), ("EDGE", {"mode": "edge"}),
         ("REFLECT", {"mode": "reflect"})]  # fmt: skip


@pytest.mark.parametrize(("mode", "numpy_mode"), MODES)
def test_pad(mode, numpy_mode):
    """Padding is NumPy's, in all modes."""

    def function(graph, x, sequence):
        padded = popops.pad(graph, x, [1, 2], [2, 0], value=2, mode=mode, mapping="EDGE")
        out = graph.add_variable(x.type, padded.shape, mapping="linear")
        sequence.add(tr.Copy(padded, out))
        return out

    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    (got,) = run_op(function, [values])
    np.testing.assert_array_equal(got, np.pad(values, ((1, 2), (2, 0)), **numpy_mode))


def test_negative_padding_removes():
    """Negative numbers cut elements off, beside others that add some."""
    graph = small_graph()
    x = graph.add_variable(tr.FLOAT, [5, 4], "x", mapping="linear")
    assert popops.pad(graph, x, [-2, 1], [-1, -1]).shape == (2, 4)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"lower": [1], "upper": [0, 0]}, "got 1 lower and 2 upper numbers"),
        ({"lower": [-6, 0], "upper": [0, 0]}, "does not fit a tensor of shape"),
        ({"lower": [5, 0], "upper": [0, 0], "mode": "REFLECT"}, "REFLECT adds less"),
        ({"lower": [0, 0], "upper": [0, 0], "mode": "REFLEC"}, "did you mean 'REFLECT'"),
    ],
)
def test_wrong_padding(options, text):
    """Padding that cannot be is refused, and says what can."""
    graph = small_graph()
    x = graph.add_variable(tr.FLOAT, [5, 4], "x", mapping="linear")
    with pytest.raises(PoplibsError, match=text):
        popops.pad(graph, x, **options)


def test_regroup_if_beneficial():
    """A tensor takes the grouping of another one if fast transposes can do it."""
    graph, sequence = small_graph(), tr.Sequence()
    x = graph.add_variable(tr.HALF, [8, 16], "x", mapping="linear")
    like = graph.add_variable(tr.HALF, [16, 8], "like", mapping="linear").transpose()
    regrouped = popops.regroup_if_beneficial(graph, x, like, sequence)
    assert popops.innermost_grouping(regrouped) == (0, 8)
    assert len(sequence.steps) == 1
    assert popops.regroup_if_beneficial(graph, x, x, sequence) is x
