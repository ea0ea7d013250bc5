"""Streams: rings, callbacks, prefetching, and what they refuse."""

import numpy as np
import pytest

from tests.runtime.programs import ONE_THREAD, adder, loaded, new_graph, variable
from tremula import FLOAT, INT, Copy, Engine, Repeat, Sequence, errors


def test_ring_buffers_wrap():
    """Successive copies take successive chunks and start over at the end, across runs."""
    graph = new_graph()
    x = variable(graph, INT, [2], "x")
    total = variable(graph, INT, [], "total", 0)
    source = graph.add_host_to_device_fifo("in", INT, 2)
    sink = graph.add_device_to_host_fifo("out", INT, 2)
    step = Sequence(Copy(source, x), adder(graph, total, x), Copy(x, sink))
    engine = Engine(graph, Repeat(2, step), ONE_THREAD)
    received = np.zeros(4, np.int32)
    engine.connect_stream("in", np.arange(6, dtype=np.int32))
    engine.connect_stream("out", received)
    engine.load().run()
    assert received.tolist() == [0, 1, 2, 3]
    engine.run()
    assert received.tolist() == [4, 5, 0, 1]
    assert engine.read_tensor("total") == sum(range(6)) + 1
    engine.load().run()
    assert received.tolist() == [0, 1, 2, 3]
    assert engine.list_streams() == ["in", "out"]


def test_callbacks_give_and_take():
    """A callback fills each chunk in, or receives it, in program order."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    source = graph.add_host_to_device_fifo("in", FLOAT, 2)
    sink = graph.add_device_to_host_fifo("out", FLOAT, 2)
    engine = Engine(graph, Repeat(3, Sequence(Copy(source, x), Copy(x, sink))), ONE_THREAD)
    order = []

    def fill(buffer):
        order.append("fill")
        buffer[:] = len(order)

    engine.connect_stream_to_callback("in", fill)
    engine.connect_stream_to_callback("out", lambda buffer: order.append(buffer.tolist()))
    engine.load().run()
    assert order == ["fill", [1, 1], "fill", [3, 3], "fill", [5, 5]]


class Recorder:
    """A stream callback that writes down what is asked of it."""

    def __init__(self, available=True):
        self.calls, self.next, self.available = [], 0, available

    def fetch(self, buffer):
        self.calls.append("fetch")
        self._fill(buffer)

    def prefetch(self, buffer):
        self.calls.append("prefetch")
        if self.available:
            self._fill(buffer)
        return self.available

    def complete(self):
        self.calls.append("complete")

    def invalidate_prefetched(self):
        self.calls.append("invalidate")

    def _fill(self, buffer):
        buffer[:] = self.next
        self.next += 1


def prefetching_engine(recorder):
    graph = new_graph()
    x = variable(graph, INT, [1], "x")
    total = variable(graph, INT, [], "total", 0)
    source = graph.add_host_to_device_fifo("in", INT, 1)
    program = Repeat(3, Sequence(Copy(source, x), adder(graph, total, x)))
    engine = Engine(graph, program, ONE_THREAD | {"exchange.enablePrefetch": True})
    engine.connect_stream_to_callback("in", recorder)
    return engine.load()


def test_prefetch_runs_ahead():
    """After a chunk is used the next is prefetched; load invalidates what is left over."""
    recorder = Recorder()
    engine = prefetching_engine(recorder)
    engine.run()
    assert recorder.calls[:4] == ["fetch", "complete", "prefetch", "complete"]
    assert engine.read_tensor("total") == 0 + 1 + 2
    engine.load()
    assert recorder.calls[-1] == "invalidate"
    assert recorder.calls.count("fetch") == 1
    assert recorder.calls.count("complete") == 3


def test_prefetch_may_have_nothing():
    """A prefetch that returns False is followed by a fetch when the chunk is needed."""
    recorder = Recorder(available=False)
    engine = prefetching_engine(recorder)
    engine.run()
    assert engine.read_tensor("total") == 0 + 1 + 2
    assert recorder.calls.count("fetch") == 3


def test_without_the_option_nothing_is_prefetched():
    """exchange.enablePrefetch is off by default: only fetch and complete are called."""
    graph = new_graph()
    x = variable(graph, INT, [1], "x")
    source = graph.add_host_to_device_fifo("in", INT, 1)
    engine = Engine(graph, Repeat(2, Copy(source, x)), ONE_THREAD)
    recorder = Recorder()
    engine.connect_stream_to_callback("in", recorder)
    engine.load().run()
    assert recorder.calls == ["fetch", "complete"] * 2


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (
            np.zeros(4, np.float64),
            "stream 's' needs a contiguous NumPy array of float32, got float64.",
        ),
        ([1.0, 2.0], "stream 's' needs a contiguous NumPy array of float32, got list."),
        (np.zeros(5, np.float32), "moves 2 elements at a time; 5 is not a multiple of that."),
        (np.zeros(0, np.float32), "0 is not a multiple of that."),
        (np.zeros(8, np.float32)[::2], "needs a contiguous NumPy array"),
    ],
)
def test_streams_refuse_arrays_that_do_not_fit(data, text):
    """A ring buffer must be contiguous, of the stream's type, and whole chunks."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    engine = Engine(graph, Copy(graph.add_host_to_device_fifo("s", FLOAT, 2), x), ONE_THREAD)
    with pytest.raises(errors.StreamConnectionError) as caught:
        engine.connect_stream("s", data)
    assert text in str(caught.value)
    assert "try:" in str(caught.value)


def test_stream_errors_say_what_is_missing():
    """Unconnected and unknown streams, read-only sinks and uncallable callbacks are errors."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    engine = loaded(graph, Copy(x, graph.add_device_to_host_fifo("out", FLOAT, 2)))
    with pytest.raises(
        errors.StreamConnectionError, match="stream 'out' is used but not connected"
    ):
        engine.run()
    with pytest.raises(
        errors.StreamConnectionError, match=r"no stream 'uot'\.\n  try: did you mean"
    ):
        engine.connect_stream("uot", np.zeros(2, np.float32))
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(errors.StreamConnectionError, match="which is read-only"):
        engine.connect_stream("out", frozen)
    with pytest.raises(errors.StreamConnectionError, match="got int, which cannot be called"):
        engine.connect_stream_to_callback("out", 3)


def test_exceptions_of_callbacks_reach_the_caller():
    """What host code raises comes out of run unchanged, and the engine can run again."""
    graph = new_graph()
    x = variable(graph, FLOAT, [2], "x")
    engine = loaded(graph, Copy(x, graph.add_device_to_host_fifo("out", FLOAT, 2)))

    def fail(_):
        raise KeyError("mine")

    engine.connect_stream_to_callback("out", fail)
    with pytest.raises(KeyError, match="mine"):
        engine.run()
    engine.connect_stream_to_callback("out", lambda buffer: None)
    engine.run()
