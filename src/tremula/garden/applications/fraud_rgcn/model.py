"""Two relational convolutions, and a loss of the accounts that count."""

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import RGCNConv

from tremula.garden.models.datasets.graphs import RELATIONS


class FraudNetwork(nn.Module):
    """Scores of innocent and fraud for every account."""

    def __init__(self, n_in: int, n_hidden: int):
        super().__init__()
        self.first = RGCNConv(n_in, n_hidden, len(RELATIONS))
        self.second = RGCNConv(n_hidden, 2, len(RELATIONS))

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, y: Tensor, counts: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden = self.first(x, edge_index, edge_type).relu()
        scores = self.second(hidden, edge_index, edge_type)
        target = torch.where(counts, y, -100)
        weight = torch.tensor([1.0, 4.0])  # frauds are rare
        return scores, functional.cross_entropy(scores, target, weight, ignore_index=-100)
