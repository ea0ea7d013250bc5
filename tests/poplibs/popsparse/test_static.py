"""Static sparse products: published formulae and plans, both operand orders, wrong calls."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.types import Type
from tremula.poplibs.popsparse import CSRMatrix, SparsityError, static
from tremula.poplibs.popsparse.static.costs import block_cycles, gather_cycles, vertex_cycles
from tremula.poplibs.popsparse.static.partition import deal, work_lists
from tremula.poplibs.popsparse.static.plan import (
    StaticProblem,
    band_cuts,
    plan_static,
    tiles_of_bands,
)
from tremula.poplibs.popsparse.static.vertices import places_of_sums

BOW = tr.IPUModel("bow").create_target().chip


def small_graph() -> tr.Graph:
    return tr.Graph(tr.IPUModel("bow", tiles_per_ipu=16).create_device())


@pytest.mark.parametrize(
    ("element", "n", "cycles"),
    [(tr.HALF, 4, 318), (tr.HALF, 8, 354), (tr.HALF, 12, 726),
     (tr.FLOAT, 2, 282), (tr.FLOAT, 4, 324), (tr.FLOAT, 6, 690)],
)  # fmt: skip
def test_element_formulae(element, n, cycles):
    """Two rows of three values per worker cost what PopLibs' planner says."""
    assert int(vertex_cycles(12, 36, n, 1, element, BOW)) == cycles


@pytest.mark.parametrize(
    ("element", "side", "n", "cycles"),
    [(tr.HALF, 4, 2, 622), (tr.HALF, 8, 2, 922), (tr.HALF, 16, 2, 1462), (tr.HALF, 4, 4, 910),
     (tr.FLOAT, 4, 2, 874), (tr.FLOAT, 8, 2, 1450), (tr.FLOAT, 16, 2, 4312),
     (tr.FLOAT, 16, 1, 3160)],
)  # fmt: skip
def test_block_formulae(element, side, n, cycles):
    """Two rows of three blocks cost what PopLibs' planner says."""
    assert int(block_cycles(2, 6, n, side, element, 6)) == cycles


def test_gather_formulae():
    """Reordering values costs what PopLibs registers for its gather vertex."""
    result = [gather_cycles(n, tr.FLOAT, 6) for n in (100, 101)]
    result += [gather_cycles(n, tr.HALF, 6) for n in (100, 3)]
    assert [int(cycles) for cycles in result] == [330, 342, 324, 240]


def test_bands_and_their_tiles():
    """Bands end when they are full; tiles go by shares, in pairs, and every band has some."""
    counts = np.array([2, 1, 0, 3, 1, 1])
    assert band_cuts(counts, 2) == [0, 4, 6]
    assert band_cuts(counts, 3) == [0, 2, 4, 6]
    assert tiles_of_bands(np.array([4, 4]), 8) == [4, 4]
    assert tiles_of_bands(np.array([6, 1, 1]), 8) == [4, 2, 2]


def striped(shape: tuple[int, int, int], side: int, step: int, element: Type, n_tiles: int):
    """Blocks (i, j) with i + 3j divisible by `step`."""
    m, k, n = shape
    row, column = np.indices((m // side, k // side))
    present = (row + 3 * column) % step == 0
    counts = [present.sum(axis).astype(np.int64).tobytes() for axis in (1, 0)]
    return StaticProblem(m // side, k // side, n, side, element, n_tiles, *counts)


@pytest.mark.parametrize(
    ("problem", "found"),
    [(((64, 64, 16), 1, 8, tr.HALF, 16), (951, 880, 2, 2)),
     (((64, 64, 16), 1, 8, tr.FLOAT, 16), (1450, 1728, 4, 1)),
     (((1024, 1024, 64), 16, 16, tr.HALF, 1472), (1650, 2560, 4, 16)),
     (((1024, 1024, 64), 16, 16, tr.FLOAT, 1472), (3227, 4352, 11, 4)),
     (((4096, 4096, 1024), 16, 16, tr.HALF, 1472), (58963, 128512, 16, 9))],
)  # fmt: skip
def test_plans_are_those_of_poplibs(problem, found):
    """Cycles, bytes and splits of the best plan agree with PopLibs' planner."""
    plan = plan_static(striped(*problem), BOW, 0.6)
    assert (plan.cycles, plan.n_bytes, plan.n_splits, plan.n_bands) == found


def test_blocks_are_dealt_once_per_interval():
    """Every interval of columns has each block exactly once, on separate tiles."""
    rng = np.random.default_rng(0)
    present = rng.random((24, 40)) < 0.2
    row, column = np.nonzero(present)
    counts = [present.sum(axis).astype(np.int64).tobytes() for axis in (1, 0)]
    plan = plan_static(StaticProblem(24, 40, 30, 1, tr.HALF, 16, *counts), BOW, 0.6, 3, 2)
    dealt = deal(plan, row, column, 30)
    assert set(dealt.n_begin.tolist()) == {0, 16}
    for begin in (0, 16):
        mine = dealt.n_begin == begin
        assert np.array_equal(dealt.last[mine][:-1], dealt.first[mine][1:])
        assert (dealt.first[mine][0], dealt.last[mine][-1]) == (0, len(row))
    assert len(np.unique(dealt.tile)) == len(dealt.tile)
    lists = work_lists(dealt, is_transposed=True)
    assert np.array_equal(np.sort(lists.source), np.sort(np.tile(np.arange(len(row)), 2)))


A = np.zeros((4, 6), np.float32)
A[[0, 0, 1, 2, 2, 2, 3], [1, 4, 0, 2, 3, 5, 4]] = [1, 2, 3, 4, 5, 6, 7]


def test_a_small_product_in_both_orders():
    """A·B and (B'·A')' are the worked example; values are written in the matrix's own order."""
    b = 2 * np.arange(6)[:, None] + np.arange(2) + np.float32(1)
    wanted = [[21, 24], [3, 6], [121, 136], [63, 70]]
    graph, sequence = small_graph(), tr.Sequence()
    left, right = CSRMatrix.from_dense(A), CSRMatrix.from_dense(A.T)
    params = static.MatMulParams.create_for_sparse_dense(1, 4, 6, 2)
    turned = static.MatMulParams.create_for_dense_sparse(1, 2, 6, 4)
    lhs = static.create_sparse_dense_mat_mul_lhs(graph, tr.FLOAT, params, left)
    dense = static.create_sparse_dense_mat_mul_rhs(graph, tr.FLOAT, params, left)
    rhs = static.create_dense_sparse_mat_mul_rhs(graph, tr.FLOAT, turned, right)
    out = static.sparse_dense_mat_mul(graph, lhs, dense, sequence)
    back = static.dense_sparse_mat_mul(graph, dense.transpose(), rhs, sequence)
    for name, tensor in (("l", lhs.in_row_order()), ("r", rhs.in_row_order()), ("b", dense)):
        graph.create_host_write(name, tensor)
    for name, tensor in (("out", out), ("back", back)):
        graph.create_host_read(name, tensor)
    engine = tr.Engine(graph, sequence).load()
    for name, array in (("l", left.nz_values), ("r", right.nz_values), ("b", b)):
        engine.write_tensor(name, array)
    engine.run()
    assert engine.read_tensor("out").tolist() == wanted
    assert engine.read_tensor("back").T.tolist() == wanted
    assert np.array_equal(
        lhs.product.from_device(lhs.product.to_device(left.nz_values)), left.nz_values
    )


def test_wrong_calls_are_named():
    """Sizes, operand order, groups, unsorted and repeated entries, and memory: each is said."""
    graph = small_graph()
    pattern = CSRMatrix.from_dense(A)
    params = static.MatMulParams.create_for_sparse_dense(1, 4, 6, 2)
    make = static.create_sparse_dense_mat_mul_lhs
    with pytest.raises(SparsityError, match="2 groups"):
        static.MatMulParams.create_for_sparse_dense(2, 4, 6, 2)
    with pytest.raises(SparsityError, match=r"a matrix of \[4, 6\], expected \[4, 8\]"):
        make(graph, tr.FLOAT, static.MatMulParams.create_for_sparse_dense(1, 4, 8, 2), pattern)
    with pytest.raises(SparsityError, match="dense × sparse"):
        static.create_dense_sparse_mat_mul_rhs(graph, tr.FLOAT, params, pattern)
    with pytest.raises(SparsityError, match="values of int"):
        make(graph, tr.INT, params, pattern)
    with pytest.raises(SparsityError, match="valid partition"):
        make(graph, tr.FLOAT, params, pattern, available_memory_proportion=0.0)
    for columns, what in (
        ([4, 1, 0, 2, 3, 5, 4], "out of order"),
        ([1, 1, 0, 2, 3, 5, 4], "twice"),
    ):
        wrong = CSRMatrix(4, 6, pattern.nz_values, np.array(columns), pattern.row_indices)
        with pytest.raises(SparsityError, match=f"entry 1 of row 0 .*{what}"):
            make(graph, tr.FLOAT, params, wrong)


def test_sums_of_rows_are_spread_over_tiles():
    """A long row on one tile is added up on many, from different ones on; few values stay there."""
    graph = tr.Graph(tr.IPUModel("bow").create_device())
    out = graph.add_variable(tr.HALF, [8 * 4096], "out")
    for row in range(8):
        graph.set_tile_mapping(out[row * 4096 : row * 4096 + 4096], row)
    begin = np.arange(8) * 4096
    cuts, tiles = places_of_sums(graph, out, begin, np.full(8, 12))
    assert np.isin(begin, cuts).all()
    assert (np.diff(cuts) == 8).all()
    first = tiles[np.searchsorted(cuts, begin)]
    assert len(set(first.tolist())) == 8
    assert np.bincount(tiles).max() <= 8
    few, home = places_of_sums(graph, out[:64], np.array([0]), np.array([1]))
    assert few[0] == 0
    assert set(home.tolist()) == {0}
