"""Parts of the applications on graphs, against plain references."""

import pytest
import torch

from tremula.garden.applications.fraud_rgcn.main import area_under_roc


@pytest.mark.parametrize(
    ("scores", "area"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], 0.0), ([0, 0, 0, 0], 0.5)]
)
def test_area_under_roc(scores, area):
    """It is 1 where frauds stand above all others, 0 below them, a half where nothing is told."""
    is_fraud = torch.tensor([False, False, True, True])
    assert area_under_roc(torch.tensor(scores), is_fraud) == area
