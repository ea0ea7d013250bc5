"""A custom optimiser: a module with its own states, one for each variable.

    python custom_optimiser.py

Sign descent with momentum. `create_graph` gives factories of the states, and a graph; variables of
equal shape share the graph.
"""

from functools import partial

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops


class SignDescent(addons.Module):
    def build(self, var: popxl.TensorByRef, grad, *, rate, momentum=0.5):
        with popxl.in_sequence(True):
            speed = self.add_variable_input("speed", partial(np.zeros, var.shape), var.dtype, True)
            ops.var_updates.accumulate_moving_average_(speed, grad, f=momentum)
            ops.scaled_add_(var, ops.sign(speed), b=-rate)


ir = popxl.Ir()
ir.num_host_transfers = 1
with ir.main_graph, popxl.in_sequence(True):
    target = np.array([1.0, -2.0, 3.0], np.float32)
    variables = [popxl.variable(np.full(3, start, np.float32)) for start in (0.0, 5.0)]
    optimiser = SignDescent(cache=True)
    for i, var in enumerate(variables):
        factories, step = optimiser.create_graph(var, var, rate=0.5)
        state = factories.init(f"state{i}")
        step.bind(state).call(var, var - popxl.constant(target))  # the gradient of |v - t|² / 2
print("graphs:", len(ir.main_graph.called_graphs))

with popxl.Session(ir, "cpu") as session:
    for _ in range(20):
        session.run()
    for var in variables:
        print("near the target:", np.abs(session.get_tensor_data(var) - target).max() <= 1)
