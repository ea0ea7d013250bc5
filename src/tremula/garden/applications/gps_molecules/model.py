"""A hybrid network: bonds carry messages, atoms of a molecule attend to each other."""

import torch
from torch import Tensor, nn
from torch_geometric.nn import global_add_pool

from tremula.garden.applications.gps_molecules.fused import gather_scatter
from tremula.garden.models.molecules import masked_loss

BOND = 1.7  # Å: atoms nearer than this are joined


class HybridLayer(nn.Module):
    """The sum of what bonds bring and what attention finds, through a dense layer."""

    def __init__(self, width: int):
        super().__init__()
        self.send, self.mix = nn.Linear(width, width), nn.Linear(width, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, edges: Tensor, near: Tensor, apart: Tensor) -> Tensor:
        """`near` weighs the edges [m]; `apart` [n, n] is true where atoms are of two molecules."""
        bonded = gather_scatter(self.send(x), edges, near)
        q, k, v = self.qkv(x).chunk(3, 1)
        scores = (q @ k.t()) * q.shape[1] ** -0.5
        attended = scores.masked_fill(apart, -1e4).softmax(1) @ v
        return x + torch.relu(self.mix(self.norm(x + bonded + attended)))


class Hybrid(nn.Module):
    """Atoms of packed molecules in, a number for each molecule and the loss out."""

    def __init__(self, num_graphs: int, width: int, n_layers: int):
        super().__init__()
        self.num_graphs = num_graphs
        self.atoms = nn.Embedding(16, width)
        self.layers = nn.ModuleList(HybridLayer(width) for _ in range(n_layers))
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(
        self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        offset = pos.index_select(0, edge_index[0]) - pos.index_select(0, edge_index[1])
        near = (1 - (offset**2).sum(1) / BOND**2).relu()  # padding joins an atom with itself
        apart = batch.unsqueeze(0) != batch.unsqueeze(1)
        x = self.atoms(z)
        for layer in self.layers:
            x = layer(x, edge_index, near, apart)
        out = self.out(global_add_pool(x, batch, size=self.num_graphs)).view(-1)
        return out, masked_loss(out, y, mask)
