"""popxl.ops.collectives: operations over replicas."""

from tremula.frontends.popart.enums import CommGroupType
from tremula.frontends.popart.groups import CommGroup
from tremula.frontends.popxl.ops.collectives import (
    all_reduce,
    all_reduce_identical_grad_inputs,
    all_reduce_identical_inputs,
    replica_sharded_slice,
    replicated_all_gather,
    replicated_all_reduce,
    replicated_all_reduce_,
    replicated_reduce_scatter,
    replicated_slice,
)
