"""Replicated tensor sharding: each replica keeps a part of a weight, and updates that.

    python rts.py

Four replicas share a weight of eight numbers: two each. It is gathered where it is used, gradients
are reduced and scattered, and each replica updates its own shard.
"""

import numpy as np

import popxl
from popxl import ops

ir = popxl.Ir(replication=4)
with ir.main_graph, popxl.in_sequence(True):
    weight, shard = popxl.replica_sharded_variable(np.arange(8, dtype=np.float32), name="w")
    print("a shard:", shard.shape, "of", shard.meta_shape)
    gathered = ops.collectives.replicated_all_gather(shard)
    gradient = gathered * 0.25  # each replica's own, here all the same
    own = ops.collectives.replicated_reduce_scatter(
        gradient, "add", configure_output_for_replicated_tensor_sharding=True
    )
    ops.scaled_add_(shard, own, b=-1.0)

with popxl.Session(ir, "cpu") as session:
    session.run()
    print("the weight is now", session.get_tensor_data(weight))
