"""What a kernel multiplies by fits into it, however many layers a sum joins."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from tests.ir.steps import training_step
from tremula.ir.host.graph_kernels import roles
from tremula.ir.host.graph_kernels.regions import TF32, Region, find_regions
from tremula.ir.passes import HOST_PASSES, apply

N, E, N_RADIAL, WIDTH, N_LAYERS = 16, 64, 40, 32, 5


class Filters(nn.Module):
    """Layers whose filters all depend on one list of distances, and the slope by positions.

    The gradient of a distance is a sum of products, one of each layer, which are computed one
    after the other.
    """

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList(
            nn.Linear(N_RADIAL, WIDTH, bias=False) for _ in range(N_LAYERS)
        )
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(N_LAYERS))

    def forward(self, pos: Tensor, edges: Tensor) -> Tensor:
        pos = pos.requires_grad_(True)
        offset = pos.index_select(0, edges[1]) - pos.index_select(0, edges[0])
        distance = offset.square().sum(1, keepdim=True)
        radial = torch.exp(-distance * torch.linspace(0.1, 1, N_RADIAL))
        x = torch.ones(N, WIDTH)
        for filtered, layer in zip(self.filters, self.layers, strict=True):
            sent = x.index_select(0, edges[0]) * torch.tanh(filtered(radial))
            x = torch.tanh(layer(x + torch.zeros_like(x).index_add(0, edges[1], sent)))
        (slope,) = torch.autograd.grad(x.sum(), pos, create_graph=True)
        return nn.functional.mse_loss(slope, torch.zeros_like(slope))


def products_of(region: Region) -> list[int]:
    """Elements of the matrices that a kernel multiplies rows by."""
    return [weight for node in region.nodes if (weight := roles.weight_of(node))]


def test_kernels_have_room_for_their_matrices_and_multiply_once():
    """What a kernel of an earlier level has multiplied is read: products are in one kernel each."""
    torch.manual_seed(0)
    model, pos = Filters(), torch.randn(N, 3)
    edges = torch.randint(0, N, (2, E))
    step = apply(training_step(model, pos, edges), HOST_PASSES, "host")
    one = 64 * 32  # elements of a filter's matrix, padded
    edge_budget = replace(TF32.edges, matrix=one, matrices=2 * one, recomputed=one)
    limits = replace(TF32, many_edges=1, edges=edge_budget, many_summed=1)
    regions = [r for r in find_regions(step, limits) if r.n_rows == E]
    assert max(sum(products_of(region)) for region in regions) <= edge_budget.matrices
    heavy = [node for r in regions for node in r.nodes if roles.weight_of(node)]
    backward = [node for node in heavy if node.meta["val"].shape == (E, N_RADIAL)]
    assert len(backward) >= N_LAYERS
    assert len(backward) == len(set(backward)), "one kernel computes each of them"
