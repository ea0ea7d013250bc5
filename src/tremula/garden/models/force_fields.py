"""Energies and forces of molecules: SchNet, EGNN, PaiNN, and tensor products as MACE has them.

A *potential* computes an energy for each graph from kinds of atoms, positions and edges.
`WithForces` derives forces from it by autograd, inside the model, and trains on both.
"""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch_geometric.nn import SchNet

import poptorch
from tremula.garden.models.harmonics import (
    MAX_DEGREE,
    coupled_degrees,
    coupling,
    degree_slice,
    harmonics,
)
from tremula.garden.models.molecules import GivenEdges

_N_KINDS = 100  # of atoms
_NEAR = 1e-9  # the least squared distance: padding atoms are all at one place


class WithForces(nn.Module):
    """A potential and its loss: the mean squares of errors of energies and of forces."""

    def __init__(self, potential: nn.Module, force_weight: float = 1.0):
        super().__init__()
        self.potential = potential
        self.force_weight = force_weight

    def forward(
        self,
        z: Tensor,
        pos: Tensor,
        edge_index: Tensor,
        batch: Tensor,
        y: Tensor,
        force: Tensor,
        graphs_mask: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        pos = pos.requires_grad_(True)
        energy = self.potential(z, pos, edge_index, batch)
        (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        real = graphs_mask.to(energy.dtype)
        loss = (real * (energy - y) ** 2).sum() / real.sum()
        atoms = real.index_select(0, batch).unsqueeze(-1)
        error = (atoms * (slope + force) ** 2).sum() / (3 * atoms.sum())
        loss = poptorch.identity_loss(loss + self.force_weight * error, reduction="none")
        return energy, -slope, loss


# -- parts -----------------------------------------------------------------------------------------


def _distances(pos: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    """The vector of each edge, from source to target, and its length [edges, 1]."""
    offset = pos.index_select(0, edge_index[1]) - pos.index_select(0, edge_index[0])
    return offset, (offset * offset).sum(-1, keepdim=True).clamp(min=_NEAR).sqrt()


def _sum_to(values: Tensor, index: Tensor, n_rows: int) -> Tensor:
    """Rows added up by their index."""
    return values.new_zeros((n_rows, *values.shape[1:])).index_add(0, index, values)


def _network(*sizes: int) -> nn.Sequential:
    """Linear layers with SiLU between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.SiLU()]
    return nn.Sequential(*layers[:-1])


class Radial(nn.Module):
    """Sines of a distance that end at a cutoff smoothly, [edges, n]."""

    frequencies: Tensor

    def __init__(self, n: int, cutoff: float):
        super().__init__()
        self.cutoff = cutoff
        self.register_buffer("frequencies", torch.arange(1, n + 1) * (torch.pi / cutoff))

    def forward(self, distance: Tensor) -> Tensor:
        envelope = 0.5 * (torch.cos(distance * (torch.pi / self.cutoff)) + 1)
        envelope = envelope * (distance < self.cutoff).to(distance.dtype)
        return torch.sin(distance * self.frequencies) / distance * envelope


# -- potentials ------------------------------------------------------------------------------------


class SchNetPotential(nn.Module):
    """PyG's SchNet on edges of a loader."""

    def __init__(self, num_graphs: int, **kwargs):
        super().__init__()
        self.num_graphs = num_graphs
        self.edges = GivenEdges()
        self.model = SchNet(interaction_graph=self.edges, **kwargs)

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        model = self.model
        self.edges.edge_index = edge_index
        hidden = model.embedding(z)
        edge_index, weight = self.edges(pos, batch)
        attributes = model.distance_expansion(weight)
        for interaction in model.interactions:
            hidden = hidden + interaction(hidden, edge_index, weight, attributes)
        hidden = model.lin2(model.act(model.lin1(hidden)))
        return _sum_to(hidden[:, 0], batch, self.num_graphs)


class Egnn(nn.Module):
    """E(n)-equivariant network: messages of features and distances, which also move atoms."""

    def __init__(self, num_graphs: int, width: int = 128, n_layers: int = 4):
        super().__init__()
        self.num_graphs = num_graphs
        self.embedding = nn.Embedding(_N_KINDS, width)
        self.messages = nn.ModuleList(
            _network(2 * width + 1, width, width) for _ in range(n_layers)
        )
        self.moves = nn.ModuleList(_network(width, width, 1) for _ in range(n_layers))
        self.updates = nn.ModuleList(_network(2 * width, width, width) for _ in range(n_layers))
        self.out = _network(width, width, 1)

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        hidden, (source, target) = self.embedding(z), edge_index.unbind(0)
        layers = zip(self.messages, self.moves, self.updates, strict=True)
        for message, move, update in layers:
            offset, distance = _distances(pos, edge_index)
            ends = hidden.index_select(0, target), hidden.index_select(0, source)
            sent = message(torch.cat([*ends, distance * distance], -1))
            pos = pos + _sum_to(offset / (distance + 1) * move(sent), target, pos.shape[0])
            received = _sum_to(sent, target, hidden.shape[0])
            hidden = hidden + update(torch.cat([hidden, received], -1))
        return _sum_to(self.out(hidden)[:, 0], batch, self.num_graphs)


class Painn(nn.Module):
    """Polarisable atom interaction network: features of atoms are numbers and vectors."""

    def __init__(
        self,
        num_graphs: int,
        width: int = 128,
        n_layers: int = 3,
        n_radial: int = 20,
        cutoff: float = 5.0,
    ):
        super().__init__()
        self.num_graphs, self.width = num_graphs, width
        self.embedding = nn.Embedding(_N_KINDS, width)
        self.radial = Radial(n_radial, cutoff)
        self.filters = nn.ModuleList(nn.Linear(n_radial, 3 * width) for _ in range(n_layers))
        self.messages = nn.ModuleList(_network(width, width, 3 * width) for _ in range(n_layers))
        self.mixes = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(n_layers))
        self.updates = nn.ModuleList(_network(2 * width, width, 3 * width) for _ in range(n_layers))
        self.out = _network(width, width, 1)

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        offset, distance = _distances(pos, edge_index)
        direction, radial = (offset / distance).unsqueeze(-1), self.radial(distance)
        numbers = self.embedding(z)
        vectors = numbers.new_zeros((numbers.shape[0], 3, self.width))
        layers = zip(self.filters, self.messages, self.mixes, self.updates, strict=True)
        for weight, message, mix, update in layers:
            sent = message(numbers).index_select(0, edge_index[0]) * weight(radial)
            scalar, turned, along = sent.split(self.width, -1)
            moved = vectors.index_select(0, edge_index[0]) * turned.unsqueeze(1)
            moved = moved + direction * along.unsqueeze(1)
            numbers = numbers + _sum_to(scalar, edge_index[1], numbers.shape[0])
            vectors = vectors + _sum_to(moved, edge_index[1], numbers.shape[0])
            left, right = mix(vectors).split(self.width, -1)
            size = ((right * right).sum(1) + _NEAR).sqrt()
            a, b, c = update(torch.cat([numbers, size], -1)).split(self.width, -1)
            numbers = numbers + a + b * (left * right).sum(1)
            vectors = vectors + c.unsqueeze(1) * left
        return _sum_to(self.out(numbers)[:, 0], batch, self.num_graphs)


class TensorProducts(nn.Module):
    """Features of degrees 0, 1 and 2, coupled along edges and at atoms as MACE does.

    A message is, for each channel and each allowed triple of degrees, the coupled product of the
    source's features and the edge's spherical harmonics, times a number that depends on the
    distance. What an atom receives is coupled with itself, which correlates three atoms.
    """

    def __init__(
        self,
        num_graphs: int,
        width: int = 128,
        n_layers: int = 2,
        n_radial: int = 8,
        cutoff: float = 5.0,
        max_degree: int = MAX_DEGREE,
    ):
        super().__init__()
        self.num_graphs, self.width, self.max_degree = num_graphs, width, max_degree
        self.paths = coupled_degrees(max_degree)
        self.embedding = nn.Embedding(_N_KINDS, width)
        self.radial = Radial(n_radial, cutoff)
        for a, b, c in self.paths:
            self.register_buffer(f"coupling_{a}{b}{c}", coupling(a, b, c), persistent=False)
        n_weights = len(self.paths) * width
        self.filters = nn.ModuleList(_network(n_radial, 64, n_weights) for _ in range(n_layers))
        self.sources, self.received, self.squares = (
            nn.ModuleList(DegreeLinear(width, max_degree) for _ in range(n_layers))
            for _ in range(3)
        )
        self.path_weights = nn.ParameterList(
            torch.randn(len(self.paths), width) * 0.1 for _ in range(n_layers)
        )
        self.out = _network(width, 16, 1)

    def forward(self, z: Tensor, pos: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        offset, distance = _distances(pos, edge_index)
        angular, radial = harmonics(offset / distance), self.radial(distance)
        numbers = self.embedding(z)
        n_others = (self.max_degree + 1) ** 2 - 1
        others = numbers.new_zeros(len(numbers), n_others, self.width)
        hidden = torch.cat([numbers.unsqueeze(1), others], 1)
        energies: list[Tensor] = []
        layers = zip(
            self.filters, self.sources, self.received, self.squares, self.path_weights, strict=True
        )
        for weight, source, received, square, path_weight in layers:
            weights = weight(radial).unflatten(-1, (len(self.paths), self.width))
            sent = source(hidden).index_select(0, edge_index[0])
            message = self._coupled(sent, angular, weights)
            arrived = received(_sum_to(message, edge_index[1], len(hidden)) * 0.1)
            pairs = self._coupled(arrived, arrived, path_weight)
            hidden = hidden + arrived + square(pairs)
            energies.append(self.out(hidden[:, 0])[:, 0])
        return _sum_to(torch.stack(energies).sum(0), batch, self.num_graphs)

    def _coupled(self, left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
        """Products of two features, triple of degrees by triple; both [rows, 9, channels].

        The second one may have no channels: it is the same for all then, [rows, 9].
        """
        parts: list[Tensor | None] = [None] * (self.max_degree + 1)
        formula = "nic,nj,ijk->nkc" if right.dim() < left.dim() else "nic,njc,ijk->nkc"
        for path, (a, b, c) in enumerate(self.paths):
            first, second = left[:, degree_slice(a)], right[:, degree_slice(b)]
            table = self.get_buffer(f"coupling_{a}{b}{c}")
            part = torch.einsum(formula, first, second, table)
            part = part * weights.select(-2, path).unsqueeze(-2)
            before = parts[c]
            parts[c] = part if before is None else before + part
        return torch.cat([part for part in parts if part is not None], 1)


class DegreeLinear(nn.Module):
    """Channels mixed by one matrix for each degree: [rows, 9, channels]."""

    def __init__(self, width: int, max_degree: int = MAX_DEGREE):
        super().__init__()
        self.weights = nn.ParameterList(
            torch.randn(width, width) / width**0.5 for _ in range(max_degree + 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, degree_slice(d)] @ w for d, w in enumerate(self.weights)], 1)


POTENTIALS: dict[str, Callable[..., nn.Module]] = {
    "schnet": SchNetPotential,
    "painn": Painn,
    "egnn": Egnn,
    "mace": TensorProducts,
}
