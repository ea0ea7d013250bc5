"""Clusters and neighbours of one large graph without pyg_lib, in batches of one size."""

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import ClusterData, NeighborLoader

import poptorch
import poptorch_geometric as pg
from poptorch_geometric import cluster_loader, pyg_cluster_loader
from poptorch_geometric.masker import NoMasker, PreLayerMasker
from poptorch_geometric.neighbor_loader import (
    FixedSizeNeighborLoader,
    PyGFixedSizeNeighborLoader,
)
from tremula.frontends.geometric.sampling.neighbours import Incoming, sample_neighbours


def communities(n_nodes=120, n_groups=6, seed=0):
    """A graph of groups with many edges inside and few between them."""
    generator = torch.Generator().manual_seed(seed)
    group = torch.randperm(n_nodes, generator=generator) % n_groups
    inside = group[:, None] == group
    chance = torch.where(inside, 0.3, 0.005)
    edges = (torch.rand(n_nodes, n_nodes, generator=generator) < chance).triu(1)
    edge_index = (edges | edges.t()).nonzero().t().contiguous()
    x = torch.randn(n_nodes, 4, generator=generator)
    return Data(x=x, edge_index=edge_index, y=group, number=torch.arange(n_nodes))


GRAPH = communities()


@pytest.mark.slow
def test_clusters_are_balanced_and_keep_groups_together():
    """All nodes once; parts of about one size; far fewer edges cut than by chance."""
    clusters = ClusterData(GRAPH, num_parts=6, log=False)
    sizes = clusters.partition.partptr.diff()
    assert sizes.sum() == GRAPH.num_nodes
    assert sizes.max() <= 1.1 * 20 + 1
    part = torch.empty(GRAPH.num_nodes, dtype=torch.int64)
    part[clusters.partition.node_perm] = torch.arange(6).repeat_interleave(sizes)
    is_cut = part[GRAPH.edge_index[0]] != part[GRAPH.edge_index[1]]
    assert is_cut.float().mean() < 0.4  # by chance: 5 of 6


@pytest.mark.parametrize("module", [cluster_loader, pyg_cluster_loader])
def test_cluster_loader(module):
    """Batches of one size whose real nodes are those of the clusters."""
    clusters = ClusterData(GRAPH, num_parts=6, log=False)
    loader = module.FixedSizeClusterLoader(clusters, pg.FixedSizeOptions(60, 700), batch_size=2)
    batches = list(loader)
    assert len(batches) == 3
    assert {tuple(batch.edge_index.shape) for batch in batches} == {(2, 700)}
    numbers = torch.cat([batch.number[batch.nodes_mask] for batch in batches])
    assert torch.equal(numbers.sort().values, torch.arange(GRAPH.num_nodes))
    small = module.FixedSizeClusterLoader(clusters, pg.FixedSizeOptions(20, 50), batch_size=2)
    assert {batch.x.shape[0] for batch in small} == {20}
    with pytest.raises(AssertionError, match="must be 2"):
        module.FixedSizeClusterLoader(clusters, pg.FixedSizeOptions(60, 700, 3))
    for name in ("shuffle", "collate_fn", "batch_sampler", "exclude_keys"):
        with pytest.raises(AssertionError, match=name):
            module.FixedSizeClusterLoader(clusters, pg.FixedSizeOptions(60, 700), **{name: None})


def test_neighbours_are_those_of_the_graph():
    """Sampled edges exist and lead to nodes of the hop before; at most as many as requested."""
    torch.manual_seed(0)
    batches = list(NeighborLoader(GRAPH, [3, 2], batch_size=10))
    assert len(batches) == GRAPH.num_nodes // 10
    edges = set(map(tuple, GRAPH.edge_index.t().tolist()))
    for batch in batches:
        seeds, result = batch.input_id, batch.number
        assert torch.equal(result[: len(seeds)], seeds)
        assert len(result.unique()) == len(result)
        for row, col in batch.edge_index.t().tolist():
            assert (int(result[row]), int(result[col])) in edges
        into = batch.edge_index[1].bincount(minlength=len(result))
        assert into[: len(seeds)].max() <= 3
        assert into[len(seeds) :].max() <= 2


def test_all_neighbours():
    """-1 takes every edge once, in each of the nodes that are new."""
    incoming = Incoming(torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0]))
    kind = ("n", "to", "n")
    result = sample_neighbours({kind: incoming}, {"n": torch.tensor([0])}, {kind: [-1, -1]})
    assert result.nodes["n"].tolist() == [0, 1, 2]
    assert list(zip(result.rows[kind].tolist(), result.cols[kind].tolist(), strict=True)) == [
        (1, 0), (2, 0), (0, 1),
    ]  # fmt: skip
    assert result.n_nodes["n"] == [1, 2, 0]
    assert result.n_edges[kind] == [2, 1]


def test_neighbor_loader_pads():
    """One size for all; counts of seeds stay; several batches of one call are joined."""
    torch.manual_seed(0)
    loader = FixedSizeNeighborLoader(GRAPH, [3, 2], batch_size=12)
    shapes = {(tuple(batch.x.shape), tuple(batch.edge_index.shape)) for batch in loader}
    assert len(shapes) == 1
    sizes = pg.FixedSizeOptions(150, 120)
    (batch,) = FixedSizeNeighborLoader(
        GRAPH,
        [3, 2],
        input_nodes=torch.arange(24),
        batch_size=12,
        fixed_size_options=sizes,
        options=poptorch.Options().deviceIterations(2),
    )
    assert batch.edge_index.shape == (4, 120)
    assert batch.number[:12].tolist() == list(range(12))


def test_neighbours_of_types():
    """Sampling with types of nodes, padded."""
    graph = HeteroData()
    graph["user"].x, graph["item"].x = torch.randn(9, 2), torch.randn(7, 3)
    graph["user", "buys", "item"].edge_index = torch.stack(
        [torch.randint(9, (30,)), torch.randint(7, (30,))]
    )
    graph["item", "of", "user"].edge_index = graph["user", "buys", "item"].edge_index.flip(0)
    loader = FixedSizeNeighborLoader(
        graph,
        [2, 2],
        input_nodes=("item", torch.arange(6)),
        batch_size=3,
        fixed_size_options=pg.FixedSizeOptions({"user": 9, "item": 10}, 20),
    )
    batches = list(loader)
    assert len(batches) == 2
    for batch in batches:
        assert batch["item"].x.shape == (10, 3)
        assert batch["user", "buys", "item"].edge_index.shape == (2, 20)
        assert batch["item"].batch_size == 3


def test_samples_are_padded_in_two_steps():
    """`nativeCollate` samples, `fixedSizeCollate` appends padding and changes nothing before it."""
    sizes = pg.FixedSizeOptions(num_nodes=60, num_edges=120)
    for loader in (
        FixedSizeNeighborLoader(GRAPH, [3, 2], batch_size=4, fixed_size_options=sizes),
        PyGFixedSizeNeighborLoader(GRAPH, [3, 2], batch_size=4, fixed_size_options=sizes),
    ):
        sampled = loader.nativeCollate([0, 1, 2, 3])
        padded = loader.fixedSizeCollate(sampled)
        n_edges = sampled.num_edges
        assert torch.equal(padded.edge_index[:, :n_edges], sampled.edge_index)
        assert (padded.edge_index[:, n_edges:] >= sampled.num_nodes).all()
        assert torch.equal(padded.number[: sampled.num_nodes], sampled.number)
        assert (padded.num_nodes, padded.num_edges, padded["batch_size"]) == (60, 120, 4)
        assert "batch_size" in sampled
        assert isinstance(loader, PyGFixedSizeNeighborLoader)


def test_what_needs_pyg_lib_says_so():
    """The error names what cannot be done without it."""
    loader = NeighborLoader(GRAPH, [2], disjoint=True, batch_size=4)
    with pytest.raises(ImportError, match="disjoint subgraphs only with 'pyg-lib'"):
        next(iter(loader))


def test_maskers():
    """Around a layer, entries go through the masker first."""
    layer = PreLayerMasker(NoMasker())
    for wrap in (layer.node_masker, layer.edge_masker, layer.graph_masker):
        assert wrap(torch.add)(torch.tensor(1), torch.tensor(2)) == 3
