"""Tutorial 5: matrix times vector with one vertex per row, the data coming and going by streams.

Usage: python tut5_matrix_vector.py [ROWS COLUMNS]
"""

import sys

import numpy as np

import tremula as tr


class DotProduct(tr.Vertex):
    a: tr.Input[tr.Vector[tr.float32]]
    b: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.float32]

    def compute(self):
        total = tr.float32(0)
        for i in range(len(self.a)):
            total += self.a[i] * self.b[i]
        self.out = total


n_rows, n_cols = (int(text) for text in sys.argv[1:3]) if len(sys.argv) > 2 else (40, 50)
device = tr.IPUModel("ipu2").create_device()
graph = tr.Graph(device)
print(f"Multiplying matrix of size {n_rows}x{n_cols} by vector of size {n_cols}")

matrix = graph.add_variable(tr.FLOAT, [n_rows, n_cols], "matrix")
vector = graph.add_variable(tr.FLOAT, [n_cols], "vector", mapping="linear")
result = graph.add_variable(tr.FLOAT, [n_rows], "result")

# Rows go to tiles in order. A row, its vertex and its result share a tile, so that only the vector
# has to travel.
multiply = graph.add_compute_set("multiply")
n_tiles = graph.target.n_tiles
for row in range(n_rows):
    tile = row * n_tiles // n_rows
    graph.set_tile_mapping(matrix[row], tile)
    graph.set_tile_mapping(result[row], tile)
    fields = {"a": matrix[row], "b": vector, "out": result[row]}
    graph.add_vertex(multiply, DotProduct, fields, tile=tile)

matrix_in = graph.add_host_to_device_fifo("matrix", tr.FLOAT, n_rows * n_cols)
vector_in = graph.add_host_to_device_fifo("vector", tr.FLOAT, n_cols)
result_out = graph.add_device_to_host_fifo("result", tr.FLOAT, n_rows)
program = tr.Sequence(
    tr.Copy(matrix_in, matrix),
    tr.Copy(vector_in, vector),
    tr.Execute(multiply),
    tr.Copy(result, result_out),
)

random = np.random.default_rng(5)
host_matrix = random.random((n_rows, n_cols), np.float32)
host_vector = random.random(n_cols, np.float32)
host_result = np.zeros(n_rows, np.float32)

engine = tr.Engine(graph, program)
engine.connect_stream("matrix", host_matrix)
engine.connect_stream("vector", host_vector)
engine.connect_stream("result", host_result)
engine.load(device).run()

# cumsum adds in the order of the codelet, so the results are equal to the last bit.
assert np.array_equal(host_result, np.cumsum(host_matrix * host_vector, axis=1)[:, -1])
print("Multiplication result OK")
