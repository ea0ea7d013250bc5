"""Prefetch: the host prepares the next chunk of a stream while the device works on this one."""

import numpy as np

import tremula as tr

N_ELEMS = 8
N_REPEATS = 5


class AddOne(tr.Vertex):
    """x and y may be connected to the same tensor: they then share memory."""

    x: tr.Input[tr.Vector[tr.float32]]
    y: tr.Output[tr.Vector[tr.float32]]

    def compute(self):
        for i in range(len(self.x)):
            self.y[i] = self.x[i] + 1


class Source:
    """The callback behind the stream: chunk k holds k, k, …"""

    def __init__(self):
        self.n_chunks = 0

    def prefetch(self, buffer: np.ndarray) -> bool:
        """Fill the buffer ahead of time; False says that nothing is available yet."""
        if self.n_chunks == N_REPEATS:
            return False
        print("prefetch")
        self.fill(buffer)
        return True

    def fetch(self, buffer: np.ndarray) -> None:
        """Called when the device needs a chunk and none was prefetched: the first, at least."""
        print("fetch")
        self.fill(buffer)

    def complete(self) -> None:
        """The device has taken a chunk: its memory may be used again."""
        print("complete")

    def fill(self, buffer: np.ndarray) -> None:
        buffer[:] = self.n_chunks
        self.n_chunks += 1


device = tr.IPUModel("ipu2", tiles_per_ipu=4).create_device()
graph = tr.Graph(device)
data = graph.add_variable(tr.FLOAT, [N_ELEMS], "data", mapping=0)
compute_set = graph.add_compute_set("add one")
graph.add_vertex(compute_set, AddOne, {"x": data, "y": data}, tile=0)

in_stream = graph.add_host_to_device_fifo("in", tr.FLOAT, N_ELEMS)
out_stream = graph.add_device_to_host_fifo("out", tr.FLOAT, N_ELEMS)
body = tr.Sequence(tr.Copy(in_stream, data), tr.Execute(compute_set), tr.Copy(data, out_stream))

options = {"exchange.enablePrefetch": "true", "exchange.streamBufferOverlap": "none"}
engine = tr.Engine(graph, tr.Repeat(N_REPEATS, body), options)
result = np.zeros((N_REPEATS, N_ELEMS), np.float32)
engine.connect_stream_to_callback("in", Source())
engine.connect_stream("out", result)
engine.load(device)
print("Running")
engine.run()

print("Results:", *(f"{chunk[0]:g}" for chunk in result))
assert np.array_equal(result, np.arange(1, N_REPEATS + 1)[:, None] * np.ones(N_ELEMS))
print("Program complete")
