"""SchNet of PyG, as scripts write it: padded, on the host and on tiles, equal to plain PyG."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import SchNet, to_fixed_size

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.columns import GraphColumns, with_radius_graph
from tremula.frontends.geometric.feeding.assemble import ColumnCollater
from tremula.frontends.geometric.ops.neighbours import radius_interactions
from tremula.garden.models.molecules import SchNetOnEdges
from tremula.ir.settings import configured


def molecules(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(2, 6, (n,), generator=generator).tolist()
    return [
        Data(
            z=torch.randint(1, 9, (size,), generator=generator),
            pos=2 * torch.randn(size, 3, generator=generator),
            y=torch.randn(1, generator=generator),
        )
        for size in sizes
    ]


class TrainingModule(nn.Module):
    """The wrapper of the slides: the last graph is padding."""

    def __init__(self, batch_size):
        super().__init__()
        model = SchNet(8, 8, 1, 5, cutoff=4.0, max_num_neighbors=6)
        self.model = to_fixed_size(model, batch_size=batch_size)

    def forward(self, z, pos, batch, target):
        prediction = self.model(z, pos, batch).view(-1)[:-1]
        return prediction, functional.mse_loss(prediction, target[:-1])


def edges_within(pos, batch, cutoff):
    """All pairs of one molecule within the cutoff, found by brute force."""
    distance = (pos[:, None] - pos[None]).norm(dim=-1)
    is_near = (distance <= cutoff) & (batch[:, None] == batch[None])
    is_near.fill_diagonal_(False)
    sources, targets = is_near.nonzero().unbind(1)
    return torch.stack([sources, targets]), distance[sources, targets]


def plain_losses(model, graphs, n_graphs):
    """Training by plain PyG on unpadded batches, with edges found by brute force."""
    model.model.interaction_graph.forward = lambda pos, batch: edges_within(pos, batch, 4.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for begin in range(0, len(graphs), n_graphs):
        part = graphs[begin : begin + n_graphs]
        z, pos, y = (torch.cat([g[key] for g in part]) for key in ("z", "pos", "y"))
        batch = torch.cat([torch.full((g.num_nodes,), i) for i, g in enumerate(part)])
        out = model.model(z, pos, batch).view(-1)
        loss = functional.mse_loss(out[:n_graphs], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.mark.slow
@pytest.mark.parametrize("tiles", ["lazy", pytest.param("run", marks=pytest.mark.slow)])
def test_padded_training_equals_plain_pyg(tiles):
    """Losses of training on padded batches are those of PyG on the molecules alone."""
    graphs = molecules(12)
    torch.manual_seed(0)
    model = TrainingModule(4)
    expected = plain_losses(copy.deepcopy(model), graphs, 3)
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.All)
    loader = pg.FixedSizeDataLoader(
        graphs, 4, fixed_size_options=pg.FixedSizeOptions(20, 1, 4), options=options
    )
    with configured(tiles=tiles):
        optimizer = poptorch.optim.Adam(model.parameters(), lr=0.01)
        training = poptorch.trainingModel(model, options, optimizer)
        losses = [
            loss for data in loader
            for loss in training(data.z, data.pos, data.batch, data.y)[1].tolist()
        ]  # fmt: skip
    assert losses == pytest.approx(expected, rel=1e-4)


def test_missing_neighbours_have_no_weight():
    """Static edges within a cutoff are those found by brute force; the others are as long as it."""
    batch = torch.tensor([0] * 4 + [1] * 5 + [2])
    pos = torch.randn(10, 3, generator=torch.Generator().manual_seed(1))
    edges, length = radius_interactions(pos, batch, 1.5, 6)
    expected, distance = edges_within(pos, batch, 1.5)
    is_real = edges[0] != edges[1]
    assert set(map(tuple, edges[:, is_real].t().tolist())) == set(map(tuple, expected.t().tolist()))
    assert torch.allclose(length[is_real].sort().values, distance.sort().values)
    assert (length[~is_real] == 1.5).all()


def test_results_do_not_depend_on_packing():
    """A molecule has the same prediction in any company, padded or packed, with any padding."""
    graphs = molecules(9, seed=3)
    columns = with_radius_graph(GraphColumns.from_dataset(graphs), 4.0)
    torch.manual_seed(0)
    result = []
    for sizes, packs in (
        ((40, 150, 10), [list(range(9))]),
        ((20, 80, 5), [[3, 1, 4], [0, 5, 8], [2, 6, 7]]),
        ((14, 60, 3), [[8, 0], [1, 7], [2, 6], [3, 5], [4]]),
    ):
        torch.manual_seed(1)
        model = SchNetOnEdges(sizes[2], hidden_channels=8, num_filters=8, num_interactions=1)
        collater = ColumnCollater(columns, pg.FixedSizeOptions(*sizes), is_combined=False)
        out = torch.empty(len(graphs))
        for pack in packs:
            batch = collater(pack)
            fields = (batch.z, batch.pos, batch.edge_index, batch.batch, batch.y)
            prediction, _ = model(*fields, batch.graphs_mask)
            out[pack] = prediction[: len(pack)].detach()
        result.append(out)
    torch.testing.assert_close(result[1], result[0])
    torch.testing.assert_close(result[2], result[0])
