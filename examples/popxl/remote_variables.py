"""Remote variables: layers of a net in entries of one buffer, fetched one after the other.

    python remote_variables.py

The chip holds one layer at a time. A loop's counter is the number of the entry.
"""

import numpy as np

import popxl
from popxl import ops

N_LAYERS = 3
ir = popxl.Ir()
draw = np.random.default_rng(0)
data = draw.normal(size=(N_LAYERS, 4, 4)).astype(np.float32)

with ir.main_graph, popxl.in_sequence(True):
    buffer = popxl.remote_buffer((4, 4), popxl.float32, N_LAYERS)
    weights = [popxl.remote_variable(w, buffer, i, name=f"w{i}") for i, w in enumerate(data)]

    def layer(x, number):
        with popxl.in_sequence(True):
            w = ops.remote_load(buffer, number, "w")
            x = ops.tanh(x @ w)
            ops.remote_store(buffer, number, w * 0.5)  # what a step of training would write
        return x, number + 1

    x = popxl.variable(np.ones((2, 4), np.float32), name="x")
    first = popxl.constant(0, popxl.uint32)
    x, _ = ops.repeat(ir.create_graph(layer, x, first), N_LAYERS, x, first)
    result = popxl.d2h_stream(x.shape, x.dtype)
    ops.host_store(result, x)

with popxl.Session(ir, "cpu") as session:
    output = session.run()[result]
    halved = session.get_tensors_data(weights)
expected = np.ones((2, 4), np.float32)
for w in data:
    expected = np.tanh(expected @ w)
print("layers in turn:", np.allclose(output, expected, atol=1e-6))
print("all halved:", all(np.allclose(halved[v], w / 2) for v, w in zip(weights, data, strict=True)))
