"""Reductions beyond the registry's samples: outputs, scales, stages, sharing, published figures."""

import numpy as np
import pytest

import tremula as tr
from tests.poplibs.run_op import run_op
from tremula.compiler.compile import compile_graph
from tremula.poplibs import popops
from tremula.poplibs.popops.reduction.plan import (
    Destination,
    in_pieces,
    needs_another_stage,
    pays_at_destination,
)
from tremula.poplibs.popops.reduction.segments import (
    ReductionSegments,
    factors_of,
    grouped,
    segments_of,
)
from tremula.poplibs.registry import PoplibsError

VALUES = np.arange(60, dtype=np.float32).reshape(4, 15) / 8


def test_scale_tensor_and_update():
    """A scale tensor multiplies the sum, and update adds it to what out holds."""

    def function(graph, x, scale, out, sequence):
        popops.reduce_with_output(
            graph, x, out, [0], "SQUARE_ADD", sequence, scale=scale, update=True
        )
        return out

    scale, out = np.array([0.5], np.float32), np.ones(15, np.float32)
    (got,) = run_op(function, [VALUES, scale, out])
    np.testing.assert_allclose(got, 1 + 0.5 * (VALUES**2).sum(0), rtol=1e-6)


def test_half_is_summed_as_float():
    """A sum of halves that passes 2048 keeps what each addition in half would lose."""
    ones = np.ones((1, 3000), np.float16)
    (got,) = run_op(popops.reduce, [ones], tr.HALF, {"dims": [1], "operation": "ADD"})
    assert got.dtype == np.float16
    assert got[0] == 3000


def test_half_to_float():
    """out_type FLOAT keeps a sum of halves that no half can hold."""
    values = np.full((2, 40), 60000, np.float16)
    options = {"dims": [1], "operation": "ADD", "out_type": tr.FLOAT}
    (got,) = run_op(popops.reduce, [values], tr.HALF, options)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, values.astype(np.float32).sum(1))


def test_out_must_fit():
    """An output of another shape is refused with both shapes."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device())
    x = graph.add_variable(tr.FLOAT, [4, 5], "x", mapping="linear")
    out = graph.add_variable(tr.FLOAT, [4], "out", mapping="linear")
    with pytest.raises(PoplibsError, match=r"\[5\].*\[4\]"):
        popops.reduce(graph, x, [0], "ADD", tr.Sequence(), out=out)


def reduce_cycles(chip: str, n_per_tile: int, n_tiles: int) -> tuple[float, np.ndarray]:
    """(seconds, result) of a sum of ones spread evenly over tiles, to tile 0."""
    graph, sequence = tr.Graph(tr.IPUModel(chip).create_device()), tr.Sequence()
    x = graph.add_variable(tr.FLOAT, [n_per_tile * n_tiles], "x")
    begin = np.arange(n_tiles) * n_per_tile
    tiles = np.arange(n_tiles)
    mapping = tr.TileMapping(begin, begin + n_per_tile, tiles, graph.target.n_tiles)
    graph.set_tile_mapping(x, mapping)
    out = graph.add_variable(tr.FLOAT, [], "out", mapping=0)
    popops.reduce(graph, x, [0], "ADD", sequence, out=out)
    graph.create_host_write("x", x)
    graph.create_host_read("out", out)
    engine = tr.Engine(graph, sequence).load()
    engine.write_tensor("x", np.ones(x.shape, np.float32))
    engine.run()
    return engine.report().total_seconds, engine.read_tensor("out")


@pytest.mark.parametrize(
    ("n_per_tile", "n_tiles", "measured_us"),
    [(1216, 1, 1.69), (9728, 1, 7.02), (1, 1216, 1.97), (1000, 1216, 2.973)],
)
def test_published_times(n_per_tile, n_tiles, measured_us):
    """Modelled times of sums on GC2 are within a third of those Jia et al. measured."""
    seconds, result = reduce_cycles("gc2", n_per_tile, n_tiles)
    assert result == n_per_tile * n_tiles
    assert seconds * 1e6 == pytest.approx(measured_us, rel=0.33)


def scalars_on_tiles(n):
    """A partial of one output on each of n tiles, as segments of a reduction."""
    at, one = np.arange(n), np.ones(n, np.int64)
    return ReductionSegments(at, at, one, np.zeros(n, np.int64), one)


def test_many_partials_meet_in_stages():
    """With many partials of one output there are intermediate stages; with few there are none."""
    assert needs_another_stage(scalars_on_tiles(1472), 1, 1472)
    assert not needs_another_stage(scalars_on_tiles(4), 1, 1472)
    assert not needs_another_stage(scalars_on_tiles(32), 1, 1472)


def test_last_stage_is_where_the_output_is():
    """Unless few tiles have all of it: then others join partials, and send their results."""
    bow, n = tr.chip("Bow"), 1024
    parts = ReductionSegments(
        np.arange(32), np.arange(32) * n, np.full(32, n), np.zeros(32, np.int64), np.full(32, n)
    )
    for n_tiles, expected in ((256, True), (1, False)):
        begin = np.arange(n_tiles) * (n // n_tiles)
        there = Destination(begin, begin + n // n_tiles, np.arange(n_tiles))
        assert pays_at_destination(parts, there, (tr.FLOAT, tr.HALF), bow, 1472) is expected


def tiles_of_sums(shape, n_reductions=1, out_tiles=None):
    """The tiles of each stage of sums over all but the last dimension."""
    graph, sequence = tr.Graph(tr.IPUModel("bow").create_device()), tr.Sequence()
    reductions = []
    for number in range(n_reductions):
        x = graph.add_variable(tr.FLOAT, shape, f"x{number}", mapping="linear")
        out = None
        if out_tiles is not None:
            out = graph.add_variable(tr.FLOAT, shape[-1:], f"out{number}")
            at, width = np.arange(len(out_tiles)), shape[-1] // len(out_tiles)
            mapping = tr.TileMapping(at * width, (at + 1) * width, out_tiles, 1472)
            graph.set_tile_mapping(out, mapping)
        dims = range(len(shape) - 1)
        reductions.append(popops.Reduction(x, dims, "ADD", scale=0.5, out=out))
    popops.reduce_many(graph, reductions, sequence)
    sets = compile_graph(graph, sequence).compute_sets
    return [np.unique(np.concatenate([t.tile for t in s.tables])) for s in sets]


def test_results_are_joined_on_their_tiles():
    """Nothing is gathered on the first tiles of the chip and sent to where a result lies."""
    there = 700 + np.arange(32)
    *_, last = tiles_of_sums([5000, 64], out_tiles=there)
    assert last.tolist() == there.tolist()


def test_reductions_begin_at_tiles_of_their_own():
    """Stages of reductions of one step, and of other shapes, are on other tiles."""
    both, one = tiles_of_sums([4000, 4], 2), tiles_of_sums([4000, 4])
    assert len(both) == len(one) > 2
    assert len(both[1]) == 2 * len(one[1])
    other = tiles_of_sums([4004, 4])
    assert not set(other[1].tolist()) & set(one[1].tolist())


def test_pieces_of_a_stage():
    """A stage takes 64 or more partials on each tile, on neighbouring tiles of the first chip."""
    for n in (64, 100, 1216, 9728):
        moved = in_pieces(scalars_on_tiles(n), 1, 4, 9728, 5)
        tiles, sizes = np.unique(moved.tile, return_counts=True)
        assert tiles.tolist() == list(range(5, 5 + len(tiles)))
        assert len(tiles) == max(1, n // 64)
        assert (sizes[:-1] == sizes[0]).all()
        assert (np.sort(moved.begin) == np.arange(n)).all()


def test_pieces_hold_every_partial_once():
    """Whichever tiles hold which outputs, a stage takes every partial once, with its outputs."""
    random = np.random.default_rng(3)
    for _ in range(100):
        n_outs, n_tiles = int(random.integers(1, 200)), int(random.integers(1, 40))
        low = random.integers(0, n_outs, 50)
        width = np.minimum(random.integers(1, 60, 50), n_outs - low)
        begin = np.cumsum(width) - width
        moved = in_pieces(
            ReductionSegments(random.integers(0, n_tiles, 50), begin, width, low, width),
            n_outs, 4, n_tiles, int(random.integers(0, n_tiles)),
        )  # fmt: skip
        position, output = (
            np.concatenate([at + np.arange(n) for at, n in zip(first, moved.width, strict=True)])
            for first in (moved.begin, moved.out)
        )
        order = np.argsort(position)
        assert (position[order] == np.arange(width.sum())).all()
        expected = [at + np.arange(n) for at, n in zip(low, width, strict=True)]
        assert (output[order] == np.concatenate(expected)).all()
        assert moved.tile.max() < n_tiles


def test_reduce_many_shares_compute_sets():
    """Two reductions at once take as many steps as one."""
    n_steps = []
    for count in (1, 2):
        graph, sequence = (
            tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device()),
            tr.Sequence(),
        )
        tensors = [graph.add_variable(tr.FLOAT, [900], mapping="linear") for _ in range(count)]
        popops.reduce_many(graph, [popops.Reduction(x, [0]) for x in tensors], sequence)
        n_steps.append(len(sequence.steps))
    assert n_steps[0] == n_steps[1]


def test_partials_that_stages_share_are_temporary():
    """Partial results that two compute sets write are not kept from one run to the next."""
    graph, sequence = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device()), tr.Sequence()
    x = graph.add_variable(tr.HALF, [4000, 20], "x")
    for tile in range(8):
        rows = x[500 * tile : 500 * (tile + 1)]
        graph.set_tile_mapping(rows if tile % 2 else rows.flatten()[3:], tile)
    for tile in range(0, 8, 2):
        graph.set_tile_mapping(x[500 * tile].flatten()[:3], tile + 1)
    popops.reduce(graph, x, [0], "ADD", sequence, "sum")
    live = compile_graph(graph, [sequence]).analysis.liveness
    names = [name for name, kept in zip(graph.state.variables.names, live.always_live, strict=True)
             if kept]  # fmt: skip
    assert [name for name in names if "partials" in name] == []


def test_segments_cover_everything_once():
    """Groups of any shape, layout and tile map hold every element once, with its output."""
    random = np.random.default_rng(5)
    for _ in range(200):
        sizes = random.integers(1, 6, random.integers(1, 5)).tolist()
        reduced = (random.random(len(sizes)) < 0.5).tolist()
        n = int(np.prod(sizes))
        cuts = np.unique(np.concatenate(([0, n], random.integers(0, n + 1, 4))))
        tile = random.integers(0, 3, len(cuts) - 1)
        factors = factors_of(sizes, reduced)
        kept = [d for d, r in enumerate(reduced) if not r]
        n_outs = int(np.prod([sizes[d] for d in kept], dtype=np.int64))
        place = np.arange(n).reshape(sizes)
        digits = np.unravel_index(place.ravel(), sizes)
        out = np.zeros(n, np.int64)
        for d in kept:
            out = out * sizes[d] + digits[d]
        is_inner = factors[-1][1]
        groups = grouped(segments_of(cuts[:-1], cuts[1:], tile, factors), n_outs, is_inner)
        seen = np.zeros(n, np.int64)
        for g in range(len(groups.tile)):
            width = int(groups.width[g])
            for s in range(groups.start[g], groups.start[g + 1]):
                elems = np.arange(groups.begin[s], groups.begin[s] + groups.n_elems[s])
                seen[elems] += 1
                within = np.arange(len(elems))
                which = within // (len(elems) // width) if is_inner else within % width
                np.testing.assert_array_equal(out[elems], groups.out[g] + which)
        assert (seen == 1).all()
