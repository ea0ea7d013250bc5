"""The skeleton of a program: one vertex per tile, with a state; three named programs."""

import numpy as np

import tremula as tr

N_ELEMS = 200_000
N_REPEATS = 10


class SkeletonVertex(tr.Vertex):
    """Adds a number to its slice, in place."""

    data: tr.InOut[tr.Vector[tr.float32]]
    how_much_to_add: tr.float32

    def compute(self):
        for i in range(len(self.data)):
            self.data[i] += self.how_much_to_add


device = tr.IPUModel("ipu2").create_device()
graph = tr.Graph(device)
n_tiles = graph.target.n_tiles
data = graph.add_variable(tr.FLOAT, [N_ELEMS], "data", mapping="linear")

# Equal slices for all tiles. They are a little off the linear map, so some elements travel; and the
# division leaves a few elements at the end without a vertex.
n_per_tile = N_ELEMS // n_tiles
add = graph.add_compute_set("add")
for tile in range(n_tiles):
    fields = {
        "data": data.slice(tile * n_per_tile, (tile + 1) * n_per_tile),
        "how_much_to_add": tile,
    }
    graph.add_vertex(add, SkeletonVertex, fields, tile=tile)

to_device = graph.add_host_to_device_fifo("to-device", tr.FLOAT, N_ELEMS)
to_host = graph.add_device_to_host_fifo("to-host", tr.FLOAT, N_ELEMS)

# Programs of one engine share the variables, whose contents stay from one run to the next.
programs = {
    "copy to device": tr.Copy(to_device, data),
    "main": tr.Repeat(N_REPEATS, tr.Execute(add)),
    "copy to host": tr.Copy(data, to_host),
}
engine = tr.Engine(graph, programs)
result = np.full(N_ELEMS, -1, np.float32)
engine.connect_stream("to-device", np.zeros(N_ELEMS, np.float32))
engine.connect_stream("to-host", result)
engine.load(device)
for name in programs:
    print(f"Running {name}")
    engine.run(name)

index = np.arange(N_ELEMS)
has_vertex = index < n_tiles * n_per_tile
print(f"{n_tiles} tiles, {n_per_tile} elements each, {np.sum(~has_vertex)} left over")
assert np.array_equal(result, np.where(has_vertex, N_REPEATS * (index // n_per_tile), 0))
print("Program complete")
