"""The Adder program: two vertices on three tiles, with a codelet in Python and in C++.

t1, 4 × 5, lies on tiles 0 (columns 0, 1) and 1 (columns 2 … 4); t2, 4 numbers, on tile 2. Each
vertex computes z = x + sum(y) + bias:

    vertex   tile   x          y               z
    v1       0      t1[1, 1]   t1[3, 1:3]      t2[0]
    v2       1      t1[0, 3]   t1[2, 2:4]      t2[3]
"""

from pathlib import Path

import numpy as np

import tremula as tr

BIAS = 0.5


class AdderVertex(tr.Vertex):
    x: tr.Input[tr.float32]
    y: tr.Input[tr.Vector[tr.float32]]
    z: tr.Output[tr.float32]
    bias: tr.float32

    def compute(self):
        total = self.x + self.bias
        for value in self.y:
            total += value
        self.z = total


def build(graph: tr.Graph, adder: type | str) -> tr.Program:
    """The graph of the table above."""
    t1 = graph.add_variable(tr.FLOAT, [4, 5], "t1")
    t2 = graph.add_variable(tr.FLOAT, [4], "t2")

    # The compute set is verified: no vertex writes what another one reads or writes.
    compute_set = graph.add_compute_set("myComputeSet")
    v1 = graph.add_vertex(compute_set, adder)
    v2 = graph.add_vertex(compute_set, adder)

    graph.connect(v1["x"], t1[1][1])
    graph.connect(v1["y"], t1.slice([3, 1], [4, 3]).flatten())
    graph.connect(v1["z"], t2[0])
    graph.connect(v2["x"], t1[0][3])
    graph.connect(v2["y"], t1.slice([2, 2], [3, 4]).flatten())
    graph.connect(v2["z"], t2[3])
    for vertex in (v1, v2):
        graph.set_initial_value(vertex["bias"], BIAS)

    # v1 reads t1[3, 2] from tile 1, and both write to tile 2: exchange code appears by itself.
    graph.set_tile_mapping(t1.slice([0, 0], [4, 2]), 0)
    graph.set_tile_mapping(t1.slice([0, 2], [4, 5]), 1)
    graph.set_tile_mapping(t2, 2)
    graph.set_tile_mapping(v1, 0)
    graph.set_tile_mapping(v2, 1)

    graph.create_host_write("t1", t1)
    graph.create_host_read("t2", t2)
    return tr.Sequence(tr.Execute(compute_set))


def run(adder: type | str, t1: np.ndarray) -> np.ndarray:
    """t2[0] and t2[3] after the program ran on a small machine."""
    device = tr.IPUModel("bow", tiles_per_ipu=4).create_device()
    graph = tr.Graph(device)
    if isinstance(adder, str):
        graph.add_codelets(Path(__file__).with_name("adder_codelets.cpp"))
    engine = tr.Engine(graph, build(graph, adder))
    engine.load(device)
    engine.write_tensor("t1", t1)
    engine.run()
    return engine.read_tensor("t2")[[0, 3]]


t1 = np.array(
    [
        [0.3, 3.22, 44.5, 3.13, 6.49],
        [24.3, 9.2, 0.01, 0.23, 93.1],
        [0.22, 13.1, 3.2, 5.67, 55.3],
        [5.6, 99.5, 7.22, 8.66, 21.1],
    ],
    np.float32,
)
expected = [t1[1, 1] + t1[3, 1:3].sum() + BIAS, t1[0, 3] + t1[2, 2:4].sum() + BIAS]
for language, adder in (("Python", AdderVertex), ("C++", "AdderVertex")):
    result = run(adder, t1)
    print(f"{language}: t2[0] = {result[0]:.2f}, t2[3] = {result[1]:.2f}")
    assert np.allclose(result, expected, rtol=1e-6)
print("Program complete")
