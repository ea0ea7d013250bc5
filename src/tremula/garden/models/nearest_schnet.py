"""SchNet as graphcore-research/hydronet-gnn trains it: neighbours found on the device.

All pairs of atoms of a micro-batch are compared, so no edges come from the host and no shape
depends on values. Molecules that share a micro-batch are told apart by where they begin.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import to_fixed_size
from torch_geometric.nn.models import schnet

import poptorch


class NearestAtoms(nn.Module):
    """Edges from the k nearest atoms of the same molecule; a missing one is as long as the cutoff.

    There, SchNet's filters are exactly zero.
    """

    def __init__(self, k: int, cutoff: float):
        super().__init__()
        self.k, self.cutoff = k, cutoff

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        length = functional.pairwise_distance(pos.unsqueeze(1), pos, eps=0)
        atoms = torch.arange(batch.shape[0], dtype=batch.dtype)
        is_out = (atoms.unsqueeze(1) == atoms) | (batch.unsqueeze(1) != batch)
        length = length.masked_fill(is_out | (length > self.cutoff), self.cutoff)
        nearest, sources = torch.topk(-length, self.k)
        targets = atoms.unsqueeze(1).expand_as(sources)
        return torch.stack([sources.flatten(), targets.flatten()]), -nearest.flatten()


class WrittenOutSoftplus(nn.Module):
    """log(1 + exp(x)) - log(2) from single operations, which stay apart on the device."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log1p(torch.exp(-x.abs())) + torch.clamp_min(x, 0.0) - math.log(2)


class OwnLengths(nn.Module):
    """A continuous filter with a separate copy of the lengths: times one, which stays.

    So the window over lengths, which is the same in all blocks, is computed in each of them. That
    is what PopART does: it shares equal operations after it has outlined blocks that repeat.
    """

    one: Tensor

    def __init__(self, filters: nn.Module):
        super().__init__()
        self.filters = filters
        self.register_buffer("one", torch.ones(1))

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor, edge_attr: Tensor
    ) -> Tensor:
        own = edge_weight * self.one.to(edge_weight.dtype)
        return self.filters(x, edge_index, own, edge_attr)


class NearestSchNet(nn.Module):
    """SchNet and its loss for micro-batches of `n_places` molecules; a target of 0 is padding."""

    def __init__(
        self,
        n_places: int,
        *,
        n_features: int = 100,
        n_interactions: int = 4,
        n_gaussians: int = 25,
        cutoff: float = 6.0,
        k: int = 28,
        writes_out_softplus: bool = False,
        keeps_blocks_apart: bool = False,
    ):
        super().__init__()
        model = schnet.SchNet(
            hidden_channels=n_features,
            num_filters=n_features,
            num_interactions=n_interactions,
            num_gaussians=n_gaussians,
            cutoff=cutoff,
            interaction_graph=NearestAtoms(k, cutoff),
        )
        if writes_out_softplus:
            _write_out_softplus(model)
        if keeps_blocks_apart:
            for block in model.interactions:
                assert isinstance(block.conv, nn.Module), "an interaction of PyG's has one"
                block.conv = OwnLengths(block.conv)
        self.model = to_fixed_size(model, batch_size=n_places)

    def forward(self, z: Tensor, pos: Tensor, begins: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """`begins`: the first atom of every molecule but the first."""
        is_first = torch.zeros(z.shape, dtype=torch.int32).index_fill(0, begins.long(), 1)
        is_first = torch.cat([is_first[:1] * 0, is_first[1:]])  # places without a molecule say 0
        out = self.model(z, pos, torch.cumsum(is_first, 0)).view(-1)
        n_real = (y != 0).to(out.dtype).sum()
        loss = functional.mse_loss(out, y, reduction="sum") / n_real
        return out, poptorch.identity_loss(loss, reduction="none")


def _write_out_softplus(module: nn.Module) -> None:
    for name, child in module.named_children():
        if isinstance(child, schnet.ShiftedSoftplus):
            setattr(module, name, WrittenOutSoftplus())
        else:
            _write_out_softplus(child)
