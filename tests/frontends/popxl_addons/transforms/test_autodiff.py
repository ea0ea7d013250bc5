"""Accumulated and recomputed gradients."""

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear
from tests.frontends.popxl_addons.graphs.test_module import run


class Net(addons.Module):
    def __init__(self):
        super().__init__()
        self.linear = Linear(3)

    def build(self, x):
        return ops.sum(ops.tanh(self.linear(x)))


def test_running_means_of_gradients():
    """Two calls leave the mean of both gradients; a counter of zero starts again."""
    ir = popxl.Ir()
    draw = np.random.default_rng(0)
    x1, x2 = draw.normal(size=(2, 2, 4)).astype(np.float32)
    with ir.main_graph, popxl.in_sequence(True):
        factories, graph = Net().create_graph(popxl.TensorSpec((2, 4), popxl.float32))
        sums, gradient = addons.autodiff_with_accumulation(graph, graph.args.tensors)
        assert sorted(sums.to_dict()) == [
            "accum.linear.bias", "accum.linear.weight", "mean_accum_counter"
        ]  # fmt: skip
        assert not gradient.graph.outputs
        args, means = factories.init(), sums.init()
        bound, one = gradient.bind(means), popxl.constant(1, popxl.float32)
        for x in (x1, x2):
            call = graph.bind(args).call_with_info(popxl.constant(x))
            bound.call(one, args=gradient.grad_graph_info.inputs_dict(call))
        w, b = args.linear.weight, args.linear.bias
        result = means.accum.linear.weight
    w, b, result, n = run(ir, w, b, result, means.mean_accum_counter)
    expected = sum(x.T @ (1 - np.tanh(x @ w + b) ** 2) for x in (x1, x2)) / 2
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-6)
    assert n == 2


def test_recomputed_gradients_need_inputs_alone():
    """A recomputed gradient equals the plain one, and expects nothing but inputs of the graph."""
    ir = popxl.Ir()
    x = np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    with ir.main_graph, popxl.in_sequence(True):
        t = popxl.variable(x)
        factories, graph = Net().create_graph(t)
        plain = addons.autodiff(graph)
        again = addons.recompute_graph(plain)
        args = factories.init()
        call = graph.bind(args).call_with_info(t)
        one = popxl.constant(1, popxl.float32)
        needed = [e.fwd_tensor for e in again.grad_graph_info.expected_inputs[1:]]
        assert set(needed) == set(graph.graph.inputs)
        results = []
        for gradient in (plain, again):
            given = gradient.grad_graph_info.inputs_dict(call)
            results += gradient.call(one, args=given)
    values = run(ir, *results)
    n = len(values) // 2
    for a, b in zip(values[:n], values[n:], strict=True):
        np.testing.assert_array_equal(a, b)
