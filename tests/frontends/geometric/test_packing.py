"""Histogram packing: limits hold, every graph once, little room left, epochs mix packs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import poptorch_geometric as pg
from poptorch_geometric.histogram_packing_sampler import HistogramPackingSampler
from tests.frontends.geometric.graphs import random_graphs
from tremula.frontends.geometric.packing.sizes import GraphSizes

# Sizes like those of QM9: 3 to 29 atoms, mostly 18.
RANDOM = np.random.default_rng(0)
NODES = np.clip(RANDOM.normal(18, 3, 3000).round().astype(np.int64), 3, 29)


def sizes(nodes, edges):
    return GraphSizes(np.array(nodes, np.int64), np.array(edges, np.int64))


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40)), min_size=1, max_size=60),
    st.integers(1, 6),
    st.integers(20, 45),
    st.integers(40, 70),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_packs_hold_every_graph_within_the_limits(graphs, n_graphs, n_nodes, n_edges, shuffle):
    """Each graph is in one pack, and no pack is over a limit, in any epoch."""
    nodes, edges = np.array(graphs).T
    sampler = HistogramPackingSampler(
        sizes(nodes, edges), n_graphs, n_nodes, n_edges, shuffle=shuffle, seed=3
    )
    for _epoch in range(2):
        packs = list(sampler)
        assert len(packs) == len(sampler)
        assert sorted(i for pack in packs for i in pack) == list(range(len(graphs)))
        for pack in packs:
            assert len(pack) <= n_graphs
            assert nodes[pack].sum() <= n_nodes
            assert edges[pack].sum() <= n_edges


def test_hardly_any_room_is_left():
    """Molecules fill more than 0.98 of the node slots, by nodes alone and with an edge limit."""
    of_nodes = HistogramPackingSampler(sizes(NODES, 0 * NODES), 24, 256)
    assert of_nodes.efficiency >= 0.98
    assert of_nodes.efficiency == NODES.sum() / (256 * len(of_nodes))
    edges = NODES * (NODES - 1) - RANDOM.integers(0, 3, len(NODES))
    assert HistogramPackingSampler(sizes(NODES, edges), 24, 256, 5400).efficiency >= 0.98


def test_packs_are_even_where_nodes_and_edges_bind():
    """Large graphs have more edges for each node: mixed with small ones, both limits are used."""
    edges = NODES * (NODES - 1)
    limits = int(32 * NODES.mean()) + 2, int(32 * 1.02 * edges.mean())
    sampler = HistogramPackingSampler(sizes(NODES, edges), 48, *limits, shuffle=True, seed=0)
    assert sampler.efficiency > 0.98
    packs = list(sampler)
    assert sorted(i for pack in packs for i in pack) == list(range(len(NODES)))
    for used, limit in ((NODES, limits[0]), (edges, limits[1])):
        assert max(used[pack].sum() for pack in packs) <= limit


def test_epochs_mix_packs():
    """Graphs that share a pack in one epoch hardly do in the next; a seed repeats both."""

    def pairs(packs):
        return {(a, b) for pack in packs for a in pack for b in pack if a < b}

    given_sizes = sizes(NODES, 0 * NODES)
    sampler = HistogramPackingSampler(given_sizes, 24, 256, shuffle=True, seed=1)
    first, second = list(sampler), list(sampler)
    assert len(pairs(first) & pairs(second)) < 0.1 * len(pairs(first))
    again = HistogramPackingSampler(given_sizes, 24, 256, shuffle=True, seed=1)
    assert list(again) == first
    assert list(again) == second
    still = HistogramPackingSampler(given_sizes, 24, 256)
    assert list(still) == list(still)


def test_too_large_graphs():
    """An error that names one and counts the others, or they are left out."""
    given_sizes = sizes([3, 9, 4, 8], [1, 1, 9, 1])
    with pytest.raises(RuntimeError, match=r"sample 1 with 9 nodes and 1 edges, and 1 others"):
        HistogramPackingSampler(given_sizes, 2, 8, 8)
    sampler = HistogramPackingSampler(given_sizes, 2, 8, 8, allow_skip_data=True)
    assert sorted(i for pack in sampler for i in pack) == [0, 3]
    with pytest.raises(ValueError, match="max_num_nodes"):
        HistogramPackingSampler(given_sizes, 2, 1)


def test_as_a_strategy_of_the_loader():
    """The loader leaves a graph, node and edge of each pack for padding."""
    shapes = [(3, 4), (7, 2), (1, 0), (5, 9), (4, 4), (2, 3), (6, 6), (3, 1)]
    loader = pg.FixedSizeDataLoader(
        random_graphs(shapes, 0),
        batch_size=5,
        shuffle=True,
        fixed_size_options=pg.FixedSizeOptions(17, 20, 5),
        fixed_size_strategy=pg.FixedSizeStrategy.HistogramPack,
    )
    batches = list(loader)
    assert len(loader) == len(batches) < len(shapes)
    assert sum(int(batch.graphs_mask.sum()) for batch in batches) == len(shapes)
    assert {batch.x.shape[0] for batch in batches} == {17}
