"""Autodiff: the gradient of a graph is a graph, called with what a forward call made.

python autodiff.py
"""

import numpy as np

import popxl
from popxl import ops

ir = popxl.Ir()


def model(x, w):
    return ops.sum(ops.tanh(x @ w))


with ir.main_graph:
    x = popxl.variable(np.array([[1.0, -2.0]], np.float32), name="x")
    w = popxl.variable(np.array([[0.5], [0.25]], np.float32), name="w")
    graph = ir.create_graph(model, x, w)
    gradient = popxl.transforms.autodiff(graph, grads_required=[graph.inputs[1]])
    print("the gradient graph expects", list(gradient.expected_inputs))
    call = ops.call_with_info(graph, x, w)
    one = popxl.constant(1.0, popxl.float32)
    (dw,) = ops.call(gradient.graph, one, inputs_dict=gradient.inputs_dict(call))
    loss_stream, dw_stream = (popxl.d2h_stream(t.shape, t.dtype) for t in (call.outputs[0], dw))
    ops.host_store(loss_stream, call.outputs[0])
    ops.host_store(dw_stream, dw)

with popxl.Session(ir, "cpu") as session:
    results = session.run()
    print("loss:", results[loss_stream], "gradient:", results[dw_stream].ravel())
