"""Columns give the batches that the plain collater gives; threads, files, neighbour lists."""

import dataclasses
import threading
import time
import weakref
from collections import Counter
from itertools import islice

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch_geometric.data import InMemoryDataset

import poptorch
import poptorch_geometric as pg
from poptorch_geometric import pyg_dataloader
from poptorch_geometric.columns import GraphColumns, with_radius_graph
from tests.frontends.geometric.graphs import SEEDS, graph_sizes, random_graphs
from tests.scripts import run_script
from tremula.base.errors import InvalidOption
from tremula.frontends.geometric.feeding.assemble import ColumnCollater
from tremula.frontends.geometric.feeding.threads import in_threads, shared_out
from tremula.frontends.geometric.fixed_size.collate import (
    CombinedBatchingCollater,
    FixedSizeCollater,
)
from tremula.frontends.geometric.loaders.poptorch import _N_IN_USE, _announce
from tremula.frontends.geometric.ops.neighbours import radius_graph
from tremula.ir.cuda_capture import capturing
from tremula.ir.host.transfer.inputs import follower

SIZES = [(3, 4), (7, 2), (1, 0), (5, 9), (4, 4), (2, 3), (6, 6), (3, 1)]


class InMemory(InMemoryDataset):
    def __init__(self, graphs):
        super().__init__()
        self.data, self.slices = self.collate(graphs)


def graphs_of(sizes, seed=0):
    graphs = random_graphs(sizes, seed)
    for graph in graphs:
        del graph.name
    return graphs


def assert_same_batch(ours, theirs):
    keys = [k for k in theirs.keys() if isinstance(theirs[k], Tensor)]  # noqa: SIM118
    assert sorted(keys) == sorted(k for k in ours.keys() if isinstance(ours[k], Tensor))  # noqa: SIM118
    for key in keys:
        assert ours[key].dtype == theirs[key].dtype, key
        assert torch.equal(ours[key], theirs[key]), key
    for count in ("num_graphs", "num_nodes", "num_edges"):
        assert getattr(ours, count) == getattr(theirs, count)


@pytest.mark.slow
@given(graph_sizes(min_graphs=2, max_graphs=8), SEEDS, st.integers(1, 2))
@settings(max_examples=40, deadline=None)
def test_columns_equal_the_plain_collater(sizes, seed, n_packs):
    """Tensor by tensor, for one pack and for several of one call."""
    sizes = [*sizes, (3, 2)]  # one graph tells attributes of nodes from those of graphs
    graphs = graphs_of(sizes, seed)
    options = pg.FixedSizeOptions(70, 90, 10, node_pad_value=3, graph_pad_value=-1)
    columns = GraphColumns.from_dataset(graphs)
    size = len(graphs) // n_packs
    chosen = list(np.random.default_rng(seed).permutation(len(graphs))[: size * n_packs])
    plain = FixedSizeCollater(options, add_masks_to_batch=True, sort_edges=True)
    combined = CombinedBatchingCollater(plain, mini_batch_size=size)
    ours = ColumnCollater(columns, options, mini_batch_size=size)(chosen)
    assert_same_batch(ours, combined([graphs[i] for i in chosen]))
    packs = [chosen[:1], chosen[1:]]
    made = ColumnCollater(columns, options).collate_packs(packs)
    parts = [plain([graphs[i] for i in pack]) for pack in packs]
    assert torch.equal(made.edge_index, torch.cat([part.edge_index for part in parts]))
    alone = ColumnCollater(columns, options, is_combined=False)(chosen[:2])
    assert_same_batch(alone, plain([graphs[i] for i in chosen[:2]]))


def test_columns_as_a_data_set():
    """Graphs come out as they went in, edges sorted; some of them; errors."""
    graphs = graphs_of(SIZES)
    columns = GraphColumns.from_dataset(graphs)
    assert len(columns) == len(graphs)
    order = graphs[3].edge_index[1].sort(stable=True).indices
    assert torch.equal(columns[3].edge_index, graphs[3].edge_index[:, order])
    assert torch.equal(columns[-1].x, graphs[-1].x)
    some = columns.take(np.array([5, 2, 5]))
    assert torch.equal(some[2].z, graphs[5].z)
    assert torch.equal(some[0].fingerprint, graphs[5].fingerprint)
    assert "x" not in columns.without(["x"])[0]
    with pytest.raises(IndexError, match="no graph 8"):
        columns[8]
    with pytest.raises(InvalidOption, match="attribute 'name' is not a dense tensor"):
        GraphColumns.from_dataset(random_graphs(SIZES, 0))
    with pytest.raises(InvalidOption, match="empty"):
        GraphColumns.from_dataset([])


def test_columns_in_a_file(tmp_path):
    """What is saved is loaded."""
    columns = GraphColumns.from_dataset(graphs_of(SIZES))
    columns.save(tmp_path / "graphs.npz")
    loaded = GraphColumns.load(tmp_path / "graphs.npz")
    for name, column in columns.columns.items():
        assert np.array_equal(loaded.columns[name].values, column.values)
        assert loaded.columns[name].level == column.level
    assert [path.name for path in tmp_path.iterdir()] == ["graphs.npz"]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", list(pg.FixedSizeStrategy))
@pytest.mark.parametrize("sorts", [False, True])
def test_loaders_use_columns(strategy, sorts):
    """An in-memory data set is fed by columns and gives what a list of graphs gives."""
    graphs = graphs_of(SIZES)
    arguments = {
        "batch_size": 4,
        "fixed_size_options": pg.FixedSizeOptions(22, 30, 4),
        "fixed_size_strategy": strategy,
        "sort_edges": sorts,
    }
    by_list = list(
        pg.FixedSizeDataLoader(graphs, options=poptorch.Options().deviceIterations(2), **arguments)
    )
    columns = GraphColumns.from_dataset(graphs, sort_edges=sorts)
    for dataset in (InMemory(graphs), columns):
        for n_threads in (0, 2):
            loader = pg.FixedSizeDataLoader(
                dataset,
                options=poptorch.Options().deviceIterations(2),
                num_threads=n_threads,
                **arguments,
            )
            assert loader._by_columns is not None
            for ours, theirs in zip(loader, by_list, strict=True):
                assert_same_batch(ours, theirs)
    plain = list(pyg_dataloader.FixedSizeDataLoader(graphs, **arguments))
    fast = pyg_dataloader.FixedSizeDataLoader(InMemory(graphs), **arguments)
    for ours, theirs in zip(fast, plain, strict=True):
        assert_same_batch(ours, theirs)


def test_errors_are_those_of_the_plain_collater():
    """Too many nodes, edges or graphs, and no place for padding; also out of threads."""
    columns = GraphColumns.from_dataset(graphs_of(SIZES))
    for sizes, chosen, text in (
        ((9, 50, 4), [0, 1], r"num_nodes=9 nodes, but the batch has 10"),
        ((19, 5, 4), [0, 1], r"num_edges=5 edges, but the batch has 6"),
        ((50, 50, 2), [0, 1, 2], r"Requested 2 graphs"),
        ((50, 50, 2), [0, 1], r"no padding graph"),
        ((10, 50, 3), [0, 1], r"at least one more node"),
    ):
        with pytest.raises(RuntimeError, match=text):
            ColumnCollater(columns, pg.FixedSizeOptions(*sizes))(chosen)
    loader = pg.FixedSizeDataLoader(
        columns, batch_size=3, fixed_size_options=pg.FixedSizeOptions(9, 50, 3)
    )
    with pytest.raises(RuntimeError, match="num_nodes=9"):
        list(loader)


def test_threads_keep_the_order():
    """Results come in the order of the work, an error where its result would have been."""
    assert list(in_threads(lambda i: 10 * i, range(20), 3)) == list(range(0, 200, 10))
    results = in_threads(lambda i: 6 // (3 - i), range(9), 2)
    assert [next(results) for _ in range(3)] == [2, 3, 6]
    with pytest.raises(ZeroDivisionError):
        next(results)


@pytest.mark.parametrize("n", [0, 1, 2, 5, 64])
def test_work_is_shared_out(n):
    """Every number is in one part, whatever there are of them; errors of a part are raised."""
    result = []
    shared_out(lambda part: result.extend(range(part.start, part.stop)), n)
    assert sorted(result) == list(range(n))
    if n:
        with pytest.raises(ZeroDivisionError):
            shared_out(lambda part: 1 // (part.start - part.start), n)


def test_what_is_ready_is_announced():
    """A result and the one after it, if that waits already; never a failure."""
    heard, made = [], threading.Event()

    def make(number):
        if number == 1:
            made.set()
        return 6 // (3 - number)

    results = in_threads(make, range(9), 1, lambda *pair: heard.append(pair))
    assert next(results) == 2
    made.wait()
    time.sleep(0.5)  # until the result is there, too
    assert list(islice(results, 2)) == [3, 6]
    assert (3, 6) in heard
    assert all(following in (3, 6) for _, following in heard)


def test_a_loader_says_which_batch_follows():
    """Each attribute of a batch, and the same of the next one."""
    loader = pg.FixedSizeDataLoader(
        GraphColumns.from_dataset(graphs_of(SIZES)), batch_size=3, num_threads=1
    )
    first, second = islice(loader, 2)
    _announce(first, second)
    assert torch.equal(follower(first.edge_index), second.edge_index)


class Requests:
    """Stands in for pinned memory: what is requested, and how much is in use at a time."""

    def __init__(self, monkeypatch):
        self.alive, self.most_alive, self.log, self._lock = (
            weakref.WeakSet(),
            0,
            [],
            threading.Lock(),
        )
        collate = ColumnCollater.collate
        monkeypatch.setattr(ColumnCollater, "_empty", lambda _, *request: self.empty(*request))

        def logged(collater, graphs, starts):
            with self._lock:
                self.log.append("collate")
            return collate(collater, graphs, starts)

        monkeypatch.setattr(ColumnCollater, "collate", logged)

    def empty(self, shape, dtype):
        made = torch.empty(shape, dtype=dtype)
        with self._lock:
            self.alive.add(made)
            self.log.append((tuple(shape), dtype))
            if "collate" not in self.log:
                self.most_alive = max(self.most_alive, len(self.alive))
        return made


@pytest.mark.parametrize("strategy", ["PadToMax", "StreamPack"])
@pytest.mark.parametrize(("n_calls", "n_pinned"), [(9, 4 + _N_IN_USE), (3, 3)])
def test_memory_is_pinned_before_the_first_batch(monkeypatch, strategy, n_calls, n_pinned):
    """That of all batches that live at a time, together, once; then batches are as ever."""
    graphs = graphs_of([(3, 4), (4, 2)] * 2 * n_calls)
    loader = pg.FixedSizeDataLoader(
        GraphColumns.from_dataset(graphs), batch_size=3, num_threads=2,
        fixed_size_options=pg.FixedSizeOptions(9, 9, 3),
        fixed_size_strategy=pg.FixedSizeStrategy[strategy],
        options=poptorch.Options().deviceIterations(2),
    )  # fmt: skip
    expected = list(loader)
    assert len(expected) == n_calls
    loader._by_columns = dataclasses.replace(loader._by_columns, pin_memory=True)
    loader._has_pinned = False  # on a GPU it has
    for n_first in (n_pinned, 0):
        requests = Requests(monkeypatch)
        for ours, theirs in zip(loader, expected, strict=True):
            assert_same_batch(ours, theirs)
        began = requests.log.index("collate")
        first = Counter(requests.log[:began])
        batches = Counter(entry for entry in requests.log[began:] if entry != "collate")
        assert requests.most_alive == first.total()
        assert {name: n_first * n for name, n in batches.items()} == {
            name: n_calls * first[name] for name in batches
        }
        monkeypatch.undo()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_an_epoch_pins_nothing_again():
    """Memory that the first batch made PyTorch pin is enough, also with a graph recorded since."""
    columns = GraphColumns.from_dataset(graphs_of(SIZES * 9))
    loader = pg.FixedSizeDataLoader(columns, batch_size=3)
    assert next(iter(loader)).x.is_pinned()
    with capturing(torch.cuda.CUDAGraph()):
        torch.ones(1, device="cuda")
    n_before = torch.cuda.host_memory_stats()["num_host_alloc"]
    for batch in loader:
        batch.x.cuda(non_blocking=True)
        torch.cuda.synchronize()
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == n_before


def test_without_a_gpu_nothing_is_pinned():
    """Loaders do not ask for pinned memory where there is no GPU."""
    loader = pg.FixedSizeDataLoader(GraphColumns.from_dataset(graphs_of(SIZES)), batch_size=3)
    assert loader._by_columns.pin_memory == torch.cuda.is_available()
    list(loader)
    assert loader._has_pinned == torch.cuda.is_available()


@pytest.mark.slow
@given(graph_sizes(min_graphs=2, least_nodes=1), SEEDS, st.sampled_from([2, 32]))
@settings(max_examples=20, deadline=None)
def test_neighbour_lists_equal_the_operation(sizes, seed, limit):
    """Edges within a radius, made once for all graphs, are those found in a batch."""
    graphs = graphs_of([*sizes, (3, 0)], seed)
    columns = with_radius_graph(GraphColumns.from_dataset(graphs), 1.5, limit, pos="x")
    for graph, made in zip(graphs, columns, strict=False):
        expected = radius_graph(graph.x, 1.5, max_num_neighbors=limit)
        expected = expected[:, expected[0] >= 0]
        assert torch.equal(made.edge_index, expected)
    with pytest.raises(InvalidOption, match="no attribute 'pos'"):
        with_radius_graph(columns, 1.0)


KILLED = """
import os, signal, torch
from torch_geometric.data import Data
import poptorch_geometric as pg

graphs = [Data(x=torch.ones(3, 1), edge_index=torch.zeros(2, 1).long()) for _ in range(200)]
batches = iter(pg.FixedSizeDataLoader(graphs, batch_size=2, num_workers=1))
next(batches)
os.kill(batches._workers[0].pid, signal.SIGKILL)
try:
    list(batches)
except Exception as error:
    print("ended:", type(error).__name__)
"""


@pytest.mark.slow
def test_a_killed_worker_ends_with_an_error(tmp_path):
    """A loader whose process is gone raises; it does not wait for ever."""
    # A separate process, because torch raises wherever the signal finds its handler.
    script = tmp_path / "script.py"
    script.write_text(KILLED, encoding="utf-8")
    code, printed = run_script(script, tmp_path, [])
    assert "ended:" in printed or code > 0
    assert "Error" in printed
