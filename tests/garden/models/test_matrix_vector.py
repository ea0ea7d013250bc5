"""The planned matrix-vector product: the published plans, and the compute cycles of its graph."""

import numpy as np
import pytest

import tremula as tr
from tremula.garden.models.matrix_vector import SplitPlan, build, plan, split_costs


def target(name: str) -> tr.Target:
    return tr.IPUModel(name).create_target()


def test_published_plan_of_ipu2():
    """10000 × 1000 on ipu2: seven pieces, 3996 = 3696 + 143 + 49 + 108, the worst 53807."""
    best = plan(10000, 1000, target("ipu2"))
    assert best == SplitPlan(7, 3696, 143, 49, 108, worst_cycles=53807)
    assert best.cycles == 3996


def test_published_plan_of_ipu1():
    """10000 × 1000 on ipu1: five pieces, 4751, the worst 64373."""
    best = plan(10000, 1000, target("ipu1"))
    assert (best.n_splits, best.cycles, best.worst_cycles) == (5, 4751, 64373)


@pytest.mark.parametrize(("n_rows", "n_cols"), [(1, 1), (1, 2), (7, 5), (3000, 64), (50, 4000)])
def test_plan_is_the_cheapest(n_rows, n_cols):
    """No number of pieces is cheaper than the plan's, none more expensive than its worst."""
    best = plan(n_rows, n_cols, target("bow"))
    splits = np.arange(1, max(2, n_cols))
    totals = sum(split_costs(n_rows, n_cols, splits, target("bow")))
    assert best.cycles == totals.min() == totals[best.n_splits - 1]
    assert best.worst_cycles == totals.max()


@pytest.mark.slow
@pytest.mark.parametrize("n_splits", [1, 3, 8])
def test_product_is_right(n_splits):
    """The graph multiplies, also when the pieces are unequal and tiles hold parts of two pieces."""
    n_rows, n_cols = 23, 8
    device = tr.IPUModel("bow", tiles_per_ipu=5).create_device()
    graph = tr.Graph(device)
    product = build(graph, n_rows, n_cols, n_splits)
    graph.create_host_write("matrix", product.matrix)
    graph.create_host_write("vector", product.vector)
    graph.create_host_read("result", product.result)
    matrix = np.arange(n_rows * n_cols, dtype=np.float32).reshape(n_rows, n_cols)
    vector = np.arange(n_cols, dtype=np.float32) - 3
    engine = tr.Engine(graph, product.multiply).load(device)
    engine.write_tensor("matrix", matrix)
    engine.write_tensor("vector", vector)
    engine.run()
    assert np.array_equal(engine.read_tensor("result"), matrix @ vector)


@pytest.mark.slow
def test_modelled_compute_is_the_published():
    """Average compute is within 0.5 % of 3801.8 with idle workers and 3717.6 without."""
    device = tr.IPUModel("ipu2").create_device()
    graph = tr.Graph(device)
    engine = tr.Engine(graph, build(graph, 10000, 1000, 7).multiply).load(device)
    engine.run()
    tiles = engine.report().tiles
    assert tiles.compute.mean() == pytest.approx(3801.8, rel=0.005)
    assert tiles.busy.mean() == pytest.approx(3717.6, rel=0.005)
