"""RGCN for fraud: accounts joined by payments, devices and addresses.

    python rgcn_fraud.py [--accounts N] [--epochs N]

Frauds look like other accounts; what tells them is whom they share devices with. The relational
convolution has a weight for each type of edge. The neighbours of some accounts at a time are
sampled and padded to one size.
"""

# Arguments when run as a test: --accounts 800 --epochs 3

import argparse

import torch

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.neighbor_loader import FixedSizeNeighborLoader
from tremula.garden.applications.fraud_rgcn.model import FraudNetwork
from tremula.garden.models.datasets.graphs import transactions


def arguments(batch, n_seeds, is_train):
    """Arguments of forward; only seeds count, which are the first nodes of a batch."""
    is_seed = torch.arange(batch.num_nodes) < n_seeds
    counts = is_seed & (batch.train_mask == is_train)
    return batch.x, batch.edge_index, batch.edge_type, batch.y, counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accounts", type=int, default=4000)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=100, help="accounts of a batch")
    args = parser.parse_args()

    torch.manual_seed(0)
    graph = transactions(args.accounts)
    loader = FixedSizeNeighborLoader(
        graph, [6, 4], batch_size=args.seeds, shuffle=True,
        fixed_size_options=pg.FixedSizeOptions(12 * args.seeds, 30 * args.seeds),
    )  # fmt: skip
    print(f"{graph.num_nodes} accounts, {int(graph.y.sum())} of them frauds, {len(loader)} batches")

    model = FraudNetwork(graph.num_features, 32)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    for epoch in range(args.epochs):
        found, missed, innocent = 0, 0, 0
        for batch in loader:
            given = arguments(batch, args.seeds, is_train=True)
            scores, loss = training(*given)
            is_test = arguments(batch, args.seeds, is_train=False)[-1]
            guess, truth = scores.argmax(1)[is_test], batch.y[is_test]
            found += int((guess & truth).sum())
            missed += int((~guess & truth).sum())
            innocent += int((guess & ~truth & 1).sum())
        share = found / max(found + missed, 1)
        print(f"Epoch {epoch}: loss {float(loss):.3f}, {share:.2f} found, {innocent} false alarms")
    print("Most frauds found:", found > missed)
