"""Fixed-size loaders: equal shapes, all graphs, both strategies, combined batches, errors."""

import pytest
import torch
from torch.utils.data import BatchSampler, SequentialSampler
from torch_geometric.data import Data, InMemoryDataset

import poptorch
import poptorch_geometric as pg
from poptorch_geometric import dataloader, pyg_dataloader
from poptorch_geometric.stream_packing_sampler import StreamPackingSampler
from tests.frontends.geometric.graphs import random_graphs, random_hetero

SIZES = [(3, 4), (7, 2), (1, 0), (5, 9), (4, 4), (2, 3), (6, 6), (3, 1)]
GRAPHS = random_graphs(SIZES, 0)
BOTH = pytest.mark.parametrize("module", [dataloader, pyg_dataloader])


def shapes(batch):
    return {key: tuple(value.shape) for key, value in batch if isinstance(value, torch.Tensor)}


@BOTH
def test_padding_to_the_largest(module):
    """All batches have one shape, hold batch_size - 1 graphs each, and together all graphs."""
    batches = list(module.FixedSizeDataLoader(GRAPHS, batch_size=5))
    assert len(batches) == 2
    assert shapes(batches[0]) == shapes(batches[1])
    assert [int(batch.graphs_mask.sum()) for batch in batches] == [4, 4]
    real = torch.cat([batch.x[batch.nodes_mask] for batch in batches])
    assert torch.equal(real, torch.cat([graph.x for graph in GRAPHS]))


@BOTH
@pytest.mark.parametrize("shuffle", [False, True])
def test_stream_packing(module, shuffle):
    """As many graphs as fit, each graph once, one shape."""
    torch.manual_seed(0)
    loader = module.FixedSizeDataLoader(
        GRAPHS,
        batch_size=5,
        shuffle=shuffle,
        fixed_size_options=pg.FixedSizeOptions(16, 20, 5),
        fixed_size_strategy=pg.FixedSizeStrategy.StreamPack,
    )
    batches = list(loader)
    assert len({str(shapes(batch)) for batch in batches}) == 1
    result = torch.cat([batch.fingerprint[batch.graphs_mask] for batch in batches])
    expected = torch.cat([graph.fingerprint for graph in GRAPHS])
    assert torch.equal(result.sort(0).values, expected.sort(0).values)
    if shuffle:
        with pytest.raises(NotImplementedError, match="cannot be determined"):
            len(loader)
    else:
        assert torch.equal(result, expected)
        assert len(loader) == len(batches)


def test_a_call_consumes_several_batches():
    """deviceIterations and accumulation join batches along the first dimension."""
    options = poptorch.Options().deviceIterations(2)
    options.Training.gradientAccumulation(2)
    (joined,) = pg.FixedSizeDataLoader(GRAPHS, batch_size=3, options=options)
    parts = list(pyg_dataloader.FixedSizeDataLoader(GRAPHS, batch_size=3))
    assert joined.edge_index.shape[0] == 8
    for key in ("x", "edge_index", "y", "graphs_mask"):
        assert torch.equal(joined[key], torch.cat([part[key] for part in parts]))
    packed = pg.FixedSizeDataLoader(
        GRAPHS,
        batch_size=3,
        options=poptorch.Options().deviceIterations(2),
        fixed_size_options=pg.FixedSizeOptions(20, 30, 3),
        fixed_size_strategy=pg.FixedSizeStrategy.StreamPack,
    )
    assert {batch.x.shape[0] for batch in packed} == {40}


def test_typed_graphs():
    """One number becomes one for each type."""
    graphs = random_hetero([(1, 2, 3, 4), (4, 3, 2, 1), (2, 2, 2, 2)], 0)
    loader = pg.FixedSizeDataLoader(
        graphs, batch_size=2, fixed_size_options=pg.FixedSizeOptions(9, 12)
    )
    for batch, graph in zip(loader, graphs, strict=True):
        assert batch["user"].x.shape == (9, 2)
        assert torch.equal(batch["item"].x[batch["item"].nodes_mask], graph["item"].x)


@pytest.mark.parametrize("strategy", list(pg.OverSizeStrategy))
def test_graphs_that_are_too_large(strategy):
    """Each strategy: an error, left out, or trimmed."""
    options = pg.FixedSizeOptions(7, 10 if strategy is pg.OverSizeStrategy.TrimNodes else 8, 2)
    packs = strategy is pg.OverSizeStrategy.Skip
    loader = pg.FixedSizeDataLoader(
        GRAPHS,
        fixed_size_options=options,
        over_size_strategy=strategy,
        fixed_size_strategy=pg.FixedSizeStrategy(int(packs)),
    )
    if strategy in (pg.OverSizeStrategy.Error, pg.OverSizeStrategy.TrimEdges):
        with pytest.raises(RuntimeError, match="num_"):
            list(loader)
    else:
        n_graphs = sum(n <= 6 and m <= 7 for n, m in SIZES) if packs else len(SIZES)
        assert [tuple(batch.x.shape) for batch in loader] == [(7, 3)] * n_graphs


def test_a_batch_sampler_of_the_user():
    """It chooses the graphs, and padding makes them one size."""
    sampler = BatchSampler(SequentialSampler(GRAPHS), 3, drop_last=False)
    loader = pg.FixedSizeDataLoader(GRAPHS, batch_size=4, batch_sampler=sampler)
    assert [int(batch.graphs_mask.sum()) for batch in loader] == [3, 3, 2]


def test_plain_loaders():
    """PyG's collate, with and without PopTorch."""
    for module in (dataloader, pyg_dataloader):
        batches = list(module.DataLoader(GRAPHS, batch_size=4, exclude_keys=["y"]))
        assert [batch.num_nodes for batch in batches] == [16, 15]
        assert "y" not in batches[0]


@BOTH
def test_sizes_as_numbers(module):
    """num_nodes and num_edges are the options of older scripts; both at once are an error."""
    loader = module.FixedSizeDataLoader(GRAPHS, batch_size=3, num_nodes=20, num_edges=30)
    assert {(b.num_nodes, b.edge_index.shape[1], b.num_graphs) for b in loader} == {(20, 30, 3)}
    for sizes in ({"num_nodes": 9, "fixed_size_options": pg.FixedSizeOptions(9)}, {"num_edges": 9}):
        with pytest.raises(ValueError, match="size of batches once"):
            module.FixedSizeDataLoader(GRAPHS, **sizes)


def test_loader_errors():
    """batch_size against num_graphs, collate_fn, a batch sampler with packing, skipping."""
    with pytest.raises(AssertionError, match=r"batch_size.*\(= 3\).*num_graphs.*\(= 2\)"):
        pg.FixedSizeDataLoader(GRAPHS, 3, fixed_size_options=pg.FixedSizeOptions(9, 9, 2))
    with pytest.raises(AssertionError, match="Cannot set `collate_fn`"):
        pg.FixedSizeDataLoader(GRAPHS, collate_fn=list)
    with pytest.raises(ValueError, match="cannot be used with a `batch_sampler`"):
        pg.FixedSizeDataLoader(
            GRAPHS,
            batch_sampler=BatchSampler(SequentialSampler(GRAPHS), 1, drop_last=False),
            fixed_size_strategy=pg.FixedSizeStrategy.StreamPack,
        )
    with pytest.raises(ValueError, match="Skip needs a strategy that packs"):
        pg.FixedSizeDataLoader(GRAPHS, over_size_strategy=pg.OverSizeStrategy.Skip)


def test_packing_nothing():
    """A data set without graphs is an error when the sampler is made."""
    with pytest.raises(ValueError, match="its length must be greater than 0"):
        StreamPackingSampler([], 3, 4, 100)


def test_stream_packing_reserves_padding():
    """Room for a node and an edge of every graph that is missing; limits are checked."""
    packs = list(StreamPackingSampler(GRAPHS, 4, 16, 16))
    assert [i for pack in packs for i in pack] == list(range(len(GRAPHS)))
    for pack in packs:
        n_missing = 4 - len(pack)
        assert sum(SIZES[i][0] for i in pack) + n_missing <= 16
        assert sum(SIZES[i][1] for i in pack) + n_missing <= 16
    with pytest.raises(RuntimeError, match=r"single sample 3 with 5 nodes and 9 edges"):
        list(StreamPackingSampler(GRAPHS, 2, 16, 8))
    skipped = list(StreamPackingSampler(GRAPHS, 2, 16, 8, allow_skip_data=True))
    assert 3 not in {i for pack in skipped for i in pack}
    for limits, text in (
        ((None,), "max_num_graphs.*None"),
        ((0,), "max_num_graphs.*at least 1"),
        ((4, 3), "max_num_nodes.*at least 4"),
        ((4, 9, 3), "max_num_edges.*at least 4"),
    ):
        with pytest.raises(ValueError, match=text):
            StreamPackingSampler(GRAPHS, *limits)
    with pytest.raises(ValueError, match="length must be greater than 0"):
        StreamPackingSampler(GRAPHS, 2, base_sampler=[])
    assert len(StreamPackingSampler(GRAPHS, 4)) == 2


@pytest.mark.parametrize("in_memory", [False, True])
def test_edges_keep_the_order_of_the_data_set(in_memory):
    """Attributes of edges come as they are in the data; sorted by target on request."""
    index = torch.tensor([[0, 0, 1, 1, 2, 3], [3, 1, 2, 0, 0, 1]])
    graphs = [
        Data(x=torch.rand(4, 1), edge_index=index, number=torch.arange(6) + 10 * i)
        for i in range(2)
    ]
    data = graphs
    if in_memory:
        data = InMemoryDataset()
        data.data, data.slices = data.collate(graphs)
    sizes = pg.FixedSizeOptions(num_nodes=9, num_edges=14, num_graphs=3)
    for loader in (dataloader.FixedSizeDataLoader, pyg_dataloader.FixedSizeDataLoader):
        batch = next(iter(loader(data, batch_size=3, fixed_size_options=sizes)))
        assert torch.equal(batch.edge_index[:, :12], torch.cat([index, index + 4], 1))
        assert batch.number[:12].tolist() == [*range(6), *range(10, 16)]
        batch = next(iter(loader(data, 3, fixed_size_options=sizes, sort_edges=True)))
        assert batch.number[:12].tolist() == [3, 4, 1, 5, 2, 0, 13, 14, 11, 15, 12, 10]


def test_loaders_are_those_of_pytorch_with_options():
    """A loader of PopTorch is one of PyG's, and keeps its arguments."""
    assert issubclass(dataloader.FixedSizeDataLoader, pyg_dataloader.FixedSizeDataLoader)
    assert issubclass(dataloader.DataLoader, pyg_dataloader.DataLoader)
    loader = dataloader.FixedSizeDataLoader(random_graphs(SIZES, 0), batch_size=3)
    assert loader.padded_batch_size == loader.fixed_size_options.num_graphs == 3
    loader = dataloader.DataLoader(random_graphs(SIZES, 0), follow_batch=["x"], exclude_keys=["y"])
    assert (loader.follow_batch, loader.exclude_keys) == (["x"], ["y"])
    assert "x_batch" in next(iter(loader))
