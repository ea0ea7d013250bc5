"""A thread that traces does not see what other threads run."""

import threading

import torch
from torch import nn
from torch.fx import symbolic_trace

from tremula.ir.host.compile_isolation import isolate_compiling_thread


class Slow(nn.Module):
    """A module whose tracing waits for an event."""

    def __init__(self, began: threading.Event, may_end: threading.Event):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self._events = (began, may_end)

    def forward(self, x):
        began, may_end = self._events
        began.set()
        may_end.wait(10)
        return self.inner(x)


def test_modules_run_while_another_thread_traces():
    """The main thread's module computes while another thread traces its module."""
    began, may_end = threading.Event(), threading.Event()
    traced = []

    def trace():
        with isolate_compiling_thread():
            traced.append(symbolic_trace(Slow(began, may_end)))

    thread = threading.Thread(target=trace)
    thread.start()
    assert began.wait(10)
    mine, x = nn.Linear(2, 2), torch.ones(1, 2)
    result = mine(x)
    may_end.set()
    thread.join()
    torch.testing.assert_close(result, x @ mine.weight.t() + mine.bias)
    assert [node.op for node in traced[0].graph.nodes] == ["placeholder", "call_module", "output"]


def test_nothing_stays_replaced():
    """After the last compiling thread, tracing and generators are as before."""
    before = (torch.random.set_rng_state, torch.cuda.set_rng_state)
    with isolate_compiling_thread():
        assert torch.random.set_rng_state is not before[0]
    assert (torch.random.set_rng_state, torch.cuda.set_rng_state) == before
    assert len(symbolic_trace(nn.Sequential(nn.ReLU())).graph.nodes) == 3
