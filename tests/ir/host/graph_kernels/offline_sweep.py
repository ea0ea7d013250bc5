"""Every kernel of layers of PyG, compiled for kinds of GPUs that need not be there."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from tests.ir.host.graph_kernels.layers import step_of
from tremula.ir.host.graph_kernels import kernels
from tremula.ir.host.graph_kernels.compile_ahead import compile_ahead
from tremula.ir.host.graph_kernels.fuse import fuse_graph_kernels
from tremula.ir.host.graph_kernels.regions import FEATURE_MAJOR, TF32
from tremula.ir.step import CapturedStep

AMPERE, HOPPER, BLACKWELL = 80, 90, 100
SHARED_BYTES = {AMPERE: 163 << 10, HOPPER: 227 << 10, BLACKWELL: 227 << 10}  # of a program
N_NODES, N_EDGES = 600, 20_000  # enough for all forms of kernels

Layer = Callable[[int], nn.Module]
LAYERS: dict[str, Layer] = {
    "GCNConv": lambda n: pyg.GCNConv(n, n, add_self_loops=False),
    "SAGEConv": lambda n: pyg.SAGEConv(n, n),
    "SAGEConv-max": lambda n: pyg.SAGEConv(n, n, aggr="max"),
    "GATConv": lambda n: pyg.GATConv(n, n // 4, heads=4, add_self_loops=False),
    "GATv2Conv": lambda n: pyg.GATv2Conv(n, n // 4, heads=4, add_self_loops=False),
    "GINConv": lambda n: pyg.GINConv(_network(n)),
    "GINEConv": lambda n: pyg.GINEConv(_network(n)),
    "CGConv": lambda n: pyg.CGConv(n, n),
    "TransformerConv": lambda n: pyg.TransformerConv(n, n // 4, heads=4, edge_dim=n),
    "EdgeConv": lambda n: pyg.EdgeConv(nn.Sequential(nn.Linear(2 * n, n), nn.SiLU())),
    "ResGatedGraphConv": lambda n: pyg.ResGatedGraphConv(n, n),
    "GraphConv": lambda n: pyg.GraphConv(n, n),
    "GENConv": lambda n: pyg.GENConv(n, n),
    "FiLMConv": lambda n: pyg.FiLMConv(n, n),
    "LEConv": lambda n: pyg.LEConv(n, n),
    "TAGConv": lambda n: pyg.TAGConv(n, n, normalize=False),
    "ARMAConv": lambda n: pyg.ARMAConv(n, n),
}
_TAKES_EDGES = {"GINEConv", "CGConv", "TransformerConv"}


def _network(n: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n, n), nn.ReLU(), nn.Linear(n, n))


class TwoLayers(nn.Module):
    """A layer twice, with a loss, so that gradients of features are computed as well."""

    def __init__(self, name: str, width: int):
        super().__init__()
        self.takes_edges = name in _TAKES_EDGES
        self.layers = nn.ModuleList(LAYERS[name](width) for _ in range(2))

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        more = (edge_attr,) if self.takes_edges else ()
        for layer in self.layers:
            x = layer(x, edge_index, *more)
        return nn.functional.mse_loss(x.float(), torch.zeros_like(x, dtype=torch.float32))


@dataclass(frozen=True)
class Failure:
    """A candidate that does not compile, or takes too much shared memory."""

    capability: int
    form: str
    reason: str


def step_of_layer(name: str, width: int, dtype: torch.dtype) -> CapturedStep:
    """A training step of two layers."""
    torch.manual_seed(0)
    model = TwoLayers(name, width).to(dtype)
    x, attributes = torch.randn(N_NODES, width), torch.randn(N_EDGES, width)
    edges = torch.randint(N_NODES, (2, N_EDGES))
    return step_of(model, (x.to(dtype), edges, attributes.to(dtype)))


def fused_kernels(capture: Callable[[], CapturedStep]) -> list[kernels.RowKernel]:
    """The kernels of a step with products in TF32, with and without large outer products."""
    digests: dict[str, None] = {}
    for limits in (TF32, FEATURE_MAJOR):
        fused = fuse_graph_kernels(capture(), torch.device("cpu"), limits)
        calls = [n for n in fused.graph.nodes if n.target is torch.ops.tremula.row_kernel.default]
        digests |= dict.fromkeys(str(call.args[0]) for call in calls)
    return [kernels._kernels[digest] for digest in digests]


def failures(
    each: Sequence[kernels.RowKernel], capabilities: Sequence[int], n_processes: int
) -> Iterator[Failure]:
    """Compile every candidate of kernels; those that a GPU could not run."""
    jobs = [
        (capability, launch, kernels.request_for(kernel, launch, capability))
        for kernel in each
        for capability in capabilities
        for launch in kernels.candidates_of(kernel, capability == HOPPER)
    ]
    answers = compile_ahead([request for *_, request in jobs], n_processes)
    for (capability, launch, _), future in zip(jobs, answers, strict=True):
        answer = future.result()
        if "error" in answer or not answer:
            yield Failure(capability, launch.form, str(answer.get("error", "no answer")))
        elif int(str(answer["shared"])) > SHARED_BYTES[capability]:
            yield Failure(capability, launch.form, f"{answer['shared']} bytes of shared memory")
