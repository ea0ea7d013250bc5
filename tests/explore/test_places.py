"""Where models can be cut, and cuts that balance stages."""

from itertools import combinations, pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tremula.explore.places import balanced_cuts, places_of, segments_of


def test_stages_begin_with_members_of_lists():
    """Members of lists, however deep, and modules without lists are places; shells are not."""
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
    model = nn.ModuleDict({"head": nn.Linear(2, 2), "body": nn.ModuleDict({"stack": inner})})
    assert places_of(model) == ["head", "body.stack.0", "body.stack.2.0"]


def test_segments_count_flops_and_weights(small_task):
    """Between two places lie the flops of one module, its weights and what it is given."""
    model = small_task.model
    found = segments_of(model, (torch.randn(4, 8), torch.randn(4, 16)))
    assert found.names == ("first", *(f"layers.{i}" for i in range(4)), "wide.0", "wide.1")
    small, wide = 2 * 4 * 16 * 16, 2 * 4 * 16 * 256
    assert found.n_flops.tolist() == [0, 2 * 4 * 8 * 16, *[small] * 4, wide, wide]
    n_weights = sum(p.numel() for p in model.parameters())
    assert found.n_weight_bytes.sum() == 4 * n_weights
    assert found.n_bytes_in.tolist() == [0, 4 * 4 * 8, *[4 * 4 * 16] * 5, 4 * 4 * 256]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 4))
def test_cuts_are_as_even_as_can_be(weights, n_stages):
    """No other cuts give a lighter heaviest stage."""
    n_stages = min(n_stages, len(weights))

    def heaviest(cuts):
        bounds = [0, *cuts, len(weights)]
        return max(sum(weights[a:b]) for a, b in pairwise(bounds))

    found = balanced_cuts(np.array(weights, float), n_stages)
    every = combinations(range(1, len(weights)), n_stages - 1)
    assert heaviest(found) == min(map(heaviest, every))
