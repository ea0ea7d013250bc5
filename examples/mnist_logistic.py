"""Logistic regression on MNIST with four codelets of one's own: scores, softmax, gradient, update.

    python mnist_logistic.py [EPOCHS]

Tile r of 28 holds row r of each image of the batch, and the weights that meet it. So images and
weights never move: only scores (10 numbers per image and tile) and errors (10 per image) travel.

    scores    tile r: its part of each image's ten scores      pixels · weights
    softmax   one vertex per image: add the parts, softmax, minus the right answer
    gradient  tile r: errors · pixels
    update    tile r: weights -= rate * gradient
"""

import math
import sys

import numpy as np

import tremula as tr
from tremula.garden.models.datasets.mnist_subset import small_mnist

N_ROWS, N_COLS, N_CLASSES = 28, 28, 10
N_BATCH = 50
RATE = 0.2
n_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 4


class PartialScores(tr.MultiVertex):
    """The six workers of a tile share the images of the batch."""

    pixels: tr.Input[tr.VectorList[tr.float32]]  # image, column
    weights: tr.Input[tr.VectorList[tr.float32]]  # class, column
    scores: tr.Output[tr.VectorList[tr.float32]]  # image, class

    def compute(self, worker_id):
        for image in range(worker_id, len(self.pixels), self.n_workers):
            for k in range(len(self.weights)):
                total = tr.float32(0)
                for col in range(len(self.weights[k])):
                    total += self.weights[k][col] * self.pixels[image][col]
                self.scores[image][k] = total


class SoftmaxError(tr.Vertex):
    """Softmax of an image's scores minus 1 for the right class: the gradient of the loss."""

    parts: tr.Input[tr.VectorList[tr.float32]]  # tile, class
    label: tr.Input[tr.int32]
    error: tr.InOut[tr.Vector[tr.float32]]  # read as well: it holds the scores first
    is_right: tr.Output[tr.int32]

    def compute(self):
        best = 0
        for k in range(len(self.error)):
            score = tr.float32(0)
            for t in range(len(self.parts)):
                score += self.parts[t][k]
            self.error[k] = score
            if score > self.error[best]:
                best = k
        self.is_right = int(best == self.label)
        highest = self.error[best]  # the exponential of the difference cannot overflow
        total = tr.float32(0)
        for k in range(len(self.error)):
            self.error[k] = math.exp(self.error[k] - highest)
            total += self.error[k]
        for k in range(len(self.error)):
            self.error[k] = self.error[k] / total
        self.error[self.label] -= 1


class Gradient(tr.MultiVertex):
    """The workers share the columns of a tile's row of pixels."""

    pixels: tr.Input[tr.VectorList[tr.float32]]  # image, column
    errors: tr.Input[tr.VectorList[tr.float32]]  # image, class
    gradient: tr.Output[tr.VectorList[tr.float32]]  # class, column

    def compute(self, worker_id):
        for col in range(worker_id, len(self.pixels[0]), self.n_workers):
            for k in range(len(self.gradient)):
                total = tr.float32(0)
                for image in range(len(self.pixels)):
                    total += self.errors[image][k] * self.pixels[image][col]
                self.gradient[k][col] = total


class Update(tr.Vertex):
    weights: tr.InOut[tr.Vector[tr.float32]]
    gradient: tr.Input[tr.Vector[tr.float32]]
    rate: tr.float32

    def compute(self):
        for i in range(len(self.weights)):
            self.weights[i] -= self.rate * self.gradient[i]


device = tr.IPUModel("bow", tiles_per_ipu=N_ROWS).create_device()
graph = tr.Graph(device)
pixels = graph.add_variable(tr.FLOAT, [N_BATCH, N_ROWS, N_COLS], "pixels")
weights = graph.add_variable(tr.FLOAT, [N_ROWS, N_CLASSES, N_COLS], "weights")
gradient = graph.add_variable(tr.FLOAT, [N_ROWS, N_CLASSES, N_COLS], "gradient")
scores = graph.add_variable(tr.FLOAT, [N_ROWS, N_BATCH, N_CLASSES], "scores")
errors = graph.add_variable(tr.FLOAT, [N_BATCH, N_CLASSES], "errors")
labels = graph.add_variable(tr.INT, [N_BATCH], "labels")
is_right = graph.add_variable(tr.INT, [N_BATCH], "is right")
graph.set_initial_value(weights, 0.0)
graph.create_host_read("weights", weights)

forward, softmax, backward, update = (
    graph.add_compute_set(name) for name in ("scores", "softmax", "gradient", "update")
)
for tile in range(N_ROWS):
    for tensor in (pixels[:, tile], weights[tile], gradient[tile], scores[tile]):
        graph.set_tile_mapping(tensor, tile)
    mine = {"pixels": pixels[:, tile]}
    fields = {**mine, "weights": weights[tile], "scores": scores[tile]}
    graph.add_vertex(forward, PartialScores, fields, tile=tile)
    fields = {**mine, "errors": errors, "gradient": gradient[tile]}
    graph.add_vertex(backward, Gradient, fields, tile=tile)
    for k in range(N_CLASSES):
        fields = {"weights": weights[tile, k], "gradient": gradient[tile, k]}
        graph.add_vertex(update, Update, {**fields, "rate": RATE / N_BATCH}, tile=tile)
for image in range(N_BATCH):
    tile = image % N_ROWS
    for tensor in (labels, errors, is_right):
        graph.set_tile_mapping(tensor[image], tile)
    fields = {"parts": scores[:, image], "label": labels[image]}
    fields |= {"error": errors[image], "is_right": is_right[image]}
    graph.add_vertex(softmax, SoftmaxError, fields, tile=tile)

images_in = graph.add_host_to_device_fifo("images", tr.FLOAT, pixels.n_elems)
labels_in = graph.add_host_to_device_fifo("labels", tr.INT, N_BATCH)
right_out = graph.add_device_to_host_fifo("is right", tr.INT, N_BATCH)
classify = tr.Sequence(
    tr.Copy(images_in, pixels),
    tr.Copy(labels_in, labels),
    tr.Execute(forward),
    tr.Execute(softmax),
    tr.Copy(is_right, right_out),
)
learn = tr.Sequence(tr.Execute(backward), tr.Execute(update))

digits = {name: small_mnist(train=name == "train") for name in ("train", "test")}
images = {name: pixels.astype(np.float32) / 255 for name, (pixels, _) in digits.items()}
answers = {name: labels.astype(np.int32) for name, (_, labels) in digits.items()}
programs = {
    "train": tr.Repeat(len(images["train"]) // N_BATCH, tr.Sequence(classify, learn)),
    "test": tr.Repeat(len(images["test"]) // N_BATCH, classify),
}
engine = tr.Engine(graph, programs)
engine.load(device)


def run(name: str) -> float:
    """Run a program over all its images; the share that was classified rightly, in percent."""
    right = np.zeros(len(answers[name]), np.int32)
    engine.connect_stream("images", images[name])
    engine.connect_stream("labels", answers[name])
    engine.connect_stream("is right", right)
    engine.run(name)
    return 100 * right.mean()


for epoch in range(n_epochs):
    print(f"Epoch {epoch + 1}: accuracy {run('train'):.1f}% while learning")
accuracy = run("test")
print(f"Test accuracy: {accuracy:.1f}%")
report = engine.report()
print(f"Modelled: {report.total_cycles:,} cycles, {1000 * report.total_seconds:.1f} ms")

# The same in NumPy: sums in another order, so equal but for rounding.
expected = np.zeros((N_CLASSES, N_ROWS * N_COLS), np.float32)
for begin in list(range(0, len(images["train"]), N_BATCH)) * n_epochs:
    batch = images["train"][begin : begin + N_BATCH].reshape(N_BATCH, -1)
    power = np.exp(batch @ expected.T)
    error = power / power.sum(axis=1, keepdims=True)
    error[np.arange(N_BATCH), answers["train"][begin : begin + N_BATCH]] -= 1
    expected -= np.float32(RATE / N_BATCH) * (error.T @ batch)
learnt = engine.read_tensor("weights").transpose(1, 0, 2).reshape(expected.shape)
assert np.allclose(learnt, expected, rtol=1e-3, atol=1e-3)
assert accuracy >= 85
print("Program complete")
