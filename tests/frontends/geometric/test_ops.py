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
from tremula.base.libraries.patching import in_force
from tremula.frontends.geometric.ops import self_loops
from tremula.frontends.shared.splines import spline_basis

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
    """Neighbours in order of distance; -1 in both rows for those missing; no unused column."""
    x, batch_x = points(seed, n_x, n_examples)
    y, batch_y = points(seed + 1, n_y, n_examples)
    result = ops.knn(x, y, k, batch_x, batch_y)
    near = ops.radius(x, y, 1.5, batch_x, batch_y, max_num_neighbors=k)
    width = min(k, n_x)
    assert result.shape == near.shape == (2, n_y * width)
    for edges in (result, near):
        assert torch.equal(edges[0] == -1, edges[1] == -1)
        real = edges[edges != -1].reshape(2, -1)  # as programs read them
        targets = torch.arange(n_y).repeat_interleave(width)[edges[0] != -1]
        assert torch.equal(real[0], targets)
    rows = zip(result[1].view(n_y, width).tolist(), near[1].view(n_y, width).tolist(), strict=True)
    for (got, got_near), (order, distance) in zip(
        rows, neighbours(x, y, batch_x, batch_y), strict=True
    ):
        expected = order[:k]
        assert got == expected + [-1] * (width - len(expected))
        within = [p for p, d in zip(order, distance, strict=True) if d <= 1.5][:k]
        assert got_near == within + [-1] * (width - len(within))


@given(SEEDS, st.integers(2, 9), st.integers(1, 3), st.integers(1, 4), st.booleans())
@SETTINGS
def test_graphs_of_neighbours(seed, n, n_examples, k, loop):
    """Edges lead from neighbours to points, without the point itself unless it is requested."""
    x, batch = points(seed, n, n_examples)
    edges = ops.knn_graph(x, k, batch, loop=loop)
    near = ops.radius_graph(x, 1e3, batch, loop, max_num_neighbors=k)
    assert edges.shape == near.shape == (2, n * min(k, n))
    assert torch.equal(edges, near)
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
    assert in_force(pyg, "knn") is FUNCTIONS["knn"]
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


# -- neighbours that are missing -------------------------------------------------------------------


class OnRadius(nn.Module):
    """A layer over the neighbours within a radius."""

    def __init__(self, layer, find=None):
        super().__init__()
        self.layer, self.find = (
            layer,
            find or (lambda x, batch: pyg.radius_graph(x, 1.0, batch, max_num_neighbors=6)),
        )

    def forward(self, x, batch):
        return self.layer(x, self.find(x, batch))


def mlp(width):
    return nn.Sequential(nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, 2))


MISSING_CASES = {
    "dynamic edges, max": lambda: pyg.DynamicEdgeConv(mlp(6), k=4),
    "dynamic edges, several": lambda: pyg.DynamicEdgeConv(mlp(6), k=4, aggr=["mean", "std", "add"]),
    "gravnet": lambda: pyg.GravNetConv(3, 2, space_dimensions=2, propagate_dimensions=4, k=4),
    "gin on radius": lambda: OnRadius(pyg.GINConv(mlp(3))),
    "sage on radius": lambda: OnRadius(pyg.SAGEConv(3, 2)),
    "gcn on radius": lambda: OnRadius(pyg.GCNConv(3, 2)),
    "edges on knn": lambda: OnRadius(
        pyg.EdgeConv(mlp(6), aggr="min"), lambda x, batch: pyg.knn_graph(x, 3, batch)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISSING_CASES)
def test_missing_neighbours_send_nothing(name):
    """Graphs of one, two and five nodes: results and gradients are PyG's, which has fewer edges."""
    torch.manual_seed(0)
    model, batch = MISSING_CASES[name](), torch.tensor([0, 1, 1, 2, 2, 2, 2, 2])
    x = torch.randn(8, 3)
    expected = model(x, batch)
    torch.testing.assert_close(poptorch.inferenceModel(model)(x, batch), expected)
    (slopes,) = torch.autograd.grad(model(x, batch).square().sum(), [next(model.parameters())])

    class Squared(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x, batch):
            return poptorch.identity_loss(self.model(x, batch).square().sum(), "none")

    before = next(model.parameters()).detach().clone()
    optimizer = poptorch.optim.SGD(model.parameters(), lr=1.0)
    poptorch.trainingModel(Squared(), optimizer=optimizer)(x, batch)
    torch.testing.assert_close(before - next(model.parameters()), slopes, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dynamic edges, max", "gravnet", "gcn on radius"])
def test_missing_neighbours_on_tiles(name, monkeypatch):
    """Tiles compute what the host does."""
    monkeypatch.setenv("POPTORCH_SMALL_IPU_MODEL", "1")
    torch.manual_seed(0)
    model, batch = MISSING_CASES[name](), torch.tensor([0, 1, 1, 2, 2, 2])
    x = torch.randn(6, 3)
    result = poptorch.inferenceModel(model, poptorch.Options().useIpuModel(True))(x, batch)
    torch.testing.assert_close(result, model(x, batch), rtol=1e-4, atol=1e-5)


def test_layers_that_weigh_edges_refuse_missing_ones():
    """Attention over neighbours, and norms by degree, say where to find neighbours instead."""
    x, batch = torch.randn(4, 3), torch.tensor([0, 0, 1, 1])
    for layer in (
        pyg.GATConv(3, 2, add_self_loops=False),
        pyg.TransformerConv(3, 2),
        pyg.GCNConv(3, 2, add_self_loops=False),
    ):
        with pytest.raises(ValueError, match=f"{type(layer).__name__} weighs.*RadiusGraph"):
            poptorch.inferenceModel(OnRadius(layer))(x, batch)


def test_points_of_small_graphs_are_taken_again():
    """XConv: graphs of kernel_size points as in PyG; fewer are repeated, too few an error."""
    torch.manual_seed(0)
    layer = pyg.XConv(2, 3, dim=3, kernel_size=3, hidden_channels=2).eval()
    x, pos = torch.randn(5, 2), torch.randn(5, 3)
    result = poptorch.inferenceModel(layer)(x, pos, torch.tensor([0, 0, 0, 1, 1]))
    torch.testing.assert_close(result[:3], layer(x[:3], pos[:3]))
    near = [3, 4, 3, 4, 3, 4]  # of points 3 and 4: itself, the other, itself again
    offset = pos[near] - pos[[3, 3, 3, 4, 4, 4]]
    lifted = torch.cat([layer.mlp1(offset), x[near].view(2, 3, 2)], -1)
    turn = layer.mlp2(offset.view(2, 9))
    torch.testing.assert_close(result[3:], layer.conv(lifted.transpose(1, 2).contiguous() @ turn))
    for batch in (None, torch.tensor([0, 0])):
        with pytest.raises(ValueError, match="XConv needs 3 points"):
            layer(x[:2], pos[:2], batch)
    with pytest.raises(ValueError, match="XConv needs 3 points"):
        poptorch.inferenceModel(layer)(x[:2], pos[:2])


def test_splines_between_kernels():
    """In one dimension, degree 1, an edge's kernel is interpolated between two neighbours."""
    layer = pyg.SplineConv(2, 3, dim=1, kernel_size=5, root_weight=False, bias=False, aggr="add")
    x, pseudo = torch.randn(4, 2), torch.tensor([[0.0], [0.3], [0.9], [1.0]])
    edges = torch.stack([torch.arange(4), torch.arange(4)])
    at = pseudo[:, 0] * 4
    low = at.floor().clamp(max=3).long()
    share = (at - low)[:, None, None]
    kernel = layer.weight[low] * (1 - share) + layer.weight[low + 1] * share
    expected = torch.einsum("ei,eio->eo", x, kernel)
    torch.testing.assert_close(layer(x, edges, pseudo), expected)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_splines_sum_to_one(degree):
    """Weights of the kernels around any place, open or closed."""
    kernel_size, is_open = torch.tensor([5, 4]), torch.tensor([1, 0])
    basis, index = spline_basis(torch.rand(30, 2), kernel_size, is_open, degree)
    torch.testing.assert_close(basis.sum(1), torch.ones(30))
    assert basis.shape == (30, (degree + 1) ** 2)
    assert 0 <= int(index.min()) <= int(index.max()) < 20
    with pytest.raises(ValueError, match="degree of 1 to 3, got 4"):
        spline_basis(torch.rand(3, 2), kernel_size, is_open, 4)


def test_points_in_voxels():
    """Points share a number if they share a voxel and an example."""
    pos = torch.tensor([[0.1, 0.1], [0.4, 0.2], [0.6, 0.1], [0.1, 0.1], [1.4, 0.9]])
    batch = torch.tensor([0, 0, 0, 1, 1])
    result = pyg.voxel_grid(pos, [0.5, 1.0], batch, start=0.0, end=[1.9, 0.9])
    assert result.tolist() == [0, 0, 1, 4, 6]
    free = pyg.voxel_grid(pos, 0.5)
    assert free.tolist() == [0, 0, 1, 0, 5]


def test_greedy_matching():
    """Clusters are single nodes or pairs of neighbours; the heaviest edges win."""
    edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
    weight = torch.tensor([1.0, 1.0, 9.0, 9.0, 1.0, 1.0, 9.0, 9.0])
    assert pyg.graclus(edges, weight).tolist() == [0, 1, 1, 0]
    result = pyg.graclus(edges, num_nodes=5)
    assert result[4] == 4
    assert sorted(torch.bincount(result[:4]).tolist(), reverse=True)[:2] == [2, 2]
