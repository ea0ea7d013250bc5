"""Data objects of PyG as arguments: their tensors in order, and objects made of others."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch

import poptorch
import poptorch_geometric as pg
from poptorch_geometric.types import PyGArgsParser
from tests.frontends.geometric.graphs import random_graphs, random_hetero

PARSER = PyGArgsParser()


def doubled(data):
    tensors = [2 * t if t.is_floating_point() else t for t in PARSER.yieldTensors(data)]
    return PARSER.reconstruct(data, iter(tensors))


def test_tensors_come_by_sorted_key():
    """Of a graph without types, and its batch; what is not a tensor is left out."""
    (graph,) = random_graphs([(3, 4)], 0)
    keys = ["edge_attr", "edge_index", "fingerprint", "is_ring", "x", "y", "z"]
    result = list(PARSER.yieldTensors(graph))
    assert all(a is graph[key] for a, key in zip(result, keys, strict=True))
    made = doubled(graph)
    assert torch.equal(made.x, 2 * graph.x)


def test_a_batch_keeps_its_counts():
    """num_graphs, num_nodes and num_edges are those of the original."""
    batch = Batch.from_data_list(random_graphs([(3, 4), (2, 5)], 0))
    made = doubled(batch)
    assert (made.num_graphs, made.num_nodes, made.num_edges) == (2, 5, 9)
    assert torch.equal(made.batch, batch.batch)
    assert type(made) is type(batch)


def test_types_of_nodes_and_edges_keep_their_stores():
    """The whole graph first, then nodes, then edges."""
    graphs = random_hetero([(2, 3, 4, 5), (1, 2, 2, 2)], 0)
    first = next(iter(PARSER.yieldTensors(graphs[0])))
    assert first is graphs[0].y
    made = doubled(graphs[0])
    assert torch.equal(made["item"].x, 2 * graphs[0]["item"].x)
    batch = Batch.from_data_list(graphs)
    made = doubled(batch)
    assert made.num_graphs == 2
    assert {kind: store.num_nodes for kind, store in made.node_items()} == {"user": 3, "item": 5}
    assert [store.num_edges for store in made.edge_stores] == [6, 7]


def test_other_objects_are_refused():
    """The text names the type."""
    with pytest.raises(ValueError, match="Unsupported data type"):
        next(PARSER.yieldTensors(object()))
    with pytest.raises(ValueError, match="Unsupported data type"):
        PARSER.reconstruct(object(), iter([]))


def test_models_take_batches():
    """A model whose argument is a batch computes with its tensors and counts."""

    class Model(nn.Module):
        def forward(self, batch):
            return batch.x.sum(1) * batch.num_graphs, batch.edge_index[0]

    loader = pg.FixedSizeDataLoader(random_graphs([(3, 4), (2, 5)], 0), batch_size=3)
    (batch,) = loader
    out, sources = poptorch.inferenceModel(Model())(batch)
    torch.testing.assert_close(out, batch.x.sum(1) * 3)
    assert torch.equal(sources.long(), batch.edge_index[0])
