"""Where models can be cut, and cuts that balance stages."""

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tremula.explore.candidates import Candidate, code_of, options_of
from tremula.explore.cut_points import balanced_cuts, places_of, segments_of
from tremula.explore.trial import Task, try_candidate
from tremula.hardware import chip, single


def test_stages_begin_with_members_of_lists():
    """Members of lists, however deep, and modules without lists are places; shells are not."""
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Sequential(nn.Linear(2, 2)))
    model = nn.ModuleDict({"head": nn.Linear(2, 2), "body": nn.ModuleDict({"stack": inner})})
    assert places_of(model) == ["head", "body.stack.0", "body.stack.2.0"]


def test_segments_count_flops_and_weights(small_task):
    """Between two places lie the flops of one module, its weights and what it is given."""
    model = small_task.model
    result = segments_of(model, (torch.randn(4, 8), torch.randn(4, 16)))
    assert result.names == ("first", *(f"layers.{i}" for i in range(4)), "wide.0", "wide.1")
    small, wide = 2 * 4 * 16 * 16, 2 * 4 * 16 * 256
    assert result.n_flops.tolist() == [0, 2 * 4 * 8 * 16, *[small] * 4, wide, wide]
    n_weights = sum(p.numel() for p in model.parameters())
    assert result.n_weight_bytes.sum() == 4 * n_weights
    assert result.n_bytes_in.tolist() == [0, 4 * 4 * 8, *[4 * 4 * 16] * 5, 4 * 4 * 256]


def test_layers_that_are_alike_have_the_same_kinds_of_operations(small_task):
    """Equal layers add no kinds; where tied weights fold segments, their kinds are those of all."""
    kinds = segments_of(small_task.model, small_task.args).kinds
    assert (kinds[2:6] == kinds[2]).all()
    assert (kinds[6] != kinds[2]).any()
    ids = (torch.zeros(1, 3, dtype=torch.long),)
    tied = segments_of(Tied(), ids)
    assert tied.kinds.shape[0] == len(tied) == 4
    assert tied.kinds[0].sum() >= 2  # the look-up and the output layer
    assert (tied.kinds[1] == tied.kinds[2]).all()


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8), st.integers(1, 4))
def test_cuts_are_as_even_as_can_be(weights, n_stages):
    """No other cuts give a lighter heaviest stage."""
    n_stages = min(n_stages, len(weights))

    def heaviest(cuts):
        bounds = [0, *cuts, len(weights)]
        return max(sum(weights[a:b]) for a, b in pairwise(bounds))

    result = balanced_cuts(np.array(weights, float), n_stages)
    every = combinations(range(1, len(weights)), n_stages - 1)
    assert heaviest(result) == min(map(heaviest, every))


class Tied(nn.Module):
    """Words, two layers, a norm, and an output layer with the words' weights."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def test_tied_weights_stay_on_one_chip():
    """The module that uses weights again is counted where they are, and begins no stage."""
    segments = segments_of(Tied(), (torch.zeros(1, 3, dtype=torch.long),))
    assert segments.home == "head"
    assert segments.names == ("layers.0", "layers.1", "norm")
    assert segments.n_weight_bytes.tolist() == [160, 80, 80, 32]
    assert segments.n_flops.tolist() == [2 * 3 * 4 * 10, 2 * 3 * 4 * 4, 2 * 3 * 4 * 4, 0]


def test_a_weight_far_larger_than_all_others_is_a_table():
    """Where all weights are of a size there are none; the settings name the elements of a table."""
    model = nn.Sequential(nn.Embedding(100, 4), nn.Linear(4, 4), nn.Linear(4, 8))
    segments = segments_of(model, (torch.zeros(1, 3, dtype=torch.long),))
    assert segments.least_of_table == 400
    assert segments.n_table_bytes.tolist() == [0, 1600, 0, 0]
    assert segments_of(model[1:], (torch.ones(1, 4),)).least_of_table == 0
    candidate = Candidate(states_off_chip=True, least_off_chip=400)
    assert candidate.label == "1 stage, states of tables off chip"
    assert "where.minElementsForOffChip(400)" in code_of(candidate)
    options = options_of(candidate)
    assert options.TensorLocations.location_optimizer["minElementsForOffChip"] == 400


def test_a_module_goes_back_to_its_weights():
    """A pipeline of two chips has a third stage, on chip 0; the written settings say so, too."""
    candidate = Candidate(("layers.1",), accumulation=5, home="head")
    assert (candidate.n_stages, candidate.n_pipeline_stages, candidate.n_chips) == (2, 3, 2)
    assert "get_submodule('head'), user_id=\"home\", ipu_id=0" in code_of(candidate)
    assert Candidate(home="head").n_pipeline_stages == 1
    assert "home" not in code_of(Candidate(home="head"))


@pytest.mark.slow
def test_a_tied_model_is_a_pipeline():
    """The output layer runs on chip 0 beside the table, the layers on chip 1."""

    class WithLoss(Tied):
        def forward(self, ids):
            scores = super().forward(ids)
            return scores, nn.functional.cross_entropy(scores.flatten(0, 1), ids.flatten())

    model = WithLoss()
    machine = single(chip("bow").replace(name="Small Bow", n_tiles=8), 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    task = Task(model, (torch.zeros(1, 3, dtype=torch.long),), machine, optimizer=optimizer)
    outcome = try_candidate(task, Candidate(("layers.0",), accumulation=5, home="head"))
    assert not outcome.error
    assert len(outcome.n_bytes) == 2
    assert min(outcome.busy_share) > 0.1
