"""Groups of replicas by name.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.named.replica_groupings import (
    NamedReplicaGrouping,
    fill_none_group,
    get_ild_replica_grouping,
    get_ild_size_from_popdist,
    get_instance_replica_grouping,
    is_cross_ild,
    is_cross_instance,
)

__all__ = [
    "NamedReplicaGrouping",
    "fill_none_group",
    "get_ild_replica_grouping",
    "get_ild_size_from_popdist",
    "get_instance_replica_grouping",
    "is_cross_ild",
    "is_cross_instance",
]
