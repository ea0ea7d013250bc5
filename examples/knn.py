"""k nearest neighbours: distances as one matrix product, top-k, then the neighbours' labels.

    python knn.py

|a - b|² = |a|² - 2 a·b + |b|², and |a|² is the same for all candidates of a query. So the nearest
ones are those with the largest 2 a·b - |b|². Digits of MNIST are classified by their five nearest
among those known.
"""

import numpy as np

import tremula as tr
from tremula.garden.models.datasets.mnist_subset import small_mnist
from tremula.poplibs import poplin, popops
from tremula.poplibs.popops.elementwise.expr import _1, _2

K, N_CLASSES, N_PIXELS = 5, 10, 28 * 28

known, classes = (column[:1000] for column in small_mnist(train=True))
queries, answers = (column[:100] for column in small_mnist(train=False))
known, queries = (i.reshape(-1, N_PIXELS).astype(np.float32) / 255 for i in (known, queries))
classes, answers = classes.astype(np.int64), answers.astype(np.int64)

device = tr.IPUModel("bow", tiles_per_ipu=64).create_device()
graph, program = tr.Graph(device), tr.Sequence()
shapes = queries.shape, (N_PIXELS, len(known))
left = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes, "queries")
right = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes, "known")
graph.create_host_write("queries", left)
graph.create_host_write("known", right)

products = poplin.mat_mul(graph, left, right, program, "products")
lengths = popops.reduce(graph, right, [0], "SQUARE_ADD", program, "lengths")
nearness = popops.map(graph, _1 + _1 - _2, [products, lengths.expand([0])], program, "nearness")
_, places = popops.top_k_with_permutation(graph, nearness, K, program, "nearest")
graph.create_host_read("places", places)

engine = tr.Engine(graph, program)
engine.load(device)
engine.write_tensor("queries", queries)
engine.write_tensor("known", known.T)
engine.run()

places = engine.read_tensor("places").astype(np.int64)
distances = ((queries[:, None] - known[None]) ** 2).sum(axis=2)
expected = np.sort(distances, axis=1)[:, :K]
nearest = np.take_along_axis(distances, places, axis=1)
assert np.allclose(np.sort(nearest, axis=1), expected, rtol=1e-4)

votes = np.apply_along_axis(np.bincount, 1, classes[places], minlength=N_CLASSES)
accuracy = 100 * np.mean(votes.argmax(axis=1) == answers)
report = engine.report()
print(f"{len(queries)} queries, {len(known)} known digits, {K} neighbours each")
print(f"accuracy {accuracy:.0f}%, {report.total_cycles:,} cycles")
assert accuracy >= 80
print("Program complete")
