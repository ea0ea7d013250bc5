"""Tutorial 6: choose how to split a matrix-vector product with a cost model, then profile it.

    python tut6_matrix_vector_opt.py [ROWS COLUMNS] [--chip ipu1]

The planner and the graph are in tremula/garden/models/matrix_vector.py, where a benchmark uses
them, too.
"""

import argparse

import numpy as np

import tremula as tr
from tremula.garden.models.matrix_vector import build, plan

parser = argparse.ArgumentParser(description="matrix times vector, split by a cost model")
parser.add_argument("n_rows", type=int, nargs="?", default=10000)
parser.add_argument("n_cols", type=int, nargs="?", default=1000)
parser.add_argument("--chip", default="ipu2", help="ipu1, ipu2, bow, …")
args = parser.parse_args()

device = tr.IPUModel(args.chip).create_device()
print(f"Multiplying matrix of size {args.n_rows}x{args.n_cols} by vector of size {args.n_cols}")

# The planner only needs to know the machine: how many tiles and workers, how fast its exchange is.
best = plan(args.n_rows, args.n_cols, device.target)
print(f"Best split chosen: {best.n_splits}, total cost {best.cycles}")
print(f"  multiply         {best.multiply_cycles}")
print(f"  vector exchange  {best.vector_exchange_cycles}")
print(f"  reduce exchange  {best.reduce_exchange_cycles}")
print(f"  reduce           {best.reduce_cycles}")
print(f"Worst cost seen: {best.worst_cycles}")

graph = tr.Graph(device)
product = build(graph, args.n_rows, args.n_cols, best.n_splits)
matrix_in = graph.add_host_to_device_fifo("matrix", tr.FLOAT, product.matrix.n_elems)
vector_in = graph.add_host_to_device_fifo("vector", tr.FLOAT, product.vector.n_elems)
result_out = graph.add_device_to_host_fifo("result", tr.FLOAT, product.result.n_elems)
program = tr.Sequence(
    tr.Copy(matrix_in, product.matrix),
    tr.Copy(vector_in, product.vector),
    product.multiply,
    tr.Copy(product.result, result_out),
)

random = np.random.default_rng(6)
matrix = random.random((args.n_rows, args.n_cols), np.float32)
vector = random.random(args.n_cols, np.float32)
result = np.zeros(args.n_rows, np.float32)

engine = tr.Engine(graph, program)
engine.connect_stream("matrix", matrix)
engine.connect_stream("vector", vector)
engine.connect_stream("result", result)
engine.load(device).run()
engine.print_profile_summary()

# Sums of pieces round differently from one long sum: compare with a tolerance.
assert np.allclose(result, matrix.astype(np.float64) @ vector, rtol=1e-5)
print("Multiplication result OK")
