"""Steps over all nodes of one large graph: three kinds of layers, ours and plain PyG."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn
from torch_geometric.nn import GATv2Conv, GCNConv, SAGEConv

import poptorch

_WIDTH, _N_CLASSES, _N_LAYERS = 128, 40, 2

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "gatv2": lambda: GATv2Conv(_WIDTH, _WIDTH // 4, heads=4, add_self_loops=False),
    "gcn": lambda: GCNConv(_WIDTH, _WIDTH, add_self_loops=False),
    "sage-max": lambda: SAGEConv(_WIDTH, _WIDTH, aggr="max"),
}


@cache
def large_graph(n_nodes: int, n_edges: int) -> tuple[Tensor, Tensor, Tensor]:
    """Features, edges and classes; edges are sorted by target, some nodes have many."""
    random = torch.Generator().manual_seed(0)
    popular = (torch.rand(n_edges - n_nodes, generator=random) ** 3 * n_nodes).long()
    others = torch.randint(n_nodes, (n_edges - n_nodes,), generator=random)
    loops = torch.arange(n_nodes)
    edges = torch.stack([torch.cat([others, loops]), torch.cat([popular, loops])])
    edges = edges[:, edges[1].argsort(stable=True)]
    features = torch.randn(n_nodes, _WIDTH, generator=random)
    return features, edges, torch.randint(_N_CLASSES, (n_nodes,), generator=random)


class NodeClassifier(nn.Module):
    """A few layers over one graph, which is part of the model, and the loss of all nodes."""

    features: Tensor
    edges: Tensor
    classes: Tensor

    def __init__(self, name: str, size: tuple[int, int]):
        super().__init__()
        for buffer, value in zip(("features", "edges", "classes"), large_graph(*size), strict=True):
            self.register_buffer(buffer, value.clone())
        self.layers = nn.ModuleList(LAYERS[name]() for _ in range(_N_LAYERS))
        self.out = nn.Linear(_WIDTH, _N_CLASSES)

    def forward(self, scale: Tensor) -> Tensor:
        hidden = self.features * scale
        for layer in self.layers:
            hidden = layer(hidden, self.edges).relu()
        return nn.functional.cross_entropy(self.out(hidden), self.classes)


def our_step(
    name: str, size: tuple[int, int]
) -> tuple[poptorch.PoplarExecutor, Callable[[tuple], object]]:
    """A compiled model, and its training step."""
    torch.manual_seed(0)
    model = NodeClassifier(name, size)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
    scale = torch.ones(1)
    return training, lambda _batch: training(scale)


def plain_step(
    name: str, size: tuple[int, int], device: str, mode: str = ""
) -> Callable[[tuple], object]:
    """The step as a PyG script writes it, compiled in a mode if there is one."""
    torch.manual_seed(0)
    model = NodeClassifier(name, size).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run = model
    if mode:
        chosen = None if mode == "default" else mode
        run = torch.compile(model, mode=chosen, dynamic=False)

    def step(_batch: tuple) -> None:
        optimizer.zero_grad()
        run(torch.ones(1, device=device)).backward()
        optimizer.step()

    return step
