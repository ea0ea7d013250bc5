"""Tutorial 3: a codelet of one's own, written in Python, and a compute set that runs it."""

import numpy as np

import tremula as tr


class SumVertex(tr.Vertex):
    """Writes the sum of its input."""

    inputs: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.float32]

    def compute(self):
        total = tr.float32(0)
        for value in self.inputs:
            total += value
        self.out = total


device = tr.IPUModel("ipu2").create_device()
print("Using the IPU Model")
graph = tr.Graph(device)

v1 = graph.add_variable(tr.FLOAT, [4], "v1", mapping=0)
v2 = graph.add_variable(tr.FLOAT, [4], "v2")
for i in range(4):
    graph.set_tile_mapping(v2[i], i)
graph.create_host_write("v1-write", v1)

# Vertex i sums elements i … 3 of v1. A compute set has no order: its vertices run side by side.
compute_set = graph.add_compute_set("sums")
for i in range(4):
    vertex = graph.add_vertex(compute_set, SumVertex)
    graph.connect(vertex["inputs"], v1.slice(i, 4))
    graph.connect(vertex["out"], v2[i])
    graph.set_tile_mapping(vertex, i)
    # Without an estimate Tremula counts the operations of `compute` itself.
    graph.set_perf_estimate(vertex, 20)

program = tr.Sequence(tr.Execute(compute_set), tr.PrintTensor("v2", v2))
graph.create_host_read("v2-read", v2)

engine = tr.Engine(graph, program)
engine.load(device)
values = np.array([1.0, 1.5, 2.0, 2.5], np.float32)
engine.write_tensor("v1-write", values)
print("Running program")
engine.run()

assert np.array_equal(engine.read_tensor("v2-read"), np.cumsum(values[::-1])[::-1])
print("Program complete")
