"""Steps of PopXL programs that are timed: a transformer against PopTorch's, sharded weights.

Both transformers train the same weights from the same words: four layers, then the loss over the
vocabulary by the transposed table. The gradient of the lookup itself is left out in both.
"""
# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917 - graph functions take tensors of PopXL

import time
from collections.abc import Callable

import numpy as np

BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 2, 128, 256, 4, 4, 1000
RATE = 0.1
SHAPES = {
    "qkv": (WIDTH, 3 * WIDTH), "qkv_bias": (3 * WIDTH,), "out": (WIDTH, WIDTH),
    "out_bias": (WIDTH,), "scale_1": (WIDTH,), "shift_1": (WIDTH,), "up": (WIDTH, 4 * WIDTH),
    "up_bias": (4 * WIDTH,),
    "down": (4 * WIDTH, WIDTH), "down_bias": (WIDTH,), "scale_2": (WIDTH,), "shift_2": (WIDTH,),
}  # fmt: skip


class Weights:
    """Initial weights and one batch of words, equal for both programs."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)

        def initial(name: str, shape: tuple[int, ...]) -> np.ndarray:
            if len(shape) == 1:
                return np.full(shape, float(name.startswith("scale")), np.float32)
            return random.normal(0, 0.02, shape).astype(np.float32)

        self.layers = [{n: initial(n, s) for n, s in SHAPES.items()} for _ in range(LAYERS)]
        self.table = initial("table", (WORDS, WIDTH))
        self.words = random.integers(0, WORDS, BATCH * LENGTH).astype(np.int32)
        self.labels = random.integers(0, WORDS, BATCH * LENGTH).astype(np.int32)


def popxl_step(weights: Weights) -> Callable[[], float]:
    """A training step as PopXL programs write it: one graph for all layers, called four times."""
    import popxl
    from popxl import ops

    def layer(x, qkv, qkv_bias, out, out_bias, scale_1, shift_1, up, up_bias, down, down_bias,
              scale_2, shift_2):  # fmt: skip
        q, k, v = (_heads(t) for t in ops.split(x @ qkv + qkv_bias, 3, axis=1))
        scores = (q @ k.transpose((0, 1, 3, 2))) * (WIDTH // HEADS) ** -0.5
        mixed = (ops.softmax(scores, axis=-1) @ v).transpose((0, 2, 1, 3))
        x = x + mixed.reshape((BATCH * LENGTH, WIDTH)) @ out + out_bias
        x = ops.layer_norm(x, scale_1, shift_1)
        x = x + ops.gelu(x @ up + up_bias) @ down + down_bias
        return ops.layer_norm(x, scale_2, shift_2)

    def head(x, table):
        return x @ table.T

    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        words = popxl.h2d_stream((BATCH * LENGTH,), popxl.int32)
        labels = popxl.h2d_stream((BATCH * LENGTH,), popxl.int32)
        table = popxl.variable(weights.table)
        layers = [{n: popxl.variable(a) for n, a in w.items()} for w in weights.layers]
        x = ops.gather(table, ops.host_load(words))
        graph = ir.create_graph(layer, x, *layers[0].values())
        calls = []
        for variables in layers:
            calls.append(ops.call_with_info(graph, x, *variables.values()))
            (x,) = calls[-1].outputs
        head_graph = ir.create_graph(head, x, table)
        head_call = ops.call_with_info(head_graph, x, table)
        scores = ops.softmax(head_call.outputs[0], -1)
        loss, grad = ops.nll_loss_with_softmax_grad(scores, ops.host_load(labels))
        info = popxl.transforms.autodiff(head_graph)
        grad, grad_table = ops.call(info.graph, grad, inputs_dict=info.inputs_dict(head_call))
        ops.scaled_add_(table, grad_table, b=-RATE)
        info = popxl.transforms.autodiff(graph)
        for variables, call in zip(reversed(layers), reversed(calls), strict=True):
            grad, *grads = ops.call(info.graph, grad, inputs_dict=info.inputs_dict(call))
            for variable, its_grad in zip(variables.values(), grads, strict=True):
                ops.scaled_add_(variable, its_grad, b=-RATE)
        out = popxl.d2h_stream((), popxl.float32)
        ops.host_store(out, loss)
    session = popxl.Session(ir, "cpu")

    def step() -> float:
        with session:
            return float(session.run({words: weights.words, labels: weights.labels})[out])

    return step


def _heads(t):
    split = t.reshape((BATCH, LENGTH, HEADS, WIDTH // HEADS))
    return (
        split.transpose((0, 2, 1, 3))
        if not hasattr(split, "permute")
        else split.permute(0, 2, 1, 3)
    )


def poptorch_step(weights: Weights) -> Callable[[], float]:
    """A training step of the same transformer by PopTorch."""
    import torch
    from torch.nn import functional

    import poptorch

    class Transformer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.tensor(weights.table))
            layers = [
                {n: torch.nn.Parameter(torch.tensor(a)) for n, a in w.items()}
                for w in weights.layers
            ]
            self.layers = torch.nn.ModuleList(map(torch.nn.ParameterDict, layers))

        def forward(self, words: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            x = self.table[words].detach()
            for w in self.layers:
                q, k, v = map(_heads, (x @ w["qkv"] + w["qkv_bias"]).chunk(3, 1))
                scores = (q @ k.transpose(2, 3)) * (WIDTH // HEADS) ** -0.5
                mixed = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(-1, WIDTH)
                x = x + mixed @ w["out"] + w["out_bias"]
                x = functional.layer_norm(x, (WIDTH,), w["scale_1"], w["shift_1"])
                inner = functional.gelu(x @ w["up"] + w["up_bias"], approximate="tanh")
                x = x + inner @ w["down"] + w["down_bias"]
                x = functional.layer_norm(x, (WIDTH,), w["scale_2"], w["shift_2"])
            loss = functional.cross_entropy(x @ self.table.T, labels)
            return poptorch.identity_loss(loss, "mean")

    model = Transformer()
    training = poptorch.trainingModel(
        model, optimizer=poptorch.optim.SGD(model.parameters(), lr=RATE)
    )
    words, labels = torch.tensor(weights.words).long(), torch.tensor(weights.labels).long()
    return lambda: float(training(words, labels))


def second_run_of_sharded_weights() -> tuple[float, float]:
    """(wall seconds of the second run, error of the weight) of a program with a sharded weight."""
    import popxl
    from popxl import ops

    ir, n_replicas = popxl.Ir(replication=2), 2
    start = np.arange(784 * 32, dtype=np.float32).reshape(784, 32) / 1e4
    with ir.main_graph, popxl.in_sequence():
        stream = popxl.h2d_stream((8, 784), popxl.float32)
        x = ops.host_load(stream)
        weight, shard = popxl.replica_sharded_variable(start, name="weight")
        gathered = ops.collectives.replicated_all_gather(shard)
        loss = ops.sum(ops.gelu(x @ gathered))
        grad = ops.collectives.replica_sharded_slice(gathered * 0.5)
        ops.scaled_add_(shard, grad, b=-RATE)
        out = popxl.d2h_stream((), popxl.float32)
        ops.host_store(out, loss)
    data = np.ones((n_replicas, 8, 784), np.float32)
    with popxl.Session(ir, "cpu") as session:
        session.run({stream: data})
        began = time.perf_counter()
        session.run({stream: data})
        seconds = time.perf_counter() - began
        trained = session.get_tensor_data(weight)
    return seconds, float(np.abs(trained - start * (1 - RATE / 2) ** 2).max())
