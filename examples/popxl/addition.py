"""Addition: a main graph with two variables and a stream, run once.

    python addition.py

Nothing is computed while the program is built: `a + b` adds an operation to the main graph.
"""

import numpy as np

import popxl
from popxl import ops

ir = popxl.Ir()
with ir.main_graph:
    a = popxl.variable(3, popxl.int8, "a")
    b = popxl.variable(1, popxl.int8, "b")
    total = a + b
    result = popxl.d2h_stream(total.shape, total.dtype, "result")
    ops.host_store(result, total)
print("operations:", [op.kind for op in ir.main_graph.ops])

with popxl.Session(ir, "cpu") as session:
    print("3 + 1 =", session.run()[result])
    session.write_variable_data(a, np.array(5, np.int8))
    print("5 + 1 =", session.run()[result])
