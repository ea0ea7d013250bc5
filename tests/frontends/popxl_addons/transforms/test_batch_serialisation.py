"""Loops over micro-batches in all three I/O modes, against a plain loop."""

import numpy as np
import pytest

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear
from popxl_addons.transforms.batch_serialisation import batch_serialise_overlapped

STEPS = 4


@pytest.mark.parametrize("io_mode", ["compute", "io", "io_overlapped"])
def test_micro_batches_are_loaded_and_stored(io_mode):
    """Results of all micro-batches of two rows are stored in order, whatever overlaps."""
    ir = popxl.Ir()
    ir.num_host_transfers = STEPS
    data = np.random.default_rng(0).normal(size=(STEPS, 2, 3)).astype(np.float32)
    with ir.main_graph, popxl.in_sequence(True):
        spec = popxl.TensorSpec((2, 3), popxl.float32)
        factories, graph = Linear(3).create_graph(spec)
        given, taken = (f((2, 3), popxl.float32) for f in (popxl.h2d_stream, popxl.d2h_stream))
        x, y = graph.graph.inputs[0], graph.graph.outputs[0]
        rows = addons.RemoteHandle(addons.batch_serial_buffer(x, STEPS, 3))
        first = addons.batch_serialise(
            graph, STEPS, {x: given}, {}, {y: rows}, io_mode=io_mode
        )  # row 0: from the host
        after = addons.RemoteHandle(rows.buffer, 1)
        second = addons.batch_serialise(
            graph, STEPS, {x: rows}, {y: taken}, {y: after}, rows=2, io_mode=io_mode
        )
        args = factories.init()
        first.graph.bind(args).call(0)
        second.graph.bind(args).call(0)
    with popxl.Session(ir, "cpu") as session:
        result = session.run({given: data})[taken]
        w, b = (session.get_tensor_data(t) for t in (args.weight, args.bias))
    np.testing.assert_allclose(result, (data @ w + b) @ w + b, rtol=1e-4, atol=1e-6)


def test_gradients_of_micro_batches():
    """What the gradient needs is stored by the forward loop: the mean gradient is that of all."""
    ir = popxl.Ir()
    ir.num_host_transfers = STEPS
    data = np.random.default_rng(0).normal(size=(STEPS, 2, 3)).astype(np.float32)

    class Net(addons.Module):
        def __init__(self):
            super().__init__()
            self.linear = Linear(3)

        def build(self, x):
            return ops.tanh(self.linear(x))

    with ir.main_graph, popxl.in_sequence(True):
        factories, graph = Net().create_graph(popxl.TensorSpec((2, 3), popxl.float32))
        sums, gradient = addons.autodiff_with_accumulation(graph, graph.args.tensors)
        given, dy = (popxl.h2d_stream((2, 3), popxl.float32, name) for name in ("x", "dy"))
        forward, backward = addons.batch_serialise_fwd_and_grad(
            graph, gradient, graph.args, STEPS,
            {graph.graph.inputs[0]: given, gradient.graph.inputs[0]: dy}, {}, {}, io_mode="compute",
        )  # fmt: skip
        args, means = factories.init(), sums.init()
        forward.graph.bind(args).call(0)
        bound = addons.NamedTensors()
        bound.update(args)
        bound.update(means)
        backward.graph.bind(bound).call(0)
    with popxl.Session(ir, "cpu") as session:
        session.run({given: data, dy: np.ones_like(data)})
        w, b = (session.get_tensor_data(t) for t in (args.linear.weight, args.linear.bias))
        result = session.get_tensor_data(means.accum.linear.bias)
    expected = (1 - np.tanh(data @ w + b) ** 2).sum(axis=1).mean(axis=0)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def test_what_loops_refuse():
    """Unknown modes, too few steps, handles that are none."""
    ir = popxl.Ir()
    with ir.main_graph:
        _, graph = Linear(3).create_graph(popxl.TensorSpec((2, 3), popxl.float32))
        x = graph.graph.inputs[0]
        with pytest.raises(ValueError, match="io_mode must be one of"):
            addons.batch_serialise(graph, 2, {}, {}, {}, io_mode="fast")
        with pytest.raises(ValueError, match="at least 2"):
            batch_serialise_overlapped(graph, 1, {}, {}, {})
        with pytest.raises(TypeError, match="RemoteHandle"):
            addons.batch_serialise(graph, 2, {x: 3}, {}, {})
