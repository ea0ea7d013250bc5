"""FixedSizeOptions: defaults, types, sizes from data sets and loaders, errors."""

import pytest
from torch_geometric.loader import DataLoader

import poptorch_geometric as pg
from poptorch_geometric.fixed_size_options import FixedSizeOptions
from tests.frontends.geometric.graphs import random_graphs, random_hetero

SIZES = [(3, 4), (7, 2), (1, 0), (5, 9)]


def test_edges_default_to_those_of_a_complete_graph():
    """n·(n-1) of all nodes, types together; one real and one padding graph."""
    assert FixedSizeOptions(10).num_edges == 90
    options = FixedSizeOptions({"a": 3, "b": 4})
    assert (options.num_edges, options.num_graphs, options.is_hetero()) == (42, 2, False)
    assert options.total_num_nodes == 7


def test_one_number_for_every_type():
    """to_hetero changes the options and returns them."""
    options = FixedSizeOptions(10, 20)
    triple = ("a", "to", "b")
    assert options.to_hetero(["a", "b"], [triple]) is options
    assert options.num_nodes == {"a": 10, "b": 10}
    assert options.num_edges == {triple: 20}
    assert (options.total_num_nodes, options.total_num_edges) == (20, 20)


def test_sizes_from_a_data_set():
    """The largest graph, batch_size - 1 times, and one; a limit looks at fewer graphs."""
    graphs = random_graphs(SIZES, 0)
    options = FixedSizeOptions.from_dataset(graphs, batch_size=4)
    assert (options.num_nodes, options.num_edges, options.num_graphs) == (22, 28, 4)
    assert FixedSizeOptions.from_dataset(graphs, 2, sample_limit=1).num_nodes == 4
    hetero = random_hetero([(1, 2, 3, 4), (4, 3, 2, 1)], 0)
    options = FixedSizeOptions.from_dataset(hetero, batch_size=3)
    assert options.num_nodes == {"user": 9, "item": 7}
    assert list(options.num_edges.values()) == [7, 9]


def test_sizes_from_a_loader():
    """The largest batch, and one more of everything."""
    loader = DataLoader(random_graphs(SIZES, 0), batch_size=2)
    options = FixedSizeOptions.from_loader(loader)
    assert (options.num_nodes, options.num_edges, options.num_graphs) == (11, 10, 3)
    assert FixedSizeOptions.from_loader(loader, sample_limit=1).num_nodes == 11


def test_the_text_says_what_is_reserved():
    """Each size names the element reserved for padding."""
    text = repr(FixedSizeOptions(10, 20, 3))
    for what, n in (("node", 10), ("edge", 20), ("graph", 3)):
        assert f"num_{what}s={n} (At least one {what} reserved for padding)" in text


def test_errors():
    """Fewer than two graphs, sizes that are none, an empty data set."""
    with pytest.raises(ValueError, match="at least 2, got 1"):
        FixedSizeOptions(10, num_graphs=1)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        FixedSizeOptions.from_dataset(random_graphs(SIZES, 0), 1)
    with pytest.raises(ValueError, match="num_nodes must be a whole number"):
        FixedSizeOptions(2.5)
    with pytest.raises(ValueError, match="data set is empty"):
        FixedSizeOptions.from_dataset([], 3)


def test_strategies_have_their_numbers():
    """Scripts may store them."""
    assert [s.name for s in pg.FixedSizeStrategy] == ["PadToMax", "StreamPack", "HistogramPack"]
    assert pg.OverSizeStrategy.TrimNodesAndEdges.trims_edges
    assert not pg.OverSizeStrategy.TrimNodes.trims_edges
