"""Parts of the applications on graphs, against plain references."""

import pytest
import torch

from tremula.garden.applications.fraud_rgcn.main import area_under_roc
from tremula.garden.applications.gps_molecules import fused
from tremula.garden.applications.gps_molecules.main import difference_on_tiles
from tremula.garden.applications.nbfnet_links.facts import facts
from tremula.garden.applications.nbfnet_links.main import mean_reciprocal_rank
from tremula.garden.applications.nbfnet_links.model import messages


@pytest.mark.parametrize(
    ("scores", "area"), [([1, 2, 3, 4], 1.0), ([4, 3, 2, 1], 0.0), ([0, 0, 0, 0], 0.5)]
)
def test_area_under_roc(scores, area):
    """It is 1 where frauds stand above all others, 0 below them, a half where nothing is told."""
    is_fraud = torch.tensor([False, False, True, True])
    assert area_under_roc(torch.tensor(scores), is_fraud) == area


@pytest.mark.parametrize("seed", range(4))
def test_messages_are_products_with_dense_matrices(seed):
    """The sum over edges of state · relation is one matrix product for each type of edge."""
    draw = torch.Generator().manual_seed(seed)
    n_questions, n_entities, width, n_types, n_edges = 2, 7, 3, 4, 25
    state = torch.randn(n_questions, n_entities, width, generator=draw)
    relations = torch.randn(n_types, width, generator=draw)
    edges = torch.randint(n_entities, (2, n_edges), generator=draw)
    types = torch.randint(n_types, (n_edges,), generator=draw)
    expected = torch.zeros_like(state)
    for kind in range(n_types):
        adjacency = torch.zeros(n_entities, n_entities)
        own = edges[:, types == kind]
        adjacency.index_put_((own[1], own[0]), torch.ones(own.shape[1]), accumulate=True)
        expected += adjacency @ (state * relations[kind])
    assert torch.allclose(messages(state, relations, edges, types), expected, atol=1e-5)


def test_answers_follow_from_the_facts():
    """Each answer is reached by one edge to the next member and one to its group."""
    known = facts(20, 4)
    steps = {
        (int(a), int(kind)): int(b)
        for (a, b), kind in zip(known.edges.t(), known.types, strict=True)
        if kind < 2
    }
    questions = torch.cat([known.train, known.test])
    assert sorted(questions[:, 0].tolist()) == list(range(20))
    for about, answer in questions.tolist():
        assert steps[steps[about, 0], 1] == answer


def test_mean_reciprocal_rank_counts_ties_against_the_answer():
    """First place counts 1, second a half; an answer that ties with another is behind it."""
    scores = torch.tensor([[3.0, 1.0, 2.0], [3.0, 1.0, 2.0], [1.0, 1.0, 0.0]])
    assert mean_reciprocal_rank(scores, torch.tensor([0, 2, 0])) == pytest.approx(
        (1 + 0.5 + 0.5) / 3
    )


def test_fused_messages_have_the_gradient_of_their_parts(monkeypatch):
    """The gradient written out for the custom operation is autograd's of the three operations."""
    monkeypatch.setattr(fused, "gather_scatter", fused.gathered_and_summed)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, generator=draw, requires_grad=True)
    weights = torch.rand(10, generator=draw, requires_grad=True)
    edges = torch.randint(6, (2, 10), generator=draw)
    slope = torch.randn(6, 3, generator=draw)
    out = fused.gathered_and_summed(x, edges, weights)
    expected = torch.autograd.grad(out, (x, weights), slope)
    result = fused._gradient([x, edges, weights], [out], [slope], {})
    assert result[1] is None
    assert torch.allclose(result[0], expected[0], atol=1e-6)
    assert torch.allclose(result[2], expected[1], atol=1e-6)


def test_fused_messages_on_tiles(monkeypatch):
    """Vertices that walk over all edges give what PyTorch's operations give."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    assert difference_on_tiles() < 1e-5
