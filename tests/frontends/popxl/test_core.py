"""Building graphs and running them: variables, streams, calls, loops."""

import numpy as np
import pytest

import popxl
from popxl import ops


class Linear(popxl.Module):
    def build(self, x):
        self.w = popxl.graph_input((2, 2), popxl.float32, "w")
        return ops.relu(x @ self.w + 1)


def test_a_module_is_called_and_repeated():
    """A graph made from a module runs at each call and each round of a loop."""
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2, 2), popxl.float32, "x")
        x = ops.host_load(stream, "x")
        w = popxl.variable(np.full((2, 2), 0.5, np.float32), name="w")
        module = Linear()
        graph = ir.create_graph(module, x)
        (y,) = ops.call(graph, x, inputs_dict={module.w: w})
        (y,) = ops.repeat(graph, 3, y, inputs_dict={module.w: w})
        out = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(out, y)
    data = np.arange(4, dtype=np.float32).reshape(2, 2)
    with popxl.Session(ir, "cpu") as session:
        result = session.run({stream: data})[out]
    expected = data
    for _ in range(4):
        expected = np.maximum(expected @ np.full((2, 2), 0.5) + 1, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    assert graph.name == "Linear_subgraph(0)"


def test_a_variable_keeps_what_in_place_operations_write():
    """`add_` changes the variable, and the next run begins with the new value."""
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(1.0, name="v")
        ops.add_(v, 2.0)
    with popxl.Session(ir, "cpu") as session:
        session.run()
        session.run()
        assert session.get_tensor_data(v) == 5.0


def test_frozen_after_a_session():
    """An Ir cannot be changed once a session was made of it."""
    ir = popxl.Ir()
    popxl.Session(ir, "cpu")
    with pytest.raises(RuntimeError, match="cannot be changed"), ir.main_graph:
        popxl.variable(1.0)
