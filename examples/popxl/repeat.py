"""Repeat: a graph that runs n times, its outputs the inputs of the next round.

    python repeat.py

Newton's method for square roots: the estimate is carried from round to round, the number is not.
"""

import numpy as np

import popxl
from popxl import ops

ir = popxl.Ir()


def newton(estimate, number):
    return (estimate + number / estimate) * 0.5


with ir.main_graph:
    number = popxl.variable(np.array([2.0, 9.0, 100.0], np.float32), name="number")
    graph = ir.create_graph(newton, number, number)
    (root,) = ops.repeat(graph, 8, number, number)
    result = popxl.d2h_stream(root.shape, root.dtype)
    ops.host_store(result, root)

with popxl.Session(ir, "cpu") as session:
    print("roots:", np.round(session.run()[result], 4))
