"""Energies and forces: equivariant, and trained on both as in plain PyTorch, as one static step."""

import copy

import pytest
import torch
from torch import Tensor

import poptorch
from tests.sampling import one_in
from tremula.garden.models.force_fields import POTENTIALS, WithForces
from tremula.garden.models.harmonics import coupled_degrees, coupling, degree_slice, harmonics
from tremula.ir.settings import configured

N_GRAPHS, N_ATOMS = 3, 5
SMALL = {
    "schnet": {
        "hidden_channels": 8,
        "num_filters": 8,
        "num_interactions": 1,
        "num_gaussians": 6,
    },
    "painn": {"width": 8, "n_layers": 1},
    "egnn": {"width": 8, "n_layers": 1},
    "mace": {"width": 4, "n_layers": 1, "max_degree": 1},
}


def batch() -> list[Tensor]:
    """Three molecules with all pairs of their atoms as edges; the last one is padding."""
    torch.manual_seed(0)
    n = N_GRAPHS * N_ATOMS
    graph = torch.arange(n) // N_ATOMS
    is_edge = (graph[:, None] == graph) & ~torch.eye(n, dtype=torch.bool)
    return [
        torch.randint(1, 9, (n,)), torch.randn(n, 3) * 1.5, is_edge.nonzero().t().contiguous(),
        graph, torch.randn(N_GRAPHS), torch.randn(n, 3), torch.tensor([True, True, False]),
    ]  # fmt: skip


def turned(values: list[Tensor], rotation: Tensor) -> list[Tensor]:
    return [v @ rotation if v.shape[1:] == (3,) else v for v in values]


@pytest.mark.parametrize("name", one_in(2, reversed(POTENTIALS)))
def test_forces_are_trained_as_in_plain_pytorch(name: str):
    """Energies, forces and losses of two steps agree; forces turn with the molecule."""
    inputs = batch()
    model = WithForces(POTENTIALS[name](N_GRAPHS, **SMALL[name]))
    plain = copy.deepcopy(model)
    rotation = torch.linalg.qr(torch.randn(3, 3))[0]
    rotation *= torch.det(rotation)
    energy, force, _ = plain(*(t.clone() for t in inputs))
    other_energy, other_force, _ = plain(*turned(inputs, rotation))
    torch.testing.assert_close(other_energy, energy, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other_force, force @ rotation, rtol=1e-3, atol=1e-5)
    with configured(device="cpu", host="eager"):
        optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3) for m in (model, plain)]
        training = poptorch.trainingModel(model, poptorch.Options(), optimizers[0])
        for _ in range(2):
            result = training(*(t.clone() for t in inputs))
            expected = plain(*(t.clone() for t in inputs))
            optimizers[1].zero_grad()
            expected[-1].backward()
            optimizers[1].step()
            torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


def test_coupled_products_are_equivariant():
    """The part of degree c in a product of harmonics is that of the direction, scaled."""
    directions = torch.nn.functional.normalize(torch.randn(6, 3, dtype=torch.float64), dim=-1)
    values = harmonics(directions)
    assert len(coupled_degrees()) == 11
    for a, b, c in coupled_degrees():
        table = coupling(a, b, c).double()
        left, right, expected = (values[:, degree_slice(d)] for d in (a, b, c))
        result = torch.einsum("ni,nj,ijk->nk", left, right, table)
        ratio = (result * expected).sum(-1) / (expected * expected).sum(-1)
        torch.testing.assert_close(result, ratio[:, None] * expected, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(ratio, ratio[:1].expand(6), rtol=1e-5, atol=1e-6)
