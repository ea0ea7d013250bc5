"""Recording CUDA graphs without giving pinned memory away, and timing their replays.

`torch.cuda.graph` empties two caches before it records: that of GPU memory, which the graph may
need, and that of pinned host memory, which it does not: loaders would have to pin the memory of
their batches again.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Record what the body launches instead of running it, on the current GPU.

    Other threads may use the GPU as they like meanwhile. An error of the body ends the recording.
    """
    torch.cuda.synchronize()
    if torch.compiler.config.force_cudagraph_gc:  # as `torch.cuda.graph` has it
        gc.collect()
    torch.cuda.empty_cache()
    with torch.cuda.stream(_side_stream(torch.cuda.current_device())):
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """The default stream of a GPU cannot be recorded."""
    return torch.cuda.Stream(device)


def milliseconds_of_replay(graph: torch.cuda.CUDAGraph) -> float:
    """What one replay of a graph takes on the GPU."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)
