"""What a kernel multiplies by fits into it, however many layers a sum joins."""

from dataclasses import replace

import pytest
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
            sent = x.index_select(0, edges[0]) * torch.tanh(filtered(radial)) * distance.cos()
            x = torch.tanh(layer(x + torch.zeros_like(x).index_add(0, edges[1], sent)))
        (slope,) = torch.autograd.grad(x.sum(), pos, create_graph=True)
        return nn.functional.mse_loss(slope, torch.zeros_like(slope))


def products_of(region: Region) -> list[int]:
    """Elements of the matrices that a kernel multiplies rows by."""
    return [weight for node in region.nodes if (weight := roles.weight_of(node))]


ONE = 64 * 32  # elements of a filter's matrix, padded
BUDGET = replace(TF32.edges, matrix=ONE, matrices=2 * ONE, recomputed=ONE)


@pytest.fixture(scope="module")
def regions() -> list[Region]:
    """The kernels over edges of a step of the model above."""
    torch.manual_seed(0)
    model, pos = Filters(), torch.randn(N, 3)
    edges = torch.randint(0, N, (2, E))
    step = apply(training_step(model, pos, edges), HOST_PASSES, "host")
    limits = replace(TF32, many_edges=1, edges=BUDGET, many_summed=1)
    return [r for r in find_regions(step, limits) if r.n_rows == E]


def test_the_gradient_of_distances_gathers_no_rows_again(regions: list[Region]):
    """Each layer's part of it, a sum over features, is computed where that layer's rows are."""

    def n_gathered(region: Region) -> int:
        gathers = [g for node in region.nodes if (g := roles.gather_of(node)) is not None]
        return sum(roles.tensor_of(g.table).shape[-1] == WIDTH for g in gathers)

    sums = [r for r in regions if any(roles.tensor_of(x).shape == (E, 1) for x in r.results)]
    assert len(sums) > N_LAYERS
    assert max(map(n_gathered, sums)) == 2, "the rows of one layer, of both ends of an edge"


def test_kernels_have_room_for_their_matrices_and_multiply_once(regions: list[Region]):
    """What a kernel of an earlier level has multiplied is read: products are in one kernel each."""
    assert max(sum(products_of(region)) for region in regions) <= BUDGET.matrices
    heavy = [node for r in regions for node in r.nodes if roles.weight_of(node)]
    backward = [node for node in heavy if node.meta["val"].shape == (E, N_RADIAL)]
    assert len(backward) >= N_LAYERS
    assert len(backward) == len(set(backward)), "one kernel computes each of them"
