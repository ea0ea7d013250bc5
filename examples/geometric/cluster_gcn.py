"""Cluster-GCN: a large graph in clusters, batches of which all have one size.

    python cluster_gcn.py [--nodes N] [--epochs N]

Nodes of a generated graph belong to groups, which show in their edges more than in their features.
The graph is cut into clusters once; each batch joins some of them, with the edges between them.
"""

# Arguments when run as a test: --nodes 1200 --clusters 12 --epochs 4

import argparse

import torch
from torch_geometric.loader import ClusterData

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.cluster_loader import FixedSizeClusterLoader
from tremula.garden.applications.cluster_gcn.model import ClusterNetwork
from tremula.garden.models.datasets.graphs import communities

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=20000)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--per-batch", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    torch.manual_seed(0)
    graph = communities(args.nodes)
    clusters = ClusterData(graph, num_parts=args.clusters, log=False)
    n_nodes = int(1.15 * args.per_batch * args.nodes / args.clusters)
    n_edges = int(1.3 * args.per_batch * graph.num_edges / args.clusters)
    sizes = pg.FixedSizeOptions(n_nodes, n_edges)
    loader = FixedSizeClusterLoader(clusters, sizes, batch_size=args.per_batch)
    print(
        f"{graph.num_nodes} nodes in {len(clusters)} clusters, {len(loader)} batches of {n_nodes}"
    )

    model = ClusterNetwork(graph.num_features, 32, int(graph.y.max()) + 1)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    for epoch in range(args.epochs):
        n_right = n_tested = 0
        for batch in loader:
            # The training model returns the scores of all nodes: the others test it.
            scores, loss = training(
                batch.x, batch.edge_index, batch.y, batch.train_mask & batch.nodes_mask
            )
            is_test = ~batch.train_mask & batch.nodes_mask
            n_right += int((scores.argmax(1) == batch.y)[is_test].sum())
            n_tested += int(is_test.sum())
        print(f"Epoch {epoch}: loss {float(loss):.3f}, accuracy {n_right / n_tested:.2f}")
    print("Better than half right:", n_right > n_tested / 2)
