"""Programs of the PopXL figures: a training step for MNIST in PopXL and in PyTorch."""

from collections.abc import Callable
from typing import Any

import numpy as np

BATCH, HIDDEN, RATE = 80, 512, 0.1


def _weights() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = ((784, HIDDEN), (HIDDEN,), (HIDDEN, 10), (10,))
    return [(rng.normal(size=shape) * 0.05).astype(np.float32) for shape in shapes]


def _batch() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    images = rng.normal(size=(BATCH, 784)).astype(np.float32)
    return images, rng.integers(0, 10, BATCH).astype(np.int32)


def mnist_step() -> Callable[[], float]:
    """A step of SGD in PopXL: the loss, explicit gradients, in-place updates."""
    import popxl
    from popxl import ops

    ir = popxl.Ir()
    with ir.main_graph:
        x_stream = popxl.h2d_stream((BATCH, 784), popxl.float32, "x")
        y_stream = popxl.h2d_stream((BATCH,), popxl.int32, "y")
        x, y = ops.host_load(x_stream), ops.host_load(y_stream)
        weights = [popxl.variable(data) for data in _weights()]

        def net(x: Any, y: Any, w0: Any, b0: Any, w1: Any, b1: Any) -> Any:  # noqa: ANN401
            hidden = ops.relu(x @ w0 + b0)
            return ops.nll_loss(ops.softmax(hidden @ w1 + b1, 1), y)

        graph = ir.create_graph(net, x, y, *weights)
        call = ops.call_with_info(graph, x, y, *weights)
        grad = popxl.transforms.autodiff(graph, grads_required=graph.inputs[2:])
        made = ops.call(grad.graph, 1.0, inputs_dict=grad.inputs_dict(call))
        for weight, gradient in zip(weights, made, strict=True):
            ops.scaled_add_(weight, gradient, b=-RATE)
        loss = popxl.d2h_stream((), popxl.float32, "loss")
        ops.host_store(loss, call.outputs[0])
    session = popxl.Session(ir, "cpu").__enter__()
    inputs = dict(zip((x_stream, y_stream), _batch(), strict=True))
    return lambda: float(session.run(inputs)[loss])


def plain_step() -> Callable[[], float]:
    """The training step in PyTorch."""
    import torch

    weights = [torch.tensor(data, requires_grad=True) for data in _weights()]
    optimizer = torch.optim.SGD(weights, RATE)
    images, labels = _batch()

    def step() -> float:
        optimizer.zero_grad()
        hidden = torch.relu(torch.from_numpy(images) @ weights[0] + weights[1])
        logits = hidden @ weights[2] + weights[3]
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long())
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def build_operations(n_layers: int = 1000) -> int:
    """Layers in one graph, one after the other; how many operations."""
    import popxl
    from popxl import ops

    ir = popxl.Ir()
    with ir.main_graph as graph:
        x = popxl.variable(np.ones((8, 64), np.float32))
        w = popxl.variable(np.ones((64, 64), np.float32))
        b = popxl.variable(np.ones(64, np.float32))
        for _ in range(n_layers):
            hidden = ops.gelu(x @ w + b)
            x = x + ops.transpose(ops.reshape(hidden, (64, 8)))
    return len(graph.ops)
