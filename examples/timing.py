"""Timing: a program counts its own cycles; the host reads the count as one 64-bit number."""

import numpy as np

import tremula as tr

N_ELEMS = 60_000
N_REPEATS = 1000


class Increment(tr.Vertex):
    data: tr.InOut[tr.Vector[tr.float32]]

    def compute(self):
        for i in range(len(self.data)):
            self.data[i] += 1


device = tr.IPUModel("bow").create_device()
graph = tr.Graph(device)
data = graph.add_variable(tr.FLOAT, [N_ELEMS], "data", mapping="linear")
graph.set_initial_value(data, 0.0)
graph.create_host_read("data", data)

# One vertex for each interval of the tile map: nothing travels.
increment = graph.add_compute_set("increment")
for tile, intervals in enumerate(graph.get_tile_mapping(data)):
    for interval in intervals:
        graph.add_vertex(increment, Increment, {"data": data.slice(interval)}, tile=tile)

# The counter of tile 0 is read before and after the sequence: two 32-bit words, low one first.
once = tr.Sequence(tr.Execute(increment))
often = tr.Sequence(tr.Repeat(N_REPEATS, tr.Execute(increment)))
for name, program in (("once", once), ("often", often)):
    graph.create_host_read(name, tr.cycle_count(graph, program, 0, tr.SyncType.INTERNAL))

engine = tr.Engine(graph, {"once": once, "often": often})
engine.load(device)
cycles = {}
for name in ("once", "often"):
    engine.run(name)
    cycles[name] = int(engine.read_tensor(name).view(np.uint64)[0])
    microseconds = cycles[name] / graph.target.tile_clock_hz * 1e6
    print(f"{name}: {cycles[name]} cycles, {microseconds:.2f} microseconds")

assert cycles["often"] > 100 * cycles["once"] > 0
assert np.all(engine.read_tensor("data") == N_REPEATS + 1)
print("Program complete")
