"""Processes that start after models ran: by fork and spawn, by multiprocessing and loaders."""

import multiprocessing
import os
import threading

import numpy as np
import pytest
import torch

import poptorch
import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32

N = 512  # PyTorch uses several threads for rows of this many elements


class Total(Vertex):
    """Large enough a vertex that tables of them run on several threads."""

    row: Input[Vector[float32]]
    total: Output[float32]

    def compute(self):
        total = float32(0)
        for value in self.row:
            total += value
        self.total = total


def _engine():
    graph = tr.Graph(tr.IPUModel("ipu2", tiles_per_ipu=64).create_device())
    rows = graph.add_variable(FLOAT, [64, 4096], "rows")
    sums = graph.add_variable(FLOAT, [64], "sums", mapping="linear")
    compute_set = graph.add_compute_set("totals")
    for tile in range(64):
        graph.set_tile_mapping(rows[tile], tile)
        graph.add_vertex(compute_set, Total, {"row": rows[tile], "total": sums[tile]}, tile=tile)
    graph.create_host_write("rows", rows)
    graph.create_host_read("sums", sums)
    return tr.Engine(graph, tr.Execute(compute_set), options={"tremula.threads": "2"}).load()


def _sums(engine, k):
    engine.write_tensor("rows", np.full((64, 4096), k, np.float32))
    engine.run()
    return engine.read_tensor("sums").tolist()


def _model():
    model = torch.nn.Sequential(torch.nn.Linear(N, N), torch.nn.Tanh())
    for i, weight in enumerate(model.parameters()):
        weight.data = torch.linspace(-1, 1, weight.numel()).reshape(weight.shape) / (i + 1)
    return poptorch.inferenceModel(model)


def _output(model):
    return model(torch.linspace(-1, 1, N * N).reshape(N, N)).square().mean().item()


def _in_child(check):
    """Whether a check holds in a forked process, within a minute."""
    child = os.fork()
    if child == 0:
        timer = threading.Timer(60, os._exit, (2,))
        timer.daemon = True
        timer.start()
        os._exit(0 if check() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _by_pool(k):
    """For multiprocessing: both readings of a program in a process without history, or with."""
    return _sums(_engine(), k), _output(_model())


class Squares(torch.utils.data.Dataset):
    """A data set whose items an engine computes, in whichever process asks."""

    def __init__(self, engine):
        self._engine = engine

    def __len__(self):
        return 4

    def __getitem__(self, k):
        return torch.tensor(_sums(self._engine, k)[0])


@pytest.fixture(scope="module")
def engine():
    return _engine()


@pytest.fixture(scope="module")
def model():
    n_threads = torch.get_num_threads()
    torch.set_num_threads(2)
    yield _model()
    torch.set_num_threads(n_threads)


def test_a_forked_process_runs_what_its_parent_ran(engine, model):
    """An engine and a PopTorch model, in a child of the process that ran them, and in it."""
    expected, output = _sums(engine, 3), _output(model)
    assert _in_child(lambda: _sums(engine, 3) == expected)
    assert _in_child(lambda: _output(model) == pytest.approx(output, rel=1e-5))
    assert (_sums(engine, 3), _output(model)) == (expected, output)


def test_a_forked_process_compiles(engine, model):
    """A child compiles other programs, although its parent compiled some."""
    expected, output = _sums(engine, 2), _output(model)
    assert _in_child(lambda: _by_pool(2) == (expected, pytest.approx(output, rel=1e-5)))


def test_a_fork_during_work_of_another_thread(engine):
    """A child does not wait for what a thread of its parent was doing."""
    ends = threading.Event()

    def work():
        while not ends.is_set():
            _sums(_engine(), 1)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert all(_in_child(lambda: _sums(engine, 2) == [8192.0] * 64) for _ in range(3))
    finally:
        ends.set()
        thread.join()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(engine, model, method):
    """A pool of processes computes what this one does, after this one did."""
    expected, output = _sums(engine, 5), _output(model)
    with multiprocessing.get_context(method).Pool(1) as pool:
        sums, result = pool.apply_async(_by_pool, (5,)).get(timeout=120)
    assert sums == expected
    assert result == pytest.approx(output, rel=1e-5)


def test_workers_of_a_loader(engine):
    """Workers of PyTorch's DataLoader run an engine that ran before."""
    assert _sums(engine, 1)[0] == 4096
    loader = torch.utils.data.DataLoader(Squares(engine), num_workers=2, batch_size=2, timeout=60)
    assert torch.cat(list(loader)).tolist() == [0.0, 4096.0, 8192.0, 12288.0]
