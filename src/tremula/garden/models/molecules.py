"""Models of molecules that examples and figures share: SchNet on edges of the loader, GIN, GAT."""

from collections.abc import Callable

from torch import Tensor, nn
from torch_geometric.nn import GATConv, GINConv, SchNet, global_add_pool, to_fixed_size

import poptorch


class GivenEdges(nn.Module):
    """SchNet's interaction graph from edges that a loader brings, instead of a search.

    Set `edge_index` before the model is called.
    """

    edge_index: Tensor

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        source, target = self.edge_index[0], self.edge_index[1]
        offset = pos.index_select(0, source) - pos.index_select(0, target)
        # The root of zero has no slope: padding atoms have no distance, real ones always some.
        return self.edge_index, (offset * offset).sum(-1).clamp(min=1e-12).sqrt()


class SchNetOnEdges(nn.Module):
    """SchNet and its loss, for batches of `num_graphs` graphs whose edges the loader made."""

    def __init__(self, num_graphs: int, **kwargs):
        super().__init__()
        model = SchNet(interaction_graph=GivenEdges(), **kwargs)
        self.model = to_fixed_size(model, batch_size=num_graphs)

    def forward(
        self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        self.model.interaction_graph.edge_index = edge_index
        out = self.model(z, pos, batch).view(-1)
        return out, masked_loss(out, y, mask)


class MoleculeConvolutions(nn.Module):
    """Embedded atoms, some layers of one convolution, a sum per molecule, and the loss."""

    def __init__(self, num_graphs: int, width: int, convolutions: list[nn.Module]):
        super().__init__()
        self.num_graphs = num_graphs
        self.embedding = nn.Embedding(16, width)
        self.convolutions = nn.ModuleList(convolutions)
        self.out = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))

    def forward(
        self, z: Tensor, edge_index: Tensor, batch: Tensor, y: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        hidden = self.embedding(z)
        for convolution in self.convolutions:
            hidden = hidden + convolution(hidden, edge_index).relu()
        out = self.out(global_add_pool(hidden, batch, size=self.num_graphs)).view(-1)
        return out, masked_loss(out, y, mask)


def gin(num_graphs: int, width: int = 64, n_layers: int = 3) -> MoleculeConvolutions:
    """Graph isomorphism network: sums of neighbours through a small network."""

    def convolution() -> nn.Module:
        inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        return GINConv(inner, train_eps=True)

    return _stack(num_graphs, width, n_layers, convolution)


def gat(num_graphs: int, width: int = 64, n_layers: int = 3) -> MoleculeConvolutions:
    """Graph attention: neighbours weighted by a softmax."""
    return _stack(
        num_graphs,
        width,
        n_layers,
        lambda: GATConv(width, width // 4, heads=4, add_self_loops=False),
    )


def _stack(
    num_graphs: int, width: int, n_layers: int, make: Callable[[], nn.Module]
) -> MoleculeConvolutions:
    return MoleculeConvolutions(num_graphs, width, [make() for _ in range(n_layers)])


def masked_loss(out: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """The mean square error of the real graphs."""
    weight = mask.to(out.dtype)
    loss = (weight * (out - y) ** 2).sum() / weight.sum()
    return poptorch.identity_loss(loss, reduction="none")
