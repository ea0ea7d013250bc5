"""Molecules of QM9 from the installed package."""

import pytest
import torch

from tremula.frontends.geometric.feeding.columns import GraphColumns
from tremula.garden.models.datasets.qm9 import GAP, TARGETS, qm9


def test_the_first_molecules():
    """Methane, ammonia and water, with targets in PyG's units."""
    molecules = qm9(3)
    assert isinstance(molecules, GraphColumns)
    methane, ammonia, water = molecules
    assert methane.z.tolist() == [6, 1, 1, 1, 1]
    assert ammonia.z.tolist() == [7, 1, 1, 1]
    assert water.z.tolist() == [8, 1, 1]
    assert methane.pos.shape == (5, 3)
    assert methane.pos[0].tolist() == pytest.approx([-0.0126981359, 1.0858041578, 0.0080009958])
    assert water.y.shape == (1, len(TARGETS))
    assert methane.y[0, GAP].item() == pytest.approx(13.7363, rel=1e-4)
    assert torch.equal(molecules[-1].z, water.z)
