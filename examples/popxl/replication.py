"""Replication: the same program on four replicas, with different data and sums over groups.

    python replication.py

A variable that pairs of replicas share has one value for each pair; a collective works in groups.
"""

import numpy as np

import popxl
from popxl import ops

ir = popxl.Ir(replication=4)
pairs = ir.replica_grouping(stride=1, group_size=2)  # (0, 1), (2, 3)
print("pairs:", pairs.assignment, "transposed:", pairs.transpose().assignment)

with ir.main_graph:
    inputs = popxl.h2d_stream((), popxl.float32, "inputs")
    x = ops.host_load(inputs)
    factor = popxl.variable(np.array([1, 10], np.float32), name="factor", replica_grouping=pairs)
    across = ops.collectives.replicated_all_reduce(x * factor, "add", group=pairs.transpose())
    result = popxl.d2h_stream((), popxl.float32, "result")
    ops.host_store(result, across)

with popxl.Session(ir, "cpu") as session:
    sums = session.run({inputs: np.array([1, 2, 3, 4], np.float32)})[result]
    print("sums over replicas (0, 2) and (1, 3):", sums)
