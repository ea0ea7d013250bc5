"""gcl: collective operations between the replicas of a graph."""

from tremula.poplibs.gcl import samples as entries
from tremula.poplibs.gcl.collectives import (
    all_gather,
    all_reduce,
    all_reduce_in_groups_in_place,
    all_reduce_in_place,
    broadcast,
    reduce_scatter,
)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_reduce_in_groups_in_place",
    "all_reduce_in_place",
    "broadcast",
    "entries",
    "reduce_scatter",
]
