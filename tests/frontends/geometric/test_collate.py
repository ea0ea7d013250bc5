"""The fixed-size collater against PyG's own collate; padding, masks, trimming, errors."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import Batch, Data

import poptorch_geometric as pg
from poptorch_geometric.collate import (
    CombinedBatchingCollater,
    FixedSizeCollater,
    create_slices_and_preserve_mask,
    data_slice_gen,
)
from poptorch_geometric.pyg_collate import Collater
from tests.frontends.geometric.graphs import (
    SEEDS,
    graph_sizes,
    random_graph,
    random_graphs,
    random_hetero,
)

QUICK = settings(max_examples=40, deadline=None)


def options_for(n_graphs=6, **kwargs):
    return pg.FixedSizeOptions(num_nodes=50, num_edges=60, num_graphs=n_graphs, **kwargs)


def assert_same(ours, theirs, dim=0):
    """The first rows of `ours` are those of `theirs`."""
    part = ours.narrow(dim, 0, theirs.shape[dim])
    assert part.dtype == theirs.dtype
    assert torch.equal(part, theirs)


@given(graph_sizes(), SEEDS)
@QUICK
def test_real_part_equals_pyg(sizes, seed):
    """What comes before the padding is what PyG's collate makes of the same graphs."""
    graphs = random_graphs(sizes, seed)
    theirs = Batch.from_data_list(graphs)
    ours = FixedSizeCollater(options_for(), add_masks_to_batch=True)(graphs)
    for key in theirs.keys():  # noqa: SIM118
        if isinstance(theirs[key], Tensor):
            assert_same(ours[key], theirs[key], 1 if key == "edge_index" else 0)
    assert ours.name[: len(graphs)] == theirs.name
    assert (ours.num_nodes, ours.num_edges, ours.num_graphs) == (50, 60, 6)
    assert int(ours.nodes_mask.sum()) == theirs.num_nodes
    assert int(ours.edges_mask.sum()) == theirs.num_edges
    assert ours.graphs_mask.tolist() == [True] * len(graphs) + [False] * (6 - len(graphs))


@given(graph_sizes(), SEEDS)
@QUICK
def test_padding_is_inside_padding_graphs_and_spread(sizes, seed):
    """Padding edges join nodes of one padding graph; targets ascend; no node gets many."""
    batch = FixedSizeCollater(options_for(), add_masks_to_batch=True)(random_graphs(sizes, seed))
    sources, targets = batch.edge_index[:, ~batch.edges_mask]
    assert torch.equal(batch.batch[sources], batch.batch[targets])
    assert not batch.nodes_mask[targets].any()
    assert torch.equal(targets, targets.sort().values)
    padding = batch.batch[~batch.nodes_mask]
    per_graph = padding.bincount(minlength=6)[len(sizes) :]
    assert int(per_graph.max() - per_graph.min()) <= 1
    assert per_graph.tolist() == sorted(per_graph.tolist(), reverse=True)
    if len(targets):
        counts = targets.bincount()
        n_edges_per_graph = batch.batch[targets].bincount().max()
        assert int(counts.max()) <= -(-int(n_edges_per_graph) // int(per_graph.min() or 1))


@pytest.mark.slow
@given(
    st.lists(st.tuples(*[st.integers(0, 5)] * 4), min_size=1, max_size=4),
    SEEDS,
    st.booleans(),
)
@QUICK
def test_hetero_real_part_equals_pyg(sizes, seed, per_type):
    """Batches with types of nodes and edges are padded, with one limit for all or one for each."""
    graphs = random_hetero(sizes, seed)
    nodes = {"user": 25, "item": 30} if per_type else 30
    triples = graphs[0].edge_types
    edges = dict.fromkeys(triples, 28) if per_type else 28
    options = pg.FixedSizeOptions(nodes, edges, num_graphs=5)
    theirs = Batch.from_data_list(graphs)
    ours = FixedSizeCollater(options, add_masks_to_batch=True)(graphs)
    for kind, store in theirs.node_items():
        for key, value in store.items():
            assert_same(ours[kind][key], value)
        assert ours[kind].num_nodes == (nodes[kind] if per_type else 30)
        assert int(ours[kind].nodes_mask.sum()) == store.num_nodes
    for kind, store in theirs.edge_items():
        for key, value in store.items():
            assert_same(ours[kind][key], value, value.dim() - 1)
        assert ours[kind].num_edges == 28
        assert int(ours[kind].edges_mask.sum()) == store.num_edges
        sources, targets = ours[kind].edge_index[:, ~ours[kind].edges_mask]
        assert torch.equal(ours[kind[0]].batch[sources], ours[kind[2]].batch[targets])
    assert_same(ours.y, theirs.y)


@given(graph_sizes(), SEEDS)
@QUICK
def test_sorting_by_target_is_a_permutation_of_edges(sizes, seed):
    """Sorted batches hold the same edges with the same attributes, in the order of targets."""
    graphs = random_graphs(sizes, seed)
    plain = FixedSizeCollater(options_for())(graphs)
    ordered = FixedSizeCollater(options_for(), sort_edges=True)(graphs)
    order = plain.edge_index[1].sort(stable=True).indices
    assert torch.equal(ordered.edge_index, plain.edge_index[:, order])
    assert torch.equal(ordered.edge_attr, plain.edge_attr[order])
    assert torch.equal(ordered.x, plain.x)


def test_pad_values_fill_every_level():
    """Nodes, edges and graphs get their own value, in the type of the attribute."""
    options = options_for(node_pad_value=2, edge_pad_value=3.5, graph_pad_value=-1)
    batch = FixedSizeCollater(options)(random_graphs([(3, 4)], 0))
    assert set(batch.x[3:].flatten().tolist()) == {2.0}
    assert set(batch.z[3:].tolist()) == {2}
    assert batch.z.dtype == torch.int64
    assert batch.is_ring[3:].all()
    assert set(batch.edge_attr[4:].flatten().tolist()) == {3.5}
    assert set(batch.y[1:].tolist()) == {-1.0}
    assert set(batch.fingerprint[1:].flatten().tolist()) == {-1.0}


def test_values_that_are_no_tensors():
    """They come from pad_graph_defaults, or are those of the first graph."""
    graphs = [Data(x=torch.zeros(2, 1), name="a", kind="b", count=3)]
    options = pg.FixedSizeOptions(9, 4, 3, pad_graph_defaults={"name": "padding", "count": 7})
    batch = FixedSizeCollater(options)(graphs)
    assert batch.name == ["a", "padding", "padding"]
    assert batch.kind == ["b", "b", "b"]
    assert batch.count.tolist() == [3, 7, 7]


def test_labels_of_nodes_and_of_graphs():
    """y is padded to the nodes if every graph has one per node, to the graphs if each has one."""
    graphs = [Data(x=torch.zeros(n, 1), y=torch.ones(n)) for n in (1, 3)]
    options = pg.FixedSizeOptions(9, 4, 3)
    assert FixedSizeCollater(options)(graphs).y.tolist() == [1.0] * 4 + [0.0] * 5
    graphs = [Data(x=torch.zeros(n, 1), y=torch.ones(1)) for n in (1, 3)]
    assert FixedSizeCollater(options)(graphs).y.tolist() == [1.0, 1.0, 0.0]
    graphs = [Data(x=torch.zeros(3, 1), y=torch.ones(n)) for n in (1, 3)]
    with pytest.raises(AssertionError, match="incompatible shapes"):
        FixedSizeCollater(options)(graphs)


def test_levels_found_once_hold_for_later_batches():
    """A batch of graphs of one node keeps the shape that earlier batches had."""
    collater = FixedSizeCollater(pg.FixedSizeOptions(9, 4, 3))
    of_nodes = [Data(x=torch.zeros(n, 1), y=torch.ones(n)) for n in (2, 3)]
    assert collater(of_nodes).y.shape == (9,)
    assert collater([Data(x=torch.zeros(1, 1), y=torch.ones(1))]).y.shape == (9,)


def test_graphs_without_edges_attributes_need_no_padding_edges():
    """Data without edge_index gets none; one node, no node and no edge are graphs as well."""
    graphs = [Data(pos=torch.zeros(n, 3), z=torch.ones(n).long()) for n in (1, 0, 2)]
    batch = FixedSizeCollater(pg.FixedSizeOptions(8, num_graphs=4))(graphs)
    assert batch.batch.tolist() == [0, 2, 2, 3, 3, 3, 3, 3]
    assert "edge_index" not in batch
    empty = random_graphs([(0, 0), (1, 0)], 1)
    batch = FixedSizeCollater(options_for(3))(empty)
    assert (batch.num_nodes, batch.num_edges, batch.ptr.tolist()) == (50, 60, [0, 0, 1, 50])


def test_follow_batch_and_exclude_keys():
    """Both work as PyG's, and padding has them, too."""
    graphs = random_graphs([(3, 4), (2, 1)], 2)
    collater = FixedSizeCollater(options_for(), follow_batch=["z"], exclude_keys=["y", "edge_attr"])
    batch = collater(graphs)
    assert torch.equal(batch.z_batch, batch.batch)
    assert not {"y", "edge_attr"} & set(batch.keys())
    assert set(pg.make_exclude_keys(["x", "z"], graphs[0])) == set(graphs[0].keys()) - {"x", "z"}
    assert torch.equal(Collater(exclude_keys=["y"])(graphs).x, Batch.from_data_list(graphs).x)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=2, max_size=4), SEEDS)
@QUICK
def test_trimming_keeps_one_of_each_graph(sizes, seed):
    """Too many nodes and edges are removed at random; each graph keeps at least one of them."""
    graphs = random_graphs(sizes, seed)
    options = pg.FixedSizeOptions(num_nodes=8, num_edges=9, num_graphs=5)
    torch.manual_seed(seed)
    batch = FixedSizeCollater(options, True, trim_nodes=True, trim_edges=True)(graphs)
    assert (batch.num_nodes, batch.num_edges) == (8, 9)
    real = batch.batch[batch.nodes_mask]
    assert set(real.tolist()) == set(range(len(graphs)))
    assert batch.nodes_mask[batch.edge_index[:, batch.edges_mask]].all()
    n_nodes = sum(graph.num_nodes for graph in graphs)
    assert int(batch.nodes_mask.sum()) == min(7, n_nodes)


def test_hetero_trimming():
    """Each type is trimmed by itself."""
    graphs = random_hetero([(4, 5, 6, 7), (3, 3, 3, 3)], 3)
    options = pg.FixedSizeOptions({"user": 4, "item": 30}, 28, num_graphs=3)
    batch = FixedSizeCollater(options, True, trim_nodes=True)(graphs)
    assert int(batch["user"].nodes_mask.sum()) == 3
    assert int(batch["item"].nodes_mask.sum()) == 8


def test_errors_name_the_limit_and_the_flag():
    """Too many graphs, nodes or edges, and no place for padding."""
    graphs = random_graphs([(5, 9), (6, 9)], 4)
    with pytest.raises(RuntimeError, match=r"num_nodes=9 nodes, but the batch has 11.*trim_nodes"):
        FixedSizeCollater(pg.FixedSizeOptions(9, 50, 3))(graphs)
    with pytest.raises(RuntimeError, match=r"num_edges=10 edges, but the batch has 18.*trim_edges"):
        FixedSizeCollater(pg.FixedSizeOptions(19, 10, 3))(graphs)
    with pytest.raises(RuntimeError, match=r"Requested 2 graphs.*has 3"):
        FixedSizeCollater(pg.FixedSizeOptions(50, 50, 2))([*graphs, graphs[0]])
    with pytest.raises(RuntimeError, match="no padding graph"):
        FixedSizeCollater(pg.FixedSizeOptions(50, 50, 2))(graphs)
    with pytest.raises(RuntimeError, match="at least one more node"):
        FixedSizeCollater(pg.FixedSizeOptions(11, 50, 3))(graphs)
    with pytest.raises(RuntimeError, match="Too many nodes to trim"):
        FixedSizeCollater(pg.FixedSizeOptions(2, 50, 3), trim_nodes=True)(graphs)
    with pytest.raises(TypeError, match="Expected list, got tuple"):
        FixedSizeCollater(options_for())(tuple(graphs))
    with pytest.raises(ValueError, match="at least one graph"):
        FixedSizeCollater(options_for())([])
    collater = FixedSizeCollater(pg.FixedSizeOptions({"user": 9}, 9, 3))
    with pytest.raises(RuntimeError, match="no entry for 'item'"):
        collater(random_hetero([(1, 1, 1, 1)], 0))


def test_combined_batches_are_joined_along_the_first_dimension():
    """k batches: edge_index is (2k, edges); counts are those of one."""
    graphs = random_graphs([(3, 4), (2, 1), (4, 6), (1, 0)], 5)
    collater = FixedSizeCollater(options_for(3), add_masks_to_batch=True)
    joined = CombinedBatchingCollater(collater, mini_batch_size=2)(graphs)
    parts = [collater(graphs[:2]), collater(graphs[2:])]
    assert joined.edge_index.shape == (4, 60)
    assert (joined.num_nodes, joined.num_edges, joined.num_graphs) == (50, 60, 3)
    for key in ("x", "edge_index", "y", "batch", "nodes_mask"):
        assert torch.equal(joined[key], torch.cat([part[key] for part in parts]))
    with pytest.raises(AssertionError, match=r"Invalid batch size\. Got 4 graphs"):
        CombinedBatchingCollater(collater, mini_batch_size=3)(graphs)


def test_the_list_of_the_caller_stays_as_it_is():
    """Collating adds padding to the batch, not to the list."""
    graphs = [random_graph(3, 4, torch.Generator().manual_seed(0))]
    FixedSizeCollater(options_for())(graphs)
    assert len(graphs) == 1


def test_one_size_holds_for_every_type():
    """Options of one number become numbers by type with the first data that has types."""
    options = pg.FixedSizeOptions(num_nodes=40, num_edges=60, num_graphs=2)
    [graph] = random_hetero([(5, 4, 6, 3)], 3)
    batch = FixedSizeCollater(options)([graph])
    assert options.num_nodes == dict.fromkeys(graph.node_types, 40)
    assert options.num_edges == dict.fromkeys(graph.edge_types, 60)
    assert batch.num_nodes == options.total_num_nodes == 40 * len(graph.node_types)


def test_slices_and_masks_of_lists():
    """Where each graph's items are, and which stay: some of each, as many as may."""
    slices, mask = create_slices_and_preserve_mask(5, [4, 1, 3])
    assert slices == list(data_slice_gen([4, 1, 3])) == [slice(0, 4), slice(4, 5), slice(5, 8)]
    assert int(mask.sum()) == 5
    assert all(mask[part].any() for part in slices)
    assert create_slices_and_preserve_mask(9, [4, 1, 3]) == (None, None)
