"""Embeddings sharded over replicas train as one table does; distances on tiles are right."""

import pytest
import torch

import poptorch
from tremula.garden.models.knowledge_graphs.model import Embeddings, ScorerSizes
from tremula.garden.models.knowledge_graphs.ops import l1_distances

N_SHARDS, N_ROWS, N_RELATIONS, N_TRIPLES = 2, 5, 3, 4


@pytest.fixture(autouse=True)
def _small_chips(monkeypatch):
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")


class Distances(torch.nn.Module):
    def __init__(self, a: torch.Tensor, b: torch.Tensor):
        super().__init__()
        self.a, self.b = torch.nn.Parameter(a.clone()), torch.nn.Parameter(b.clone())

    def forward(self, factors):
        return poptorch.identity_loss((l1_distances(self.a, self.b) * factors).sum(), "none")


@pytest.mark.parametrize("on_tiles", [False, True], ids=["host", "tiles"])
def test_distances_and_their_gradient(on_tiles):
    """One step of SGD moves points as PyTorch's distances do."""
    generator = torch.Generator().manual_seed(0)
    a, b, factors = (torch.randn(*n, generator=generator) for n in ((7, 6), (5, 6), (7, 5)))
    model = Distances(a, b)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = poptorch.Options().useIpuModel(on_tiles)
    loss = poptorch.trainingModel(model, options, optimizer)(factors)
    ours = [a.clone().requires_grad_(), b.clone().requires_grad_()]
    expected = (torch.cdist(*ours, p=1) * factors).sum()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    for result, start in zip((model.a, model.b), ours, strict=True):
        torch.testing.assert_close(result.detach(), start.detach() - 0.1 * start.grad)


def _shape(score: str, n_shards: int, **more: bool) -> ScorerSizes:
    return ScorerSizes(
        score=score,
        n_entities=N_SHARDS * N_ROWS,
        n_relations=N_RELATIONS,
        size=2,
        n_shards=n_shards,
        **more,
    )


def _losses(model: Embeddings, inputs: list[torch.Tensor]) -> list[float]:
    """Of each replica, before an update and after it."""
    options = poptorch.Options().useIpuModel(True).replicationFactor(model.shape.n_shards)
    options.outputMode(poptorch.OutputMode.All)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    training = poptorch.trainingModel(model, options, optimizer)
    kind, mode = poptorch.CommGroupType.NoGrouping, poptorch.VariableRetrievalMode.OnePerGroup
    training.entities.replicaGrouping(kind, 0, mode)
    return [sum(training(*inputs).tolist()) for _ in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("score", ["TransE", pytest.param("ComplEx", marks=pytest.mark.wide)])
def test_shards_train_as_one_table(score):
    """Two replicas with half of the entities each, and one with all, have the same losses.

    Negatives are those of all triples of a replica, so each replica has its own, and the one that
    stands for both computes one replica's triples after another.
    """
    generator = torch.Generator().manual_seed(1)
    width = _shape(score, 1).width
    table = torch.randn(N_SHARDS, N_ROWS, width, generator=generator)
    links = torch.randn(N_RELATIONS, width, generator=generator)

    def drawn(high: int, *size: int) -> torch.Tensor:
        return torch.randint(0, high, size, generator=generator, dtype=torch.int32)

    half = N_TRIPLES // N_SHARDS
    # Rows of tails and negatives belong to the replica that sends them: [sender, receiver, …].
    heads, relations = drawn(N_ROWS, 2, 2, half), drawn(N_RELATIONS, 2, 2, half)
    tails, negatives = drawn(N_ROWS, 2, 2, half), drawn(N_ROWS, 2, 2, N_TRIPLES, 1)
    sharded = Embeddings(_shape(score, N_SHARDS))
    sharded.entities.data, sharded.relations.data = table.clone(), links.clone()
    result = _losses(sharded, [heads, relations, tails, negatives])
    expected = _by_hand(sharded, table, links, (heads, relations, tails, negatives))
    assert result[0] == pytest.approx(expected, rel=1e-4)
    assert result[1] < result[0]


def _by_hand(model: Embeddings, table, links, inputs) -> float:
    """The sum of both replicas' losses, with rows looked up in the whole table."""
    heads, relations, tails, negatives = (x.long() for x in inputs)
    total = 0.0
    for me in range(N_SHARDS):
        h, r = table[me][heads[me]], links[relations[me]]
        t = torch.stack([table[other][tails[other, me]] for other in range(N_SHARDS)])
        n = torch.stack([table[other][negatives[other, me]] for other in range(N_SHARDS)])
        total += _loss_of_one(model, h, r, t, n.transpose(0, 1))
    return total


def _loss_of_one(model: Embeddings, h, r, t, n) -> float:
    """n is [triple, shard, 1, width]: triples of one half share what was drawn for that half."""
    half = r.shape[1] // 2
    n = n.reshape(N_SHARDS, 2 * half, -1, model.shape.width)
    pairs = [(shard, i) for shard in range(N_SHARDS) for i in range(2 * half)]
    true, false = [], []
    for at in pairs:
        true.append(_score(model, h[at], r[at], t[at]))
        if at[1] < half:
            false.append([_score(model, x, r[at], t[at]) for x in n[:, :half].flatten(0, 2)])
        else:
            false.append([_score(model, h[at], r[at], x) for x in n[:, half:].flatten(0, 2)])
    true, false = torch.tensor(true), torch.tensor(false)
    log_sigmoid = torch.nn.functional.logsigmoid
    of_false = (false.softmax(-1) * log_sigmoid(-false - 12)).sum(-1)
    return -0.5 * float((log_sigmoid(true + 12) + of_false).sum())


def _score(model: Embeddings, h, r, t) -> float:
    if model.shape.score == "TransE":
        return -float((h + r - t).abs().sum())
    a, b, c = (torch.complex(*x.chunk(2)) for x in (h, r, t))
    return float((a * b * c.conj()).real.sum())
