"""Operations with static shapes against brute force; what is replaced, and put back."""

import pytest
import torch
import torch_geometric.nn as pyg
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch_geometric import experimental
from torch_geometric.utils import to_dense_batch

import poptorch
from poptorch_geometric import ops
from poptorch_geometric.override import FUNCTIONS, METHODS, Overrides
from tests.frontends.geometric.graphs import SEEDS
from tremula.frontends.geometric.ops import self_loops

SETTINGS = settings(max_examples=30, deadline=None)


def points(seed, n, n_examples):
    generator = torch.Generator().manual_seed(seed)
    batch = torch.randint(n_examples, (n,), generator=generator).sort().values
    return torch.randn(n, 3, generator=generator), batch


def neighbours(x, y, batch_x, batch_y):
    """Rows of x of the same example by distance, for each row of y."""
    for point, example in zip(y, batch_y, strict=True):
        own = (batch_x == example).nonzero().flatten()
        distance = (x[own] - point).norm(dim=1)
        yield own[distance.argsort()].tolist(), distance.sort().values


@given(SEEDS, st.integers(1, 9), st.integers(1, 7), st.integers(1, 3), st.integers(1, 4))
@SETTINGS
def test_knn_and_radius_equal_brute_force(seed, n_x, n_y, n_examples, k):
    """Neighbours in order of distance, or of place within a radius; -1 for those missing."""
    x, batch_x = points(seed, n_x, n_examples)
    y, batch_y = points(seed + 1, n_y, n_examples)
    found = ops.knn(x, y, k, batch_x, batch_y)
    near = ops.radius(x, y, 1.5, batch_x, batch_y, max_num_neighbors=k)
    assert found.shape == near.shape == (2, n_y * k)
    rows = zip(found[1].view(n_y, k).tolist(), near[1].view(n_y, k).tolist(), strict=True)
    for (got, got_near), (order, distance) in zip(
        rows, neighbours(x, y, batch_x, batch_y), strict=True
    ):
        expected = order[:k]
        assert got == expected + [-1] * (k - len(expected))
        within = sorted(p for p, d in zip(order, distance, strict=True) if d <= 1.5)[:k]
        assert got_near == within + [-1] * (k - len(within))


@given(SEEDS, st.integers(2, 9), st.integers(1, 3), st.integers(1, 4), st.booleans())
@SETTINGS
def test_graphs_of_neighbours(seed, n, n_examples, k, loop):
    """Edges lead from neighbours to points, without the point itself unless it is asked for."""
    x, batch = points(seed, n, n_examples)
    edges = ops.knn_graph(x, k, batch, loop=loop)
    assert edges[1].tolist() == [i for i in range(n) for _ in range(k)]
    for i, (order, _) in enumerate(neighbours(x, x, batch, batch)):
        order = order if loop else [p for p in order if p != i]
        got = [s for s, t in edges.t().tolist() if t == i and s >= 0]
        assert got == order[:k]
    turned = ops.knn_graph(x, k, batch, loop=loop, flow="target_to_source")
    assert torch.equal(turned, edges.flip(0))


def test_interpolation_and_nearest():
    """Weighted means of the nearest points; the nearest of the same example."""
    x, pos, other = torch.arange(6.0).view(3, 2), torch.eye(3), torch.eye(3)[:2] + 0.1
    weight = 1 / ((other[:, None] - pos) ** 2).sum(-1)
    near = weight.topk(2, dim=1)
    expected = (x[near.indices] * near.values.unsqueeze(-1)).sum(1) / near.values.sum(1)[:, None]
    torch.testing.assert_close(ops.knn_interpolate(x, pos, other, k=2), expected)
    assert ops.nearest(other, pos).tolist() == [0, 1]
    with pytest.raises(ValueError, match="differ in length"):
        ops.knn(pos, pos[:, :2], 1)


@given(SEEDS, st.booleans())
@SETTINGS
def test_loops_that_are_there_count_once(seed, has_weights):
    """Static self-loops are the adjacency matrix that PyG's dynamic ones give."""
    generator = torch.Generator().manual_seed(seed)
    pairs = (torch.rand(5, 5, generator=generator) < 0.4).nonzero().t()
    weight = torch.rand(pairs.shape[1], generator=generator) + 0.1 if has_weights else None

    def matrix(edges, values):
        values = torch.ones(edges.shape[1]) if values is None else values
        return torch.zeros(5, 5).index_put_((edges[0], edges[1]), values, accumulate=True)

    from torch_geometric.utils import add_remaining_self_loops, remove_self_loops

    ours = self_loops.add_remaining_self_loops(pairs, weight, 2.0, 5)
    theirs = add_remaining_self_loops(pairs, weight, 2.0, 5)
    if has_weights:
        torch.testing.assert_close(matrix(*ours), matrix(*theirs))
    removed = self_loops.remove_self_loops(pairs, weight)
    torch.testing.assert_close(matrix(*removed), matrix(*remove_self_loops(pairs, weight)))


def test_overrides_are_put_back():
    """PyG is as before after a compilation, also one that fails."""
    before = {name: getattr(pyg, name) for name in FUNCTIONS}
    methods = {key: vars(key[0])[key[1]] for key in METHODS}
    overrides = Overrides()
    overrides.replace()
    overrides.replace()
    assert pyg.knn is FUNCTIONS["knn"]
    assert experimental.is_experimental_mode_enabled("disable_dynamic_shapes")
    overrides.restore()
    overrides.restore()
    assert {name: getattr(pyg, name) for name in FUNCTIONS} == before
    assert {key: vars(key[0])[key[1]] for key in METHODS} == methods

    class Dense(nn.Module):
        def forward(self, x, batch):
            return to_dense_batch(x, batch)

    x, batch = points(0, 6, 2)
    with pytest.raises(ValueError, match="Argument 'batch_size' needs to be set"):
        poptorch.inferenceModel(Dense())(x, batch)
    assert not experimental.is_experimental_mode_enabled("disable_dynamic_shapes")


def test_layers_that_remove_loops_say_what_to_do():
    """The error names the transform and the argument."""
    x, edges = torch.randn(3, 4), torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"AddSelfLoops.*add_self_loops=False"):
        poptorch.inferenceModel(pyg.GATConv(4, 4))(x, edges)
