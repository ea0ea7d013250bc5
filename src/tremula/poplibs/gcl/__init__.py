"""gcl: collective operations between the replicas of a graph, and between its chips."""

from tremula.base.names.argument_types import explain_arguments_of as _explain_arguments_of
from tremula.base.replica_group import ReplicaGroup
from tremula.poplibs.gcl import samples as entries
from tremula.poplibs.gcl.chips import (
    all_gather_between_chips,
    all_reduce_between_chips,
    reduce_scatter_between_chips,
)
from tremula.poplibs.gcl.collectives import (
    all_gather,
    all_reduce,
    all_reduce_in_groups_in_place,
    all_reduce_in_place,
    all_to_all,
    broadcast,
    reduce_scatter,
)

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_between_chips",
    "all_reduce",
    "all_reduce_between_chips",
    "all_reduce_in_groups_in_place",
    "all_reduce_in_place",
    "all_to_all",
    "broadcast",
    "entries",
    "reduce_scatter",
    "reduce_scatter_between_chips",
]

_explain_arguments_of(globals(), __all__)
