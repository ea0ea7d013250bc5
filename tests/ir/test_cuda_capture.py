"""A CUDA graph is recorded as PyTorch does it, but pinned memory stays in PyTorch's cache."""

from contextlib import contextmanager

import pytest
import torch

from tremula.ir.cuda_capture import capturing

SIZE = 3 << 20  # bytes of a pinned tensor


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is called of `torch.cuda`, which may not be there."""
    result: list[str] = []

    @contextmanager
    def stream(_side_stream: object):
        result.append("side stream")
        try:
            yield
        finally:
            result.append("own stream")

    for name in ("synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda name=name: result.append(name))
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: result.append("host"), raising=False)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr("tremula.ir.cuda_capture._side_stream", lambda device: device)
    monkeypatch.setattr(torch.cuda, "stream", stream)
    return result


class Graph:
    """Stands in for a CUDA graph."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def capture_begin(self, *, capture_error_mode: str) -> None:
        self.calls.append(f"begin {capture_error_mode}")

    def capture_end(self) -> None:
        self.calls.append("end")


BEFORE = ["synchronize", "empty_cache", "side stream", "begin thread_local"]


def test_a_recording_has_a_beginning_and_an_end(calls: list[str]):
    """GPU memory is let go, pinned memory is not; the body is recorded on a separate stream."""
    with capturing(Graph(calls)):
        calls.append("body")
    assert calls == [*BEFORE, "body", "end", "own stream"]


def test_an_error_ends_the_recording(calls: list[str]):
    """It comes out, and the stream is the one from before."""
    with pytest.raises(ZeroDivisionError), capturing(Graph(calls)):
        raise ZeroDivisionError
    assert calls == [*BEFORE, "end", "own stream"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_pinned_memory_outlives_a_recording():
    """What was pinned before is given again after it, and the graph computes what was recorded."""
    x = torch.ones(8, device="cuda")
    torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
    n_before = torch.cuda.host_memory_stats()["num_host_alloc"]
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        x.mul_(2)
    pinned = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
    assert torch.cuda.host_memory_stats()["num_host_alloc"] == n_before
    del pinned
    graph.replay()
    assert x.tolist() == [2.0] * 8
