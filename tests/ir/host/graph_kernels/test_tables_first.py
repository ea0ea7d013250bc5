"""Rows of nodes are multiplied before edges gather them, and nothing else changes."""

import pytest
import torch
from torch import Tensor, fx, nn
from torch_geometric.nn import CGConv, EdgeConv

from tests.ir.steps import training_step
from tremula.ir.host.graph_kernels.fuse import make_constants_independent
from tremula.ir.host.graph_kernels.tables_first import multiply_tables
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
CPU = torch.device("cpu")
N, E, WIDTH = 40, 320, 32
N_NUMBERS = 9  # of an edge


class Messages(nn.Module):
    """A network over both ends of an edge and its numbers, summed at one of the ends."""

    def __init__(self, takes_slope: bool = False) -> None:
        super().__init__()
        width = 2 * WIDTH + N_NUMBERS
        self.message = nn.Sequential(
            nn.Linear(width, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH, bias=False)
        )
        self.takes_slope = takes_slope

    def layer(self, x: Tensor, edges: Tensor, numbers: Tensor) -> Tensor:
        ends = x.index_select(0, edges[0]), x.index_select(0, edges[1])
        sent = self.message(torch.cat([*ends, numbers], -1))
        return x + torch.zeros_like(x).index_add(0, edges[1], sent)

    def forward(self, x: Tensor, edges: Tensor, numbers: Tensor) -> Tensor:
        if self.takes_slope:
            numbers = numbers.requires_grad_(True)
        y = self.layer(self.layer(x, edges, numbers), edges, numbers)
        if self.takes_slope:
            (slope,) = torch.autograd.grad(y.square().sum(), numbers, create_graph=True)
            return nn.functional.mse_loss(slope, torch.zeros_like(slope))
        return nn.functional.mse_loss(y, torch.zeros_like(y))


class OfPyG(nn.Module):
    """Two layers of PyG and a loss."""

    def __init__(self, make: object) -> None:
        super().__init__()
        assert callable(make)
        self.first, self.second = make(), make()

    def forward(self, x: Tensor, edges: Tensor, numbers: Tensor) -> Tensor:
        numbered = not isinstance(self.first, EdgeConv)
        rest = (numbers,) if numbered else ()
        y = self.second(self.first(x, edges, *rest), edges, *rest)
        return nn.functional.mse_loss(y, torch.zeros_like(y))


MODELS = {
    "messages": Messages,
    "second derivatives": lambda: Messages(takes_slope=True),
    "cgcnn": lambda: OfPyG(lambda: CGConv(WIDTH, N_NUMBERS)),
    "edges": lambda: OfPyG(lambda: EdgeConv(nn.Linear(2 * WIDTH, WIDTH), aggr="add")),
}

# Of the multiplications over edges: second layers of messages, and numbers of edges.
SHARE_LEFT = {"messages": 0.2, "second derivatives": 0.3, "cgcnn": 0.2, "edges": 0.25}


def case(
    model: nn.Module, dtype: torch.dtype = torch.float32, n: int = N
) -> tuple[CapturedStep, list[Tensor]]:
    """A training step over a random graph, and its arguments."""
    torch.manual_seed(0)
    model = model.to(dtype)
    x, numbers = torch.randn(n, WIDTH, dtype=dtype), torch.randn(E, N_NUMBERS, dtype=dtype)
    edges = torch.randint(0, n, (2, E))
    step = apply(training_step(model, x, edges, numbers), HOST_PASSES, "host")
    make_constants_independent(step, CPU)
    weights = [p.detach() for p in model.parameters()]
    buffers = [b for _, b in model.named_buffers()]
    return step, [*weights, *buffers, x, edges, numbers, torch.tensor(0.1)]


def work_over_edges(graph: fx.Graph) -> int:
    """Multiplications over the rows of edges."""
    total = 0
    for node in graph.nodes:
        if node.target in (aten.mm.default, aten.addmm.default):
            left, right = (x.meta["val"].shape for x in node.args[-2:])
            total += left[0] * left[1] * right[1] if E in left else 0
    return total


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_the_step(name: str):
    """Losses and gradients, with much less work over edges."""
    step, arguments = case(MODELS[name]())
    expected, before = step.module()(*arguments), work_over_edges(step.graph)
    changed = multiply_tables(step, CPU)
    changed.graph.lint()
    torch.testing.assert_close(changed.module()(*arguments), expected, rtol=1e-3, atol=1e-5)
    assert work_over_edges(changed.graph) < SHARE_LEFT[name] * before


@pytest.mark.parametrize(
    ("dtype", "n"), [(torch.bfloat16, N), (torch.float32, E)], ids=["halves", "as many nodes"]
)
def test_other_steps_stay_as_they_are(dtype: torch.dtype, n: int):
    """In halves parts would be rounded one by one; tables of as many rows save nothing."""
    step, _ = case(Messages(), dtype, n)
    before = str(step.graph)
    assert str(multiply_tables(step, CPU).graph) == before
