"""poprand beyond its registry entries: seeds, layouts, limits, groups of dropout, cycles."""

from itertools import pairwise

import numpy as np
import pytest

import tremula as tr
from tremula.poplibs import poprand
from tremula.poplibs.registry import PoplibsError, all_ops


def new_graph(tiles=8):
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=tiles).create_device())


def scattered(graph, shape, type=tr.FLOAT, name="reference", n_parts=6, seed=0):
    """A tensor whose parts lie on random tiles."""
    tensor = graph.add_variable(type, shape, name, mapping=0)
    random, flat = np.random.default_rng(seed), tensor.flatten()
    cuts = [0, *sorted(random.integers(0, flat.n_elems + 1, n_parts)), flat.n_elems]
    for begin, end in pairwise(cuts):
        graph.set_tile_mapping(flat[begin:end], int(random.integers(graph.target.n_tiles)))
    return tensor


def ran(graph, tensors, sequence, options=None, n_runs=1):
    """What the tensors hold after each run."""
    for i, tensor in enumerate(tensors):
        graph.create_host_read(f"t{i}", tensor)
    engine = tr.Engine(graph, sequence, options or {}).load()
    result = []
    for _ in range(n_runs):
        engine.run()
        result.append([engine.read_tensor(f"t{i}") for i in range(len(tensors))])
    return result[0] if n_runs == 1 else result


def a_seed(graph, words=(3, 4)):
    return graph.add_constant(tr.UNSIGNED_INT, [2], list(words), mapping=0)


def test_checks_notice_wrong_numbers():
    """The registry's checks are no rubber stamps."""
    uniform = {"min_value": 0.0, "max_value": 1.0, "type": "FLOAT"}
    random, reference = np.random.default_rng(0), np.zeros(1000)
    check = all_ops()["poprand.uniform"].check
    assert check(random.random(1000), reference, **uniform) == ""
    assert "leave" in check(random.random(1000) * 1.1, reference, **uniform)
    assert "mean" in check(random.random(1000) * 0.8, reference, **uniform)
    assert "deviation" in check(0.25 + random.random(1000) / 2, reference, **uniform)


@pytest.mark.slow
def test_a_seed_fixes_the_values_whatever_was_drawn_before():
    """Same seed and modifier give the same values each time; another of either gives others."""
    graph, sequence = new_graph(), tr.Sequence()
    x = scattered(graph, [300])
    seed, other = a_seed(graph), a_seed(graph, (3, 5))
    drawn = [
        poprand.uniform(graph, s, modifier, x, tr.FLOAT, 0.0, 1.0, sequence)
        for s, modifier in ((seed, 1), (seed, 1), (seed, 2), (other, 1))
    ]
    runs = ran(graph, drawn, sequence, n_runs=2)
    for one, two, by_modifier, by_seed in runs:
        assert np.array_equal(one, two)
        assert not np.isin(by_modifier, one).any()
        assert not np.isin(by_seed, one).any()
    assert np.array_equal(runs[0], runs[1])


def test_a_seeded_operation_leaves_the_generators_alone():
    """Unseeded numbers go on as if nothing seeded had been drawn in between."""
    drawn = []
    for has_seeded in (False, True):
        graph, sequence = new_graph(), tr.Sequence()
        x = scattered(graph, [100])
        first = poprand.normal(graph, None, 0, x, tr.FLOAT, 0.0, 1.0, sequence)
        if has_seeded:
            poprand.normal(graph, a_seed(graph), 0, x, tr.FLOAT, 0.0, 1.0, sequence)
        second = poprand.normal(graph, None, 0, x, tr.FLOAT, 0.0, 1.0, sequence)
        drawn.append(ran(graph, [first, second], sequence))
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.isin(*drawn[0]).any()


@pytest.mark.slow
def test_values_depend_on_the_layout_and_not_on_threads():
    """One layout gives one result with any number of threads; another layout another."""
    result = []
    for layout, threads in ((0, 1), (0, 4), (1, 1)):
        graph, sequence = new_graph(), tr.Sequence()
        x = scattered(graph, [60_000], seed=layout)
        out = poprand.uniform(graph, a_seed(graph), 0, x, tr.FLOAT, 0.0, 1.0, sequence)
        result += ran(graph, [out], sequence, {"tremula.threads": threads})
    assert np.array_equal(result[0], result[1])
    assert not np.array_equal(result[0], result[2])
    assert all(len(np.unique(values)) > 59_000 for values in result)


def test_set_seed_starts_all_workers():
    """After set_seed unseeded numbers repeat; before, the engine's seed decides."""
    graph = new_graph()
    x = scattered(graph, [200])
    sequence = tr.Sequence()
    poprand.set_seed(graph, a_seed(graph), 0, sequence)
    out = poprand.uniform(graph, None, 0, x, tr.FLOAT, 0.0, 1.0, sequence)
    one, two = ran(graph, [out], sequence, {"tremula.seed": 5}, n_runs=2)
    assert np.array_equal(one, two)
    assert len(np.unique(one)) == 200


def test_results_lie_like_their_reference():
    """Shape and tile map are the reference's, also of a transposed view."""
    graph, sequence = new_graph(), tr.Sequence()
    x = scattered(graph, [12, 5]).transpose()
    out = poprand.bernoulli(graph, None, 0, x, tr.HALF, 0.5, sequence)
    assert out.shape == (5, 12)
    assert out.type is tr.HALF
    mine, wanted = graph.get_tile_mapping(out), graph.get_tile_mapping(x)
    assert np.array_equal(mine.tile, wanted.tile)
    assert np.array_equal(mine.begin, wanted.begin)


def test_integers_reach_both_bounds():
    """Uniform integers take every value from the least to the largest, equally often."""
    graph, sequence = new_graph(), tr.Sequence()
    x = scattered(graph, [7000], tr.INT)
    few = poprand.uniform(graph, None, 0, x, tr.INT, -3, 3, sequence)
    all_of_them = poprand.uniform(graph, None, 0, x, tr.INT, -(2**31), 2**31 - 1, sequence)
    result = ran(graph, [few, all_of_them], sequence)
    values, counts = np.unique(result[0], return_counts=True)
    assert values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert ((counts - 1000) ** 2).sum() / 1000 < 30  # chi square, 6 degrees of freedom
    assert result[1].min() < -(2**30) < 2**30 < result[1].max()


def test_certain_and_impossible():
    """Probabilities 0 and 1, deviation 0 and equal bounds leave nothing to chance."""
    graph, sequence = new_graph(), tr.Sequence()
    x = scattered(graph, [50])
    made = [
        poprand.bernoulli(graph, None, 0, x, tr.INT, 0.0, sequence),
        poprand.bernoulli(graph, None, 0, x, tr.INT, 1.0, sequence),
        poprand.normal(graph, None, 0, x, tr.FLOAT, 4.0, 0.0, sequence),
        poprand.uniform(graph, None, 0, x, tr.HALF, 2.5, 2.5, sequence),
        poprand.log_uniform(graph, None, 0, x, tr.FLOAT, 3.0, 3.0, sequence),
    ]
    for values, expected in zip(ran(graph, made, sequence), (0, 1, 4, 2.5, 3), strict=True):
        assert (values == expected).all()


def test_dropout_keeps_the_same_elements_forward_and_backward():
    """One seed, modifier and reference: the gradient passes exactly where the value did."""
    graph, sequence = new_graph(), tr.Sequence()
    x, gradient = scattered(graph, [40, 30]), scattered(graph, [40, 30], name="gradient", seed=5)
    for tensor in (x, gradient):
        graph.set_initial_value(tensor, np.ones((40, 30), np.float32))
    seed = a_seed(graph)
    out = poprand.dropout(graph, seed, 8, x, x, 0.6, 1 / 0.6, sequence)
    back = poprand.dropout(graph, seed, 8, gradient, x, 0.6, 1 / 0.6, sequence)
    forward, backward = ran(graph, [out, back], sequence)
    assert np.array_equal(forward, backward)
    assert set(np.unique(forward)) == {np.float32(0), np.float32(1 / 0.6)}


def test_shaped_dropout_drops_whole_groups():
    """Elements that share an element of the reference share its fate."""
    graph, sequence = new_graph(), tr.Sequence()
    x, reference = scattered(graph, [40, 30]), scattered(graph, [40, 1], name="rows")
    graph.set_initial_value(x, np.ones((40, 30), np.float32))
    out = poprand.shaped_dropout(graph, None, 0, x, reference, 0.5, 2.0, sequence)
    (result,) = ran(graph, [out], sequence)
    assert (result == result[:, :1]).all()
    assert set(np.unique(result)) == {0, 2}


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda g, x, s: poprand.dropout(g, None, 0, x, x[0], 0.5, 1.0, s), "same shape"),
        (
            lambda g, x, s: poprand.shaped_dropout(g, None, 0, x, x[:, 1:3], 0.5, 1.0, s),
            "fit together",
        ),
        (lambda g, x, s: poprand.normal(g, x, 0, x, tr.FLOAT, 0.0, 1.0, s), "a seed has two"),
        (lambda g, x, s: poprand.normal(g, None, -1, x, tr.FLOAT, 0.0, 1.0, s), "seed modifier"),
    ],
)
def test_wrong_operands_are_refused(call, text):
    """What does not fit is said with its shape."""
    graph = new_graph()
    x = scattered(graph, [4, 5])
    with pytest.raises(PoplibsError, match=text):
        call(graph, x, tr.Sequence())


def test_a_tile_draws_two_floats_in_four_cycles():
    """Published: 64 random bits in 4 cycles of a tile, plus what starting takes."""
    cycles = []
    for n_elems in (6_000, 12_000):
        graph, sequence = new_graph(1), tr.Sequence()
        x = graph.add_variable(tr.FLOAT, [n_elems], "x", mapping=0)
        poprand.uniform(graph, None, 0, x, tr.FLOAT, 0.0, 1.0, sequence)
        engine = tr.Engine(graph, sequence).load()
        engine.run()
        cycles.append(engine.clock.total_cycles)
    assert cycles[1] - cycles[0] == 6_000 / 2 * 4
