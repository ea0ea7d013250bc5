"""Sub-graphs: functions of a program, called with tensors, by value or by reference.

    python sub_graphs.py

A graph is made once, for tensors of some types, and stays one function however often it is called.
"""

import numpy as np

import popxl
from popxl import ops

ir = popxl.Ir()


def scale_and_shift(x, shift):
    return x * 2 + shift


def count(counter: popxl.TensorByRef):
    """By reference: the caller's tensor changes."""
    ops.add_(counter, popxl.constant(1, popxl.int32))


with ir.main_graph, popxl.in_sequence(True):
    x = popxl.variable(np.array([1.0, 2.0], np.float32), name="x")
    graph = ir.create_graph(scale_and_shift, x, popxl.TensorSpec((), popxl.float32))
    counting = ir.create_graph(count, popxl.TensorSpec((), popxl.int32))
    n_calls = popxl.variable(0, popxl.int32, "n_calls")
    y = x
    for shift in (1.0, 10.0):
        (y,) = ops.call(graph, y, shift)  # numbers become constants
        ops.call(counting, n_calls)
    result = popxl.d2h_stream(y.shape, y.dtype)
    ops.host_store(result, y)
print("graphs:", [g.name for g in ir.main_graph.called_graphs])

with popxl.Session(ir, "cpu") as session:
    print("result:", session.run()[result])
    print("calls:", session.get_tensor_data(n_calls))
