"""Balanced shards: the rules, the batches, the ranks; and a step equals that of one table."""

from functools import partial

import numpy as np
import pytest
import torch

from tremula.garden.applications.sharded_embeddings.data import (
    N_RELATIONS,
    STEPS,
    Triples,
    batches,
    mean_reciprocal_rank,
    rule_graph,
)
from tremula.garden.applications.sharded_embeddings.training import ShardedTraining, small_chips
from tremula.garden.models.knowledge_graphs.model import MARGIN, ScorerSizes

N_SHARDS = 4


def tails_of(triples, n_entities):
    """[relations, entities]: the tail of each head, -1 where there is none."""
    result = np.full((N_RELATIONS, n_entities), -1)
    result[triples.relation, triples.head] = triples.tail
    return result


def test_relations_keep_the_rules():
    """Inverse ones lead back, compositions agree, and the last is symmetric."""
    train, test = rule_graph(60)
    every = Triples(*(np.concatenate([getattr(one, name) for one in (train, test)])
                      for name in ("head", "relation", "tail")))  # fmt: skip
    tail = tails_of(every, 60)
    one, back, two, seven, eight = (tail[STEPS.index(step)] for step in (1, -1, 2, 7, 8))
    assert np.array_equal(back[one], np.arange(60))
    assert np.array_equal(one[one], two)
    assert np.array_equal(seven[one], eight)
    assert np.array_equal(tail[-1][tail[-1]], np.arange(60))
    assert len(test) == len(every) // 10


def test_batches_are_balanced_and_true():
    """Each pair of shards has as many triples, and rows of shards lead back to true triples."""
    train, _ = rule_graph(60)
    batch = next(batches(train, N_SHARDS, 5, 2))
    known = set(zip(train.head.tolist(), train.relation.tolist(), train.tail.tolist(), strict=True))
    assert batch.heads.shape == batch.tails.shape == (N_SHARDS, N_SHARDS, 5)
    assert batch.negatives.shape == (N_SHARDS, N_SHARDS, N_SHARDS * 5, 2)
    for me in range(N_SHARDS):
        for other in range(N_SHARDS):
            heads = batch.heads[me, other] * N_SHARDS + me
            tails = batch.tails[other, me] * N_SHARDS + other  # what the other sends to me
            result = zip(heads, batch.relations[me, other], tails, strict=True)
            assert {tuple(map(int, one)) for one in result} <= known
    assert batch.negatives.max() < 15


def test_a_pair_of_shards_without_triples_is_named():
    """Balance is impossible then, and the message says between which."""
    lonely = Triples(np.array([0, 2]), np.array([0, 0]), np.array([2, 0]))
    with pytest.raises(ValueError, match="from shard 0 to shard 1"):
        next(batches(lonely, 2, 1, 1))
    with pytest.raises(ValueError, match="in pairs, got 7"):
        rule_graph(7)


def test_ranks_ignore_other_true_tails():
    """A tail that is true as well does not push another down; equal scores share ranks."""
    test = Triples(np.array([0, 1]), np.array([0, 0]), np.array([1, 2]))
    train = Triples(np.array([0]), np.array([0]), np.array([3]))
    scores = np.array([[0.0, 1, 0, 2], [3.0, 2, 1, 0]])
    assert mean_reciprocal_rank(scores, test, [train]) == pytest.approx((1 + 1 / 3) / 2)
    assert mean_reciprocal_rank(scores, test, []) == pytest.approx((1 / 2 + 1 / 3) / 2)
    flat = mean_reciprocal_rank(np.zeros((2, 4)), test, [])
    assert flat == pytest.approx(1 / 2.5)


def single_table_loss(score, table, links, batch):
    """The model's loss with all entities in one table: entity e is row e. Sum over triples."""
    total = torch.zeros(())
    for me in range(N_SHARDS):
        head = torch.from_numpy(batch.heads[me]).long() * N_SHARDS + me
        shard = torch.arange(N_SHARDS)[:, None]
        tail = torch.from_numpy(batch.tails[:, me]).long() * N_SHARDS + shard
        relation = torch.from_numpy(batch.relations[me]).long()
        negative = torch.from_numpy(batch.negatives[:, me]).long()
        negative = negative * N_SHARDS + torch.arange(N_SHARDS)[:, None, None]
        # [triples of mine, shards × negatives], dealt to buckets as they come
        n_triples = relation.numel()
        negative = negative.transpose(0, 1).reshape(N_SHARDS, n_triples // N_SHARDS, -1)
        half = relation.shape[1] // 2
        of_true = score_of(score, table[head], links[relation], table[tail])
        for buckets, false_side in ((slice(0, half), "head"), (slice(half, None), "tail")):
            h, r, t = table[head[:, buckets]], links[relation[:, buckets]], table[tail[:, buckets]]
            others = table[negative[:, buckets].flatten()]
            h, r, t = (x.unsqueeze(2) for x in (h, r, t))
            # A false head is compared with where the relation came from: for RotatE's distances by
            # components that is not the same number.
            triples = (t, r, others, -1) if false_side == "head" else (h, r, others, 1)
            if false_side == "head" and score != "RotatE":
                triples = others, r, t, 1
            false = score_of(score, *triples)
            weights = false.softmax(-1).detach()
            of_false = (weights * torch.nn.functional.logsigmoid(-false - MARGIN)).sum(-1)
            true = torch.nn.functional.logsigmoid(of_true[:, buckets] + MARGIN)
            total = total - 0.5 * (true + of_false).sum()
    return total


def score_of(score, h, r, t, turn=1):
    if score == "TransE":
        return -(h + r - t).abs().sum(-1)
    if score == "DistMult":
        return (h * r * t).sum(-1)
    a, c = (torch.complex(*x.chunk(2, -1)) for x in (h, t))
    if score == "ComplEx":
        return (a * torch.complex(*r.chunk(2, -1)) * c.conj()).real.sum(-1)
    angles = r.half()  # as the model has it
    moved = a * torch.complex(angles.cos().float(), turn * angles.sin().float()) - c
    return -(moved.real.abs() + moved.imag.abs()).sum(-1)


@pytest.mark.slow
@pytest.mark.parametrize("score", ["TransE", pytest.param("DistMult", marks=pytest.mark.wide),
                                   pytest.param("ComplEx", marks=pytest.mark.wide),
                                   pytest.param("RotatE", marks=pytest.mark.wide)])  # fmt: skip
def test_a_step_is_that_of_one_table(score):
    """Loss and gradients of four shards equal PyTorch's with one table; chips send as much."""
    train, _ = rule_graph(40)
    size = 4 if score in ("TransE", "DistMult") else 2
    shape = ScorerSizes(
        score=score, n_entities=40, n_relations=N_RELATIONS, size=size, n_shards=N_SHARDS
    )
    rate = 0.01
    training = ShardedTraining(shape, partial(torch.optim.SGD, lr=rate))
    entities, relations = (p.detach().clone() for p in training.embeddings.parameters())
    table = entities.transpose(0, 1).flatten(0, 1).requires_grad_()
    links = relations.clone().requires_grad_()
    batch = next(batches(train, N_SHARDS, 4, 2))
    expected = single_table_loss(score, table, links, batch)
    expected.backward()
    with small_chips():
        result = training.step(iter([batch]))
    assert result * batch.heads.size == pytest.approx(expected.item(), rel=1e-4)
    sent = training.bytes_sent()
    assert sent.min() == sent.max() > 0  # chips send equal volumes
    training.model.copyWeightsToHost()
    moved = training.embeddings.entities.detach().transpose(0, 1).flatten(0, 1)
    is_half = score == "RotatE"  # its angles
    tolerance = {"rtol": 1e-2 if is_half else 2e-3, "atol": 2e-2 if is_half else 2e-4}
    torch.testing.assert_close((table.detach() - moved) / rate, table.grad, **tolerance)
    of_links = (relations - training.embeddings.relations.detach()) / rate
    torch.testing.assert_close(of_links, links.grad, **tolerance)
