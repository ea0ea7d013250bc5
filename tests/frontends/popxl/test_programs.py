"""Programs as guides and tutorials write them, trained and compared with PyTorch."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import popxl
import popxl.ops as ops
import popxl.transforms as transforms

N_IN, N_HIDDEN, N_OUT, N_BATCH, RATE = 6, 4, 3, 5, 0.5
rng = np.random.default_rng(3)
WEIGHTS = [
    rng.normal(0, 0.5, shape).astype(np.float32)
    for shape in ((N_IN, N_HIDDEN), (N_HIDDEN,), (N_HIDDEN, N_OUT), (N_OUT,))
]
DATA = rng.normal(size=(8, N_BATCH, N_IN)).astype(np.float32)
LABELS = rng.integers(0, N_OUT, (8, N_BATCH)).astype(np.int32)


class Linear(popxl.Module):
    """A layer whose weights are inputs of its graph."""

    def __init__(self) -> None:
        self.W: popxl.Tensor | None = None
        self.b: popxl.Tensor | None = None

    def build(self, x: popxl.Tensor, out_features: int, bias: bool = True) -> popxl.Tensor:
        self.W = popxl.graph_input((x.shape[-1], out_features), popxl.float32, "W")
        y = x @ self.W
        if bias:
            self.b = popxl.graph_input((out_features,), popxl.float32, "b")
            y = y + self.b
        return ops.gelu(y)


def expected(make_optimiser, batches, n_together=1):
    """Weights and losses after steps of PyTorch, each on some batches together."""
    w = [torch.tensor(a, requires_grad=True) for a in WEIGHTS]
    optimiser, losses = make_optimiser(w), []
    for i, batch in enumerate(batches):
        h = functional.gelu(torch.tensor(DATA[batch]) @ w[0] + w[1], approximate="tanh")
        y = functional.gelu(h @ w[2] + w[3], approximate="tanh")
        loss = functional.cross_entropy(y, torch.tensor(LABELS[batch]).long())
        (loss / n_together).backward()
        losses.append(loss.item())
        if (i + 1) % n_together == 0:
            optimiser.step()
            optimiser.zero_grad()
    return [t.detach().numpy() for t in w], losses


def sgd(w):
    return torch.optim.SGD(w, RATE)


def loaded_batch():
    images = popxl.h2d_stream([N_BATCH, N_IN], popxl.float32, name="images")
    labels = popxl.h2d_stream([N_BATCH], popxl.int32, name="labels")
    return (images, labels), ops.host_load(images, "x"), ops.host_load(labels, "labels")


def forward(ir, x, w):
    """Two called layers; the calls, and the modules that hold the graphs' inputs."""
    layers, calls = [Linear(), Linear()], []
    for layer, weight, bias, n in zip(layers, w[::2], w[1::2], (N_HIDDEN, N_OUT), strict=True):
        graph = ir.create_graph(layer, x, out_features=n)
        inputs = {layer.W: weight, layer.b: bias}
        calls.append(ops.call_with_info(graph, x, inputs_dict=inputs))
        x = calls[-1].outputs[0]
    return layers, calls


def gradients(layers, calls, labels):
    """The loss, and gradients of all weights, by gradient graphs of the layers."""
    probabilities = ops.softmax(calls[1].outputs[0], axis=-1)
    loss, grad = ops.nll_loss_with_softmax_grad(probabilities, labels)
    info = transforms.autodiff(calls[1].called_graph)
    made = ops.call_with_info(info.graph, grad, inputs_dict=info.inputs_dict(calls[1]))
    by = info.fwd_parent_ins_to_grad_parent_outs(calls[1], made)
    second = [by[calls[1].graph_to_parent(t)] for t in (layers[1].W, layers[1].b)]
    required = [layers[0].W, layers[0].b]
    info = transforms.autodiff(calls[0].called_graph, grads_required=required)
    grad = by[calls[0].outputs[0]]
    first = ops.call(info.graph, grad, inputs_dict=info.inputs_dict(calls[0]))
    return loss, [*first, *second]


def stored(t, name=None):
    stream = popxl.d2h_stream(t.shape, t.dtype, name=name)
    ops.host_store(stream, t)
    return stream


def check(session, variables, weights):
    for variable, weight in zip(variables, weights, strict=True):
        np.testing.assert_allclose(session.get_tensor_data(variable), weight, 1e-4, 1e-5)


def test_training_and_then_testing():
    """A program that trains, and another that gets its weights, outside of its context."""
    ir = popxl.Ir()
    ir.num_host_transfers = 1
    with ir.main_graph, popxl.in_sequence():
        streams, x, labels = loaded_batch()
        w = [popxl.variable(a, name=f"w{i}") for i, a in enumerate(WEIGHTS)]
        layers, calls = forward(ir, x, w)
        loss, grads = gradients(layers, calls, labels)
        for variable, grad in zip(w, grads, strict=True):
            ops.scaled_add_(variable, grad, b=-RATE)
        out = stored(loss)
    weights, losses = expected(sgd, range(3))
    with popxl.Session(ir, "cpu") as session:
        for i in range(3):
            inputs = dict(zip(streams, (DATA[i], LABELS[i]), strict=True))
            np.testing.assert_allclose(session.run(inputs)[out], losses[i], 1e-4)
    check(session, w, weights)

    other = popxl.Ir()
    with other.main_graph:
        stream = popxl.h2d_stream((N_BATCH, N_IN), popxl.float32)
        tested = [popxl.variable(np.zeros_like(a), name=f"w{i}") for i, a in enumerate(WEIGHTS)]
        _, calls = forward(other, ops.host_load(stream), tested)
        out = stored(calls[-1].outputs[0])
    trained = session.get_tensors_data(w)
    by_name = {v.name: value for v, value in trained.items()}
    second = popxl.Session(other, "cpu")
    second.write_variables_data({v: by_name[v.name] for v in tested})
    with second:
        result = second.run({stream: torch.tensor(DATA[0])})[out]
    h = functional.gelu(torch.tensor(DATA[0] @ weights[0] + weights[1]), approximate="tanh")
    y = functional.gelu(h @ torch.tensor(weights[2]) + torch.tensor(weights[3]), approximate="tanh")
    np.testing.assert_allclose(result, y.numpy(), 1e-4, 1e-5)


def test_sharded_weights():
    """Weights in shards, one on the chips, one in a plain remote buffer, updated shard by shard."""
    ir = popxl.Ir()
    ir.replication_factor = n = 2
    with ir.main_graph, popxl.in_sequence():
        streams, x, labels = loaded_batch()
        whole0, shard0 = popxl.replica_sharded_variable(WEIGHTS[0], popxl.float32, name="W0")
        buffer = popxl.remote_buffer((WEIGHTS[2].size // n,), popxl.float32, entries=n)
        whole1 = popxl.remote_replica_sharded_variable(WEIGHTS[2], buffer, 0)
        shard1 = ops.remote_load(buffer, 0)
        gather = ops.collectives.replicated_all_gather
        b0, b1 = popxl.variable(WEIGHTS[1]), popxl.variable(WEIGHTS[3])
        layers, calls = forward(ir, x, [gather(shard0), b0, gather(shard1), b1])
        _, grads = gradients(layers, calls, labels)
        for shard, grad in ((shard0, grads[0]), (shard1, grads[2])):
            mean = ops.collectives.replicated_reduce_scatter(grad, "mean", None, True)
            ops.scaled_add_(shard, mean, b=-RATE)
        ops.remote_store(buffer, 0, shard1)
        for bias, grad in ((b0, grads[1]), (b1, grads[3])):
            ops.scaled_add_(bias, ops.collectives.replicated_all_reduce(grad, "mean"), b=-RATE)
    weights, _ = expected(sgd, range(8), n)
    with popxl.Session(ir, "cpu") as session:
        for i in range(0, 8, n):
            session.run(dict(zip(streams, (DATA[i : i + n], LABELS[i : i + n]), strict=True)))
    check(session, [whole0, b0, whole1, b1], weights)


class Adam(popxl.Module):
    """An optimiser's step for one variable, with its states as inputs by reference."""

    @popxl.in_sequence()
    def build(
        self, var: popxl.TensorByRef, grad: popxl.Tensor, *, lr: float, beta1=0.9, beta2=0.999
    ) -> None:
        self.state = [
            popxl.graph_input(shape, popxl.float32, name, by_ref=True)
            for name, shape in (("m", var.shape), ("v", var.shape), ("step", ()))
        ]
        m, v, step = self.state
        ops.var_updates.accumulate_moving_average_(m, grad, f=beta1)
        ops.var_updates.accumulate_moving_average_square_(v, grad, f=beta2)
        updater = ops.var_updates.adam_updater(
            m, v, weight=var, weight_decay=0.0, time_step=step, beta1=beta1, beta2=beta2,
            epsilon=1e-8,
        )  # fmt: skip
        ops.scaled_add_(var, updater, b=-lr)


def test_an_optimiser_in_python():
    """Adam as a module, called for each variable, is PyTorch's."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        streams, x, labels = loaded_batch()
        w = [popxl.variable(a) for a in WEIGHTS]
        layers, calls = forward(ir, x, w)
        _, grads = gradients(layers, calls, labels)
        for variable, grad in zip(w, grads, strict=True):
            adam = Adam()
            graph = ir.create_graph(adam, variable, grad, lr=0.1)
            states = [popxl.variable(np.zeros(t.shape), popxl.float32) for t in adam.state]
            inputs = dict(zip(adam.state, states, strict=True))
            ops.call(graph, variable, grad, inputs_dict=inputs)
    weights, _ = expected(lambda w: torch.optim.Adam(w, 0.1), range(4))
    with popxl.Session(ir, "cpu") as session:
        for i in range(4):
            session.run(dict(zip(streams, (DATA[i], LABELS[i]), strict=True)))
    check(session, w, weights)


@pytest.mark.parametrize("n_replicas", [1, 2])
def test_gradient_accumulation_in_a_loop(n_replicas):
    """A loop that loads, computes and adds to accumulators by reference, then an update."""
    n_rounds = 4 // n_replicas
    ir = popxl.Ir(n_replicas)
    ir.num_host_transfers = n_rounds
    with ir.main_graph, popxl.in_sequence():
        w = [popxl.variable(a) for a in WEIGHTS]
        sums = [popxl.variable(np.zeros_like(a)) for a in WEIGHTS]
        images = popxl.h2d_stream((N_BATCH, N_IN), popxl.float32)
        labels = popxl.h2d_stream((N_BATCH,), popxl.int32)
        losses = popxl.d2h_stream((), popxl.float32)

        @popxl.in_sequence()
        def step(ws: list[popxl.Tensor], sums: list[popxl.TensorByRef]) -> None:
            layers, calls = forward(ir, ops.host_load(images), ws)
            loss, grads = gradients(layers, calls, ops.host_load(labels))
            ops.host_store(losses, loss)
            for total, grad in zip(sums, grads, strict=True):
                ops.var_updates.accumulate_(total, grad)

        ops.repeat(ir.create_graph(step, w, sums), n_rounds, w, sums)
        for variable, total in zip(w, sums, strict=True):
            grad = (
                ops.collectives.replicated_all_reduce_(total, "mean") if n_replicas > 1 else total
            )
            ops.scaled_add_(variable, grad, b=-RATE / n_rounds)
            ops.var_updates.accumulator_zero_(total)
    weights, expected_losses = expected(sgd, range(8), 4)
    shape = (n_rounds, n_replicas) if n_replicas > 1 else (n_rounds,)
    with popxl.Session(ir, "cpu") as session:
        result = []
        for part in (slice(0, 4), slice(4, 8)):
            arrays = [a[part].reshape(*shape, *a.shape[1:]) for a in (DATA, LABELS)]
            result.append(session.run(dict(zip((images, labels), arrays, strict=True)))[losses])
    np.testing.assert_allclose(np.ravel(result), expected_losses, 1e-4)
    check(session, w, weights)


def test_layers_on_several_chips():
    """Activations and gradients are copied between the chips of two layers."""
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        streams, x, labels = loaded_batch()
        w = [popxl.variable(a) for a in WEIGHTS]
        first, second = Linear(), Linear()
        with popxl.ipu(0):
            graph0 = ir.create_graph(first, x, out_features=N_HIDDEN)
            call0 = ops.call_with_info(graph0, x, inputs_dict={first.W: w[0], first.b: w[1]})
            h = call0.outputs[0].copy_to_ipu(1)
            labels = labels.copy_to_ipu(1)
        with popxl.ipu(1):
            graph1 = ir.create_graph(second, h, out_features=N_OUT)
            call1 = ops.call_with_info(graph1, h, inputs_dict={second.W: w[2], second.b: w[3]})
            probabilities = ops.softmax(call1.outputs[0], -1)
            _, grad = ops.nll_loss_with_softmax_grad(probabilities, labels)
            info = transforms.autodiff(graph1)
            dh, dw1, db1 = ops.call(info.graph, grad, inputs_dict=info.inputs_dict(call1))
            ops.scaled_add_(w[2], dw1, b=-RATE)
            ops.scaled_add_(w[3], db1, b=-RATE)
            dh = dh.copy_to_ipu(0)
        with popxl.ipu(0):
            info = transforms.autodiff(graph0, grads_required=graph0.inputs[1:])
            grads = ops.call(info.graph, dh, inputs_dict=info.inputs_dict(call0))
            for variable, grad in zip(w[:2], grads, strict=True):
                ops.scaled_add_(variable, grad, b=-RATE)
    weights, _ = expected(sgd, range(2))
    with popxl.Session(ir, "ipu_hw") as session:
        for i in range(2):
            session.run(dict(zip(streams, (DATA[i], LABELS[i]), strict=True)))
    check(session, w, weights)


def test_layers_in_remote_memory():
    """Phases: a loop loads a layer's weights by number, computes, and stores what it made."""
    n_layers, width = 3, 4
    data = rng.normal(0, 0.7, (n_layers, width, width)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        weights = popxl.remote_buffer((width, width), popxl.float32, n_layers)
        kept = popxl.remote_buffer((2, width), popxl.float32, n_layers)
        variables = [popxl.remote_variable(data[i], weights, i) for i in range(n_layers)]
        stream = popxl.h2d_stream((2, width), popxl.float32)

        @popxl.in_sequence()
        def phase(x: popxl.Tensor, number: popxl.TensorByRef) -> popxl.Tensor:
            w = ops.remote_load(weights, number)
            ops.remote_store(kept, number, x)
            y = ops.tanh(x @ w)
            ops.remote_store(weights, number, w * 0.5)
            ops.var_updates.accumulate_(number, popxl.constant(1, popxl.uint32))
            return y

        x = ops.host_load(stream)
        number = popxl.constant(0, popxl.uint32)
        (y,) = ops.repeat(ir.create_graph(phase, x, number), n_layers, x, ops.identity(number))
        out, inner = stored(y), stored(ops.remote_load(kept, 1))
    x0 = rng.normal(size=(2, width)).astype(np.float32)
    with popxl.Session(ir, "cpu") as session:
        result = session.run({stream: x0})
        np.testing.assert_allclose(result[inner], np.tanh(x0 @ data[0]), 1e-4, 1e-5)
        expected_y = np.tanh(np.tanh(np.tanh(x0 @ data[0]) @ data[1]) @ data[2])
        np.testing.assert_allclose(result[out], expected_y, 1e-4, 1e-5)
        for variable, before in zip(variables, data, strict=True):
            np.testing.assert_allclose(session.get_tensor_data(variable), before / 2, 1e-6)


def test_gradients_of_loops():
    """A graph with a loop is differentiated by what the loop carries and by what it reads."""
    x0, w0 = rng.normal(size=(2, 3)).astype(np.float32), WEIGHTS[0][:3, :3]
    ir = popxl.Ir()

    def body(x: popxl.Tensor, w: popxl.Tensor) -> popxl.Tensor:
        return ops.tanh(x @ w)

    def looped(x: popxl.Tensor, w: popxl.Tensor) -> popxl.Tensor:
        (y,) = ops.repeat(ir.create_graph(body, x, w), 4, x, w)
        return y * 2.0

    with ir.main_graph, popxl.in_sequence():
        x, w = popxl.variable(x0), popxl.variable(w0)
        graph = ir.create_graph(looped, x, w)
        call = ops.call_with_info(graph, x, w)
        info = transforms.autodiff(graph)
        ones = popxl.constant(np.ones((2, 3), np.float32))
        grads = ops.call(info.graph, ones, inputs_dict=info.inputs_dict(call))
        streams = [stored(t) for t in (call.outputs[0], *grads)]
    a, b = (torch.tensor(v, requires_grad=True) for v in (x0, w0))
    y = a
    for _ in range(4):
        y = torch.tanh(y @ b)
    (y * 2).sum().backward()
    with popxl.Session(ir, "cpu") as session:
        for _ in range(2):
            result = session.run()
            for stream, want in zip(streams, (y * 2, a.grad, b.grad), strict=True):
                np.testing.assert_allclose(result[stream], want.detach().numpy(), 1e-4, 1e-5)
