"""Trains Cluster-GCN on a generated graph; nodes that were not trained on test it."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.loader import ClusterData

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.cluster_loader import FixedSizeClusterLoader  # pyright: ignore[reportMissingImports] - from the table of modules
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.cluster_gcn.model import ClusterNetwork
from tremula.garden.models.datasets.graphs import communities

PER_BATCH = 2  # clusters


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_nodes, n_clusters, n_epochs = (1000, 10, 6) if settings.tiny else (20000, 50, 10)
    graph = communities(n_nodes)
    assert isinstance(graph.y, Tensor), "communities have numbers"
    n_communities = int(graph.y.max()) + 1
    loader = loader_of(graph, n_clusters)
    batches = list(loader)
    share = sum(float(batch.nodes_mask.float().mean()) for batch in batches) / len(batches)
    settings.show(f"{n_nodes:,} nodes in {n_clusters} clusters; {share:.0%} of a batch are nodes")
    model = ClusterNetwork(graph.num_features, 32, n_communities)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.02)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    losses, accuracy = [], 0.0
    for epoch in range(n_epochs):
        n_right = n_tested = 0
        for batch in loader:
            counts = batch.train_mask & batch.nodes_mask
            scores, loss = training(batch.x, batch.edge_index, batch.y, counts)
            is_test = ~batch.train_mask & batch.nodes_mask
            n_right += int((scores.argmax(1) == batch.y)[is_test].sum())
            n_tested += int(is_test.sum())
            losses.append(float(loss))
        accuracy = n_right / n_tested
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}, accuracy {accuracy:.2f}")
    n_real = round(share * len(batches[0].nodes_mask))
    return Findings(
        results={"accuracy": accuracy, "share_of_nodes_used": share},
        modelled=modelled_poptorch(training, settings, n_items=n_real, unit="nodes/s"),
        curves={"loss": losses},
    )


def loader_of(graph: Data, n_clusters: int) -> FixedSizeClusterLoader:
    """Batches with a little more room than two clusters need on average."""
    clusters = ClusterData(graph, num_parts=n_clusters, log=False)
    assert graph.num_nodes is not None, "the graph has features"
    n_nodes = int(1.15 * PER_BATCH * graph.num_nodes / n_clusters)
    n_edges = int(1.3 * PER_BATCH * graph.num_edges / n_clusters)
    sizes = pg.FixedSizeOptions(n_nodes, n_edges)
    return FixedSizeClusterLoader(clusters, sizes, batch_size=PER_BATCH)
