"""Layers of graph networks that tests fuse into kernels, with a loss, and their inputs."""

import torch
from torch import Tensor, nn

from tests.ir.steps import captured
from tremula.frontends.poptorch.optim.rule import rule_from
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.step import CapturedStep

N_NODES, N_EDGES, N_IN, N_GRAPHS = 24, 90, 16, 3


def sum_into(index: Tensor, values: Tensor, n: int = N_NODES) -> Tensor:
    """As PyG's `scatter` does."""
    shape = (-1, *[1] * (values.dim() - 1))
    zeros = values.new_zeros(n, *values.shape[1:])
    return zeros.scatter_add_(0, index.view(shape).expand_as(values), values)


def largest_of(index: Tensor, values: Tensor) -> Tensor:
    zeros = values.new_zeros(N_NODES, *values.shape[1:])
    index = index.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return zeros.scatter_reduce_(0, index, values, "amax", include_self=False)


class Gin(nn.Module):
    """A sum of neighbours, then a dense net."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(N_IN, 24), nn.ReLU(), nn.Linear(24, N_IN))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, _d: Tensor) -> Tensor:
        return self.net(x + sum_into(target, x.index_select(0, source)))


class Gcn(nn.Module):
    """Neighbours weighted by degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N_IN, 20)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        degree = sum_into(target, torch.ones_like(d)).clamp(min=1)
        weight = degree[source].rsqrt() * degree[target].rsqrt()
        return sum_into(target, self.linear(x)[source] * weight.view(-1, 1))


class Sage(nn.Module):
    """The mean of neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N_IN, N_IN)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        n = sum_into(target, torch.ones_like(d)).clamp(min=1)
        return self.linear(sum_into(target, x.index_select(0, source)) / n.view(-1, 1)).tanh()


class Gat(nn.Module):
    """Attention of four heads, a softmax over each node's edges."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N_IN, 32, bias=False)
        self.from_source, self.from_target = (nn.Parameter(torch.randn(1, 4, 8)) for _ in range(2))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, _d: Tensor) -> Tensor:
        x = self.linear(x).view(-1, 4, 8)
        score = (x * self.from_source).sum(-1)[source] + (x * self.from_target).sum(-1)[target]
        score = nn.functional.leaky_relu(score, 0.2)
        score = (score - largest_of(target, score.detach())[target]).exp()
        score = score / (sum_into(target, score)[target] + 1e-16)
        return sum_into(target, x[source] * score.unsqueeze(-1)).reshape(-1, 32)


class Pna(nn.Module):
    """Mean and deviation of messages from a dense layer over each edge."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(N_IN, 20)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        message = self.linear(x[source] * x[target]).relu()
        n = sum_into(target, torch.ones_like(d)).clamp(min=1).view(-1, 1)
        mean = sum_into(target, message) / n
        square = sum_into(target, message**2) / n
        return torch.cat([mean, (square - mean**2).relu().add(1e-5).sqrt()], 1)


class Filter(nn.Module):
    """SchNet's: weights of messages are a net of the distance."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(25, 32), nn.Softplus(), nn.Linear(32, N_IN))
        self.register_buffer("offset", torch.linspace(0, 3, 25))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        rays = torch.exp(-2.0 * (d.view(-1, 1) - self.offset.view(1, -1)) ** 2)
        cut = 0.5 * (torch.cos(d) + 1)
        return sum_into(target, x.index_select(0, source) * self.net(rays) * cut.view(-1, 1))


class WideFilter(nn.Module):
    """A filter of distances between positions, with a layer whose gradient takes Hopper's units."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(25, 64), nn.Softplus(), nn.Linear(64, N_IN))
        self.scale = nn.Linear(N_IN, 1)
        self.register_buffer("offset", torch.linspace(0, 3, 25))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        position = x[:, :3].contiguous()
        apart = position.index_select(0, source) - position.index_select(0, target)
        d = d + (apart * apart).sum(-1)
        rays = torch.exp(-2.0 * (d.view(-1, 1) - self.offset.view(1, -1)) ** 2)
        weights = self.net(rays) * torch.sigmoid(self.scale(x[source]))
        return sum_into(target, x.index_select(0, source) * weights)


class TallFilter(nn.Module):
    """A filter of distances with two matrices whose gradients are summed where they are used."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(N_IN, 64)
        self.net = nn.Sequential(nn.Linear(25, 128), nn.Softplus(), nn.Linear(128, 64))
        self.scale = nn.Linear(64, 1)
        self.few = nn.Parameter(torch.randn(1, 8))
        self.register_buffer("offset", torch.linspace(0, 3, 25))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        x = self.widen(x)
        rays = torch.exp(-2.0 * (d.view(-1, 1) - self.offset.view(1, -1)) ** 2)
        few = (d.view(-1, 1) * self.few).exp().sum(-1, keepdim=True)
        weights = self.net(rays) * torch.sigmoid(self.scale(x[source])) * few + d.view(-1, 1)
        return sum_into(target, x.index_select(0, source) * weights * d.view(-1, 1)) / 16


class CutFilter(nn.Module):
    """As in SchNet: one kernel sums the gradients of both matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(N_IN, 64)
        self.net = nn.Sequential(nn.Linear(25, 128), nn.Softplus(), nn.Linear(128, 64))
        self.register_buffer("offset", torch.linspace(0, 3, 25))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        x = self.widen(x)
        rays = torch.exp(-2.0 * (d.view(-1, 1) - self.offset.view(1, -1)) ** 2)
        cut = 0.5 * (torch.cos(d) + 1)
        return sum_into(target, x.index_select(0, source) * self.net(rays) * cut.view(-1, 1)) / 16


class ScaledFilter(nn.Module):
    """A filter of distances, times a layer with one input and one output."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(N_IN, 64)
        self.net = nn.Sequential(nn.Linear(25, 128), nn.Softplus(), nn.Linear(128, 64))
        self.scale = nn.Linear(1, 1)
        self.register_buffer("offset", torch.linspace(0, 3, 25))

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        x = self.widen(x)
        rays = torch.exp(-2.0 * (d.view(-1, 1) - self.offset.view(1, -1)) ** 2)
        weights = self.net(rays) * self.scale(d.view(-1, 1))
        return sum_into(target, x.index_select(0, source) * weights) / 16


class TallGate(nn.Module):
    """A net of both ends of an edge, whose norm and mean scale what it sends."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(N_IN, 64)
        self.first, self.second = nn.Linear(64, 100), nn.Linear(100, 64)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        x = self.widen(x).tanh()
        hidden = nn.functional.silu(self.first(x[source] * x[target]))
        sent = self.second(hidden) * x[source]
        scale = sent.norm(dim=-1, keepdim=True) + sent.mean(-1, keepdim=True) + d.view(-1, 1)
        return sum_into(target, sent * scale) / 16


class Gate(nn.Module):
    """A message passed through a sigmoid of its edge's state, which goes on to the next layer."""

    def __init__(self) -> None:
        super().__init__()
        self.edge, self.node = nn.Linear(N_IN, N_IN), nn.Linear(N_IN, N_IN)

    def forward(self, x: Tensor, source: Tensor, target: Tensor, d: Tensor) -> Tensor:
        state = d.view(-1, 1) * x[source]
        for _ in range(2):
            state = state + nn.functional.silu(self.edge(state)) * x[target]
            zeros = torch.zeros_like(x)
            x = x + self.node(zeros.index_add(0, target, torch.sigmoid(state) * x[source]))
        return x


class WithLoss(nn.Module):
    """A layer twice, a sum over each graph, a loss."""

    def __init__(self, layer: type[nn.Module]):
        super().__init__()
        self.embed = nn.Embedding(5, N_IN, padding_idx=0)
        self.layer = layer()
        n_out = self.layer(*(example()[i] for i in (1, 2, 3, 4))).shape[1]
        self.back = nn.Linear(n_out, N_IN)
        self.readout = nn.Linear(n_out, 1)

    def forward(
        self, z: Tensor, x: Tensor, source: Tensor, target: Tensor, d: Tensor, graph: Tensor
    ) -> Tensor:
        x = self.embed(z) + x
        x = self.back(self.layer(x, source, target, d)).tanh()
        each = self.readout(self.layer(x, source, target, d))
        sums = sum_into(graph, each, N_GRAPHS)
        return nn.functional.mse_loss(sums, torch.ones_like(sums))


def example(n_edges: int = N_EDGES) -> tuple[Tensor, ...]:
    """Edges sorted by target, as loaders give them."""
    random = torch.Generator().manual_seed(3)
    target = torch.randint(0, N_NODES, (n_edges,), generator=random).sort().values
    source = torch.randint(0, N_NODES, (n_edges,), generator=random)
    return (
        torch.randint(0, 5, (N_NODES,), generator=random),
        torch.randn(N_NODES, N_IN, generator=random),
        source,
        target,
        torch.rand(n_edges, generator=random) * 3 + 0.1,
        torch.arange(N_NODES) * N_GRAPHS // N_NODES,
    )


LAYERS = (Gin, Gcn, Sage, Gat, Pna, Filter, Gate)


def step_of(model: nn.Module, inputs: tuple[Tensor, ...]) -> CapturedStep:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = captured(model, *inputs, rule=rule_from(optimizer, model.named_parameters()))
    return apply(step, HOST_PASSES, "host")
