"""The largest and smallest rows of segments, compared in the order of their segments."""

import pytest
import torch
from torch import Tensor, nn

import poptorch
from tests.ir.steps import captured
from tremula.ir.host.graph_kernels.segment_extremes import compare_by_segments
from tremula.ir.nodes import schema_name
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.settings import configured

CPU = torch.device("cpu")
N_NODES, N_EDGES = 50, 900


def _edges() -> tuple[Tensor, Tensor]:
    """Sources and targets; the first targets have hundreds of edges, the last none."""
    random = torch.Generator().manual_seed(0)
    targets = (torch.rand(N_EDGES, generator=random) ** 4 * (N_NODES - 5)).long()
    return torch.randint(N_NODES, (N_EDGES,), generator=random), targets


@pytest.mark.parametrize("kind", ["amax", "amin"])
@pytest.mark.parametrize("includes", [False, True])
@pytest.mark.parametrize("gathers", [False, True])
def test_rows_are_compared_and_gathered_by_one_operation(kind: str, includes: bool, gathers: bool):
    """Results do not change, and nothing is scattered or gathered beside it; few rows stay."""
    sources, targets = _edges()
    x = torch.randn(N_NODES if gathers else N_EDGES, 3)

    def extreme(x: Tensor, sources: Tensor, targets: Tensor) -> Tensor:
        rows = x.index_select(0, sources) if gathers else x
        every = targets.unsqueeze(-1).expand_as(rows)
        return x.new_zeros(N_NODES, 3).scatter_reduce(0, every, rows, kind, include_self=includes)

    inputs = (x, sources, targets)
    step = apply(captured(extreme, *inputs), HOST_PASSES, "host")
    names = {schema_name(node) for node in compare_by_segments(step, CPU).graph.nodes}
    assert "aten::scatter_reduce" in names, "few rows"
    step = compare_by_segments(step, CPU, min_rows=100)
    step.graph.eliminate_dead_code()
    names = {schema_name(node) for node in step.graph.nodes}
    assert "tremula::segment_extreme" in names
    assert names.isdisjoint({"aten::scatter_reduce", "aten::index_select"})
    (result,) = step.module().forward(*(i.int() if i.dtype == torch.int64 else i for i in inputs))
    torch.testing.assert_close(result, extreme(*inputs), rtol=0, atol=0)


class Largest(nn.Module):
    """The largest of each node's neighbours, after a layer; one of them is compared twice."""

    def __init__(self, n_nodes: int, width: int):
        super().__init__()
        self.n_nodes = n_nodes
        self.layer = nn.Linear(width, width)

    def forward(self, x: Tensor, sources: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.layer(x).index_select(0, sources)
        every = targets.unsqueeze(-1).expand_as(rows)
        result = rows.new_zeros(self.n_nodes, rows.shape[1]).scatter_reduce(
            0, every, rows, "amax", include_self=False
        )
        return result, poptorch.identity_loss((result * result).mean(), reduction="none")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("width", [24, 300])
def test_a_gpu_trains_on_the_largest_as_a_cpu_does(width: int):
    """Losses and weights of a few steps, with hubs and with nodes that have no edges."""
    random = torch.Generator().manual_seed(0)
    n_nodes, n_edges = 3000, 40_000
    targets = (torch.rand(n_edges, generator=random) ** 4 * (n_nodes - 50)).long()
    sources = torch.randint(n_nodes, (n_edges,), generator=random)
    x, results = torch.randn(n_nodes, width, generator=random), []
    for host, device in (("eager", "cpu"), ("cuda-graph", "cuda")):
        torch.manual_seed(0)
        model = Largest(n_nodes, width)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
        with configured(host=host, device=device):
            losses = [training(x, sources, targets)[1].item() for _ in range(3)]
        training.copyWeightsToHost()
        results.append([torch.tensor(losses), *(p.detach().clone() for p in model.parameters())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-5)
