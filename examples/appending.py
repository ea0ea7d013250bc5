"""Appending to a global array: vertices that remember, by their state, how often they ran.

A tile cannot write to a place computed at run time on another tile: all communication is fixed when
the program is compiled. So each value is sent to all tiles, and the one whose turn it is keeps it.
"""

import numpy as np

import tremula as tr

N_VALUES = 2000
GROWTH = np.float32(1.001)


class Grow(tr.Vertex):
    """Computes the next value."""

    value: tr.InOut[tr.float32]
    factor: tr.float32

    def compute(self):
        self.value = self.value * self.factor


class Append(tr.Vertex):
    """Stores the value if place number `n_seen` is in this tile's part of the array.

    The part is InOut, not Output: what this run does not write must keep its content.
    """

    value: tr.Input[tr.float32]
    part: tr.InOut[tr.Vector[tr.float32]]
    first: tr.int32
    n_seen: tr.int32  # state that is not constant stays from one execution to the next

    def compute(self):
        place = self.n_seen - self.first
        if place >= 0 and place < len(self.part):
            self.part[place] = self.value
        self.n_seen += 1


device = tr.IPUModel("bow", tiles_per_ipu=64).create_device()
graph = tr.Graph(device)
value = graph.add_variable(tr.FLOAT, [], "value", mapping=0)
array = graph.add_variable(tr.FLOAT, [N_VALUES], "array", mapping="linear")
graph.set_initial_value(value, 1.0)
graph.create_host_read("array", array)

grow = graph.add_compute_set("grow")
graph.add_vertex(grow, Grow, {"value": value, "factor": GROWTH}, tile=0)

append = graph.add_compute_set("append")
for tile, intervals in enumerate(graph.get_tile_mapping(array)):
    for interval in intervals:
        fields = {"value": value, "part": array.slice(interval), "first": interval.begin}
        graph.add_vertex(append, Append, {**fields, "n_seen": 0}, tile=tile)

engine = tr.Engine(graph, tr.Repeat(N_VALUES, tr.Sequence(tr.Execute(grow), tr.Execute(append))))
engine.load(device).run()

result = engine.read_tensor("array")
print(f"array[0] = {result[0]:.4f}, array[{N_VALUES - 1}] = {result[-1]:.4f}")
# cumprod rounds after each product, as the tile does.
assert np.array_equal(result, np.cumprod(np.full(N_VALUES, GROWTH)))
print("Program complete")
