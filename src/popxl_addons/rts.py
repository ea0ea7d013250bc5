"""Replicated tensor sharding.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.rts import (
    all_gather_replica_sharded_graph,
    gather_replica_sharded_tensor,
    reduce_replica_sharded_graph,
    reduce_replica_sharded_tensor,
    replica_sharded_spec,
)

__all__ = [
    "all_gather_replica_sharded_graph",
    "gather_replica_sharded_tensor",
    "reduce_replica_sharded_graph",
    "reduce_replica_sharded_tensor",
    "replica_sharded_spec",
]
