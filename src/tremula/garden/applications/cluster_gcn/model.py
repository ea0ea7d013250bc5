"""Two convolutions of Cluster-GCN, and a loss of the nodes that count."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import ClusterGCNConv


class ClusterNetwork(nn.Module):
    def __init__(self, n_in: int, n_hidden: int, n_out: int):
        super().__init__()
        self.first = ClusterGCNConv(n_in, n_hidden)
        self.second = ClusterGCNConv(n_hidden, n_out)

    def forward(
        self, x: Tensor, edge_index: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden = self.first(x, edge_index).relu()
        scores = self.second(hidden, edge_index)
        # Nodes that do not count, padding among them, have the label -100.
        target = torch.where(mask, y, -100)
        return scores, functional.cross_entropy(scores, target, ignore_index=-100)
