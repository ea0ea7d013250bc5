"""Pipelining: two stages on two chips, forward and backward, with gradients accumulated.

    python pipelining.py

Stage 0 and 1 compute forward, stage 1 also backward, stage 2 the rest of the backward pass on the
first chip. What stage 0 made waits there for stage 2.
"""

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear

STEPS = 6
ir = popxl.Ir()
ir.num_host_transfers = STEPS


class Tanh(addons.Module):
    def __init__(self):
        super().__init__()
        self.linear = Linear(4)

    def build(self, x):
        return ops.tanh(self.linear(x))


with ir.main_graph, popxl.in_sequence(True):
    x_stream = popxl.h2d_stream((2, 4), popxl.float32, "x")
    spec = popxl.TensorSpec((2, 4), popxl.float32)
    factories, forward = Tanh().create_graph(spec)
    x_in = forward.graph.inputs[0]
    sums, backward = addons.autodiff_with_accumulation(
        forward, forward.args.tensors, grads_required=[x_in]
    )
    info = backward.grad_graph_info
    layers = [factories.init(f"layer{i}") for i in range(2)]
    means = [sums.init(f"means{i}") for i in range(2)]
    one = popxl.variable(np.ones((2, 4), np.float32), name="one")
    with addons.pipelined_execution(STEPS) as pipeline:
        with pipeline.stage(0), popxl.ipu(0):
            x = ops.host_load(x_stream)
            first = forward.bind(layers[0]).call_with_info(x)
            h = ops.ipu_copy(first.outputs[0], 1)
        with pipeline.stage(1), popxl.ipu(1):
            second = forward.bind(layers[1]).call_with_info(h)
            (dh,) = backward.bind(means[1]).call(one, args=info.inputs_dict(second))
            dh = ops.ipu_copy(dh, 0)
        with pipeline.stage(2), popxl.ipu(0):
            activations = pipeline.stash_and_restore_activations(first, info)
            backward.bind(means[0]).call(dh, args=activations)

data = np.random.default_rng(0).normal(size=(STEPS, 2, 4)).astype(np.float32)
with popxl.Session(ir, "cpu") as session:
    session.run({x_stream: data})
    (w0, b0), (w1, b1) = (
        [session.get_tensor_data(t) for t in (n.linear.weight, n.linear.bias)] for n in layers
    )
    gradient = session.get_tensor_data(means[0].accum.linear.bias)
h = np.tanh(data @ w0 + b0)
dh = (1 - np.tanh(h @ w1 + b1) ** 2) @ w1.T
expected = (dh * (1 - h**2)).sum(1).mean(0)
print("graphs of stages:", sum("pipeline_stage" in g.name for g in ir.graphs))
print("the mean gradient of all micro-batches:", np.allclose(gradient, expected, atol=1e-5))
