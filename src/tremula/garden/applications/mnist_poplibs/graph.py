"""The network as a graph: a program that learns from a batch, and one that classifies."""

from dataclasses import dataclass

from tremula.base.types import FLOAT, UNSIGNED_INT
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.target import Device
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poplin, popnn, popops

N_PIXELS, N_HIDDEN, N_CLASSES, N_BATCH = 28 * 28, 32, 10, 50
RATE = 0.2


@dataclass(frozen=True)
class DenseLayer:
    weights: Tensor
    bias: Tensor


@dataclass(frozen=True)
class Network:
    """A graph, and what it does with one batch of its streams `images` and `labels`."""

    graph: Graph
    classify: Sequence
    learn: Sequence


def build(device: Device) -> Network:
    """Two layers; each weight can be read by its name from the host."""
    graph, classify = Graph(device), Sequence()
    shapes = (N_BATCH, N_PIXELS), (N_PIXELS, N_HIDDEN)
    pixels = poplin.create_mat_mul_input_lhs(graph, FLOAT, *shapes, "pixels")
    labels = graph.add_variable(UNSIGNED_INT, [N_BATCH], "labels", mapping="linear")
    first = _layer(graph, N_PIXELS, N_HIDDEN, "first")
    second = _layer(graph, N_HIDDEN, N_CLASSES, "second")
    images_in = graph.add_host_to_device_fifo("images", FLOAT, pixels.n_elems)
    labels_in = graph.add_host_to_device_fifo("labels", UNSIGNED_INT, N_BATCH)
    right_out = graph.add_device_to_host_fifo("number right", UNSIGNED_INT, 1)
    classify.add(Copy(images_in, pixels))
    classify.add(Copy(labels_in, labels))
    hidden = _through(graph, pixels, first, classify, "hidden")
    popnn.non_linearity_in_place(graph, hidden, classify, "tanh", kind="TANH")
    scores = _through(graph, hidden, second, classify, "scores")
    chances = popnn.softmax(graph, scores, classify, "softmax")
    _, errors, right = popnn.calc_loss(
        graph, chances, labels, classify, kind="CROSS_ENTROPY_LOSS", has_num_correct=True
    )
    classify.add(Copy(right.reshape([1]), right_out))
    learn = Sequence(classify)
    back = poplin.mat_mul(graph, errors, second.weights.transpose(), learn, "back")
    slopes = popnn.non_linearity_input_gradient(graph, hidden, back, learn, "slopes", kind="TANH")
    _update(graph, second, hidden, errors, learn)
    _update(graph, first, pixels, slopes, learn)
    return Network(graph, classify, learn)


def _layer(graph: Graph, n_in: int, n_out: int, name: str) -> DenseLayer:
    shapes = (N_BATCH, n_in), (n_in, n_out)
    weights = poplin.create_mat_mul_input_rhs(graph, FLOAT, *shapes, f"{name} weights")
    bias = graph.add_variable(FLOAT, [n_out], f"{name} bias", mapping="linear")
    graph.create_host_write(f"{name} weights", weights)
    graph.create_host_read(f"{name} weights", weights)
    graph.set_initial_value(bias, 0.0)
    return DenseLayer(weights, bias)


def _through(graph: Graph, x: Tensor, layer: DenseLayer, sequence: Sequence, name: str) -> Tensor:
    result = poplin.mat_mul(graph, x, layer.weights, sequence, name)
    popops.add_in_place(graph, result, layer.bias, sequence, f"{name} bias")
    return result


def _update(graph: Graph, layer: DenseLayer, x: Tensor, errors: Tensor, sequence: Sequence) -> None:
    gradient = poplin.mat_mul(graph, x.transpose(), errors, sequence, "gradient")
    popops.scaled_add_to(graph, layer.weights, gradient, -RATE / N_BATCH, sequence, "update")
    bias_gradient = popops.reduce(graph, errors, [0], "ADD", sequence, "bias gradient")
    popops.scaled_add_to(graph, layer.bias, bias_gradient, -RATE / N_BATCH, sequence, "update")
