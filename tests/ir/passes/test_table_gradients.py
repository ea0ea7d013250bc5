"""Gradients of tables that are looked up and multiplied: rows are added to the product in place."""

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from tests.ir.steps import train_on_tiles, training_step
from tests.sampling import in_turn
from tremula.ir.lowering.linear import products
from tremula.ir.passes import TILE_PASSES, apply, tile_passes

MM, ADDED, LOOKUP = (
    op.default
    for op in (
        torch.ops.aten.mm,
        torch.ops.aten.index_add,
        torch.ops.aten.embedding_dense_backward,
    )
)
IDS = torch.tensor([3, 7, 3, 0])


class Words(nn.Module):
    """A table of words that is the output layer, too; some words come twice."""

    def __init__(self, n_words: int = 50, **options: object) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(n_words, 12, **options), nn.Linear(12, 12)

    def forward(self, ids):
        scores = self.scores(ids)
        return mse_loss(scores, torch.ones_like(scores))

    def scores(self, ids):
        return self.layer(self.table(ids)) @ self.table.weight.t()


class Twice(Words):
    """The table's gradient is a sum of three."""

    def scores(self, ids):
        return super().scores(ids) * self.table(ids.flip(0)).sum(1, keepdim=True)


def _nodes(model: nn.Module, passes=TILE_PASSES) -> list[object]:
    step = apply(training_step(model, IDS), passes)
    return [node for node in step.graph.nodes if node.op == "call_function"]


def test_rows_are_added_to_the_product():
    """The lookup has no gradient as large as the table; the product waits until it is needed."""
    nodes = _nodes(Words())
    (added,) = [node for node in nodes if node.target is ADDED]
    product = added.args[0]
    while product.target is not MM:
        product = product.args[0]
    assert LOOKUP not in [node.target for node in nodes]
    between = nodes[nodes.index(product) + 1 : nodes.index(added)]
    assert all(
        node.target in (torch.ops.aten.t.default, torch.ops.aten.view.default) for node in between
    )


@pytest.mark.parametrize(
    ("model", "passes"),
    [
        (Words(padding_idx=3), TILE_PASSES),
        (Words(scale_grad_by_freq=True), TILE_PASSES),
        (Words(), tile_passes(stage_of_block=(0, 1))),
    ],
    ids=["padding", "frequency", "pipeline"],
)
def test_other_sums_stay(model, passes):
    """Rows that get no gradient, or a share of it; and stages, which add up for themselves."""
    targets = [node.target for node in _nodes(model, passes)]
    assert LOOKUP in targets
    assert ADDED not in targets


@pytest.mark.parametrize("model", [Words, Twice])
@pytest.mark.parametrize(("n_words", "share"), in_turn([8, 50], [1 / 16, 1e-4]))
def test_weights_are_the_same(model, n_words, share, monkeypatch):
    """Tiles train as PyTorch does, also if the product comes in parts."""
    monkeypatch.setattr(products, "_WRITTEN_SHARE", share)
    torch.manual_seed(0)
    ours, theirs = model(n_words), model(n_words)
    theirs.load_state_dict(ours.state_dict())
    result = train_on_tiles(ours, IDS).weights
    theirs(IDS).backward()
    for weight, parameter in zip(result, theirs.parameters(), strict=True):
        wanted = parameter.detach() - 0.1 * parameter.grad
        torch.testing.assert_close(weight, wanted, rtol=1e-4, atol=1e-5)
