"""Logistic regression on MNIST with PopLibs: products, bias, softmax, loss, gradient descent.

    python mnist_popnn.py [EPOCHS]

The model is small, so four tiles are enough. One program learns from one batch; Repeat runs it
over all batches of an epoch without coming back to the host.
"""

import sys

import numpy as np

import tremula as tr
from tremula.garden.models.datasets.mnist_subset import small_mnist
from tremula.poplibs import poplin, popnn, popops

N_PIXELS, N_CLASSES, N_BATCH = 28 * 28, 10, 50
RATE = 0.2
n_epochs = int(sys.argv[1]) if len(sys.argv) > 1 else 4

device = tr.IPUModel("ipu2", tiles_per_ipu=4).create_device()
print("Using the IPU Model")
graph = tr.Graph(device)

shapes = (N_BATCH, N_PIXELS), (N_PIXELS, N_CLASSES)
pixels = poplin.create_mat_mul_input_lhs(graph, tr.FLOAT, *shapes, "pixels")
weights = poplin.create_mat_mul_input_rhs(graph, tr.FLOAT, *shapes, "weights")
bias = graph.add_variable(tr.FLOAT, [N_CLASSES], "bias", mapping="linear")
labels = graph.add_variable(tr.UNSIGNED_INT, [N_BATCH], "labels", mapping="linear")
n_right = graph.add_variable(tr.UNSIGNED_INT, [], "number right", mapping=0)
for parameter in (weights, bias):
    graph.set_initial_value(parameter, 0.0)
graph.create_host_read("weights", weights)
graph.create_host_read("bias", bias)

images_in = graph.add_host_to_device_fifo("images", tr.FLOAT, pixels.n_elems)
labels_in = graph.add_host_to_device_fifo("labels", tr.UNSIGNED_INT, N_BATCH)
right_out = graph.add_device_to_host_fifo("number right", tr.UNSIGNED_INT, 1)

classify = tr.Sequence(tr.Copy(images_in, pixels), tr.Copy(labels_in, labels))
scores = poplin.mat_mul(graph, pixels, weights, classify, "scores")
popops.add_in_place(graph, scores, bias, classify, "bias")
chances = popnn.softmax(graph, scores, classify, "softmax")
loss, errors, right = popnn.calc_loss(
    graph, chances, labels, classify, kind="CROSS_ENTROPY_LOSS", has_num_correct=True
)
classify.add(tr.Copy(right.reshape([1]), n_right.reshape([1])))
classify.add(tr.Copy(n_right.reshape([1]), right_out))

learn = tr.Sequence()
gradient = poplin.mat_mul(graph, pixels.transpose(), errors, learn, "gradient")
popops.scaled_add_to(graph, weights, gradient, -RATE / N_BATCH, learn, "update")
bias_gradient = popops.reduce(graph, errors, [0], "ADD", learn, "bias gradient")
popops.scaled_add_to(graph, bias, bias_gradient, -RATE / N_BATCH, learn, "update")

digits = {name: small_mnist(train=name == "train") for name in ("train", "test")}
images = {
    name: pixels.reshape(-1, N_PIXELS).astype(np.float32) / 255
    for name, (pixels, _) in digits.items()
}
answers = {name: labels.astype(np.uint32) for name, (_, labels) in digits.items()}
programs = {
    "train": tr.Repeat(len(images["train"]) // N_BATCH, tr.Sequence(classify, learn)),
    "test": tr.Repeat(len(images["test"]) // N_BATCH, classify),
}
engine = tr.Engine(graph, programs)
engine.load(device)


def run(name: str) -> float:
    """Run a program over all its images; the share that was classified rightly, in percent."""
    counts = np.zeros(len(answers[name]) // N_BATCH, np.uint32)
    engine.connect_stream("images", images[name])
    engine.connect_stream("labels", answers[name])
    engine.connect_stream("number right", counts)
    engine.run(name)
    return 100 * counts.sum() / len(answers[name])


for epoch in range(n_epochs):
    print(f"Epoch {epoch + 1} (100%), accuracy {run('train'):.1f}%")
accuracy = run("test")
print(f"Test accuracy: {accuracy:.1f}%")
report = engine.report()
print(f"Modelled: {report.total_cycles:,} cycles, {1000 * report.total_seconds:.1f} ms")

# The same in NumPy: sums in another order, so equal but for rounding.
expected, offset = np.zeros((N_PIXELS, N_CLASSES), np.float32), np.zeros(N_CLASSES, np.float32)
for begin in list(range(0, len(images["train"]), N_BATCH)) * n_epochs:
    batch = images["train"][begin : begin + N_BATCH]
    power = np.exp(batch @ expected + offset)
    error = power / power.sum(axis=1, keepdims=True)
    error[np.arange(N_BATCH), answers["train"][begin : begin + N_BATCH]] -= 1
    expected -= np.float32(RATE / N_BATCH) * (batch.T @ error)
    offset -= np.float32(RATE / N_BATCH) * error.sum(axis=0)
assert np.allclose(engine.read_tensor("weights"), expected, rtol=1e-3, atol=1e-3)
assert np.allclose(engine.read_tensor("bias"), offset, rtol=1e-3, atol=1e-3)
assert accuracy >= 85
print("Program complete")
