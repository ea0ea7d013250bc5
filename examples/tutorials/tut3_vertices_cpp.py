"""Tutorial 3 with a C++ codelet: the file is compiled when it is added, its vertices go by name."""

from pathlib import Path

import numpy as np

import tremula as tr

device = tr.IPUModel("ipu2").create_device()
print("Using the IPU Model")
graph = tr.Graph(device)
names = graph.add_codelets(Path(__file__).with_name("tut3_codelets.cpp"))
print("Codelets:", *names)

v1 = graph.add_variable(tr.FLOAT, [4], "v1", mapping=0)
v2 = graph.add_variable(tr.FLOAT, [4], "v2")
for i in range(4):
    graph.set_tile_mapping(v2[i], i)
graph.create_host_write("v1-write", v1)
graph.create_host_read("v2-read", v2)

compute_set = graph.add_compute_set("sums")
for i in range(4):
    fields = {"inputs": v1.slice(i, 4), "out": v2[i]}
    vertex = graph.add_vertex(compute_set, "SumVertex", fields, tile=i)
    # What C++ code costs on a tile is not known from the code: say it.
    graph.set_perf_estimate(vertex, 20)

engine = tr.Engine(graph, tr.Sequence(tr.Execute(compute_set), tr.PrintTensor("v2", v2)))
engine.load(device)
values = np.array([1.0, 1.5, 2.0, 2.5], np.float32)
engine.write_tensor("v1-write", values)
print("Running program")
engine.run()

assert np.array_equal(engine.read_tensor("v2-read"), np.cumsum(values[::-1])[::-1])
print("Program complete")
