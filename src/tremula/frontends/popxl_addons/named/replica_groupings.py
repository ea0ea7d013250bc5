"""Groups of replicas by name, and their restriction to one instance or link domain."""

import json
import os
from collections.abc import Iterable

import popxl
from tremula.frontends.popxl_addons.named.dot_tree import DotTree

MAX_LINK_DOMAIN = 64  # IPUs that links connect directly: a rack of pods
Grouping = popxl.ReplicaGrouping


class NamedReplicaGrouping(DotTree[popxl.ReplicaGrouping]):
    """Groups of replicas by the names of variables."""

    @classmethod
    def build_groups(
        cls, names: Iterable[str], value: Grouping | None = None
    ) -> "NamedReplicaGrouping":
        """One grouping for all names: by default all replicas together."""
        group = popxl.gcg().ir.replica_grouping() if value is None else value
        return cls.from_dict(dict.fromkeys(names, group))


def fill_none_group(rg: Grouping | None, none_value: Grouping) -> Grouping:
    """A grouping, or a default for None."""
    return none_value if rg is None else rg


def get_instance_replica_grouping(replica_grouping: Grouping | None = None) -> Grouping:
    """Groups with the same stride that stay within the replicas of one process."""
    return _within(replica_grouping, popxl.gcg().ir.instance_replication_factor, "instance")


def is_cross_instance(replica_grouping: Grouping) -> bool:
    """Whether groups have members in several processes."""
    return _span(replica_grouping) > popxl.gcg().ir.instance_replication_factor


def get_ild_size_from_popdist() -> int:
    """IPUs of one link domain: the option `ipuLinkDomainSize` of POPLAR_TARGET_OPTIONS, or 64."""
    options = json.loads(os.environ.get("POPLAR_TARGET_OPTIONS", "{}"))
    size = options.get("ipuLinkDomainSize")
    return min(popxl.gcg().ir.replication_factor, MAX_LINK_DOMAIN) if size is None else int(size)


def get_ild_replica_grouping(replica_grouping: Grouping | None = None) -> Grouping:
    """Groups with the same stride that stay within one link domain."""
    return _within(replica_grouping, get_ild_size_from_popdist(), "IPU Link Domain")


def is_cross_ild(replica_grouping: Grouping) -> bool:
    """Whether groups have members in several link domains."""
    return _span(replica_grouping) > get_ild_size_from_popdist()


def _span(grouping: Grouping) -> int:
    return grouping.group_size * grouping.stride


def _within(grouping: Grouping | None, size: int, what: str) -> Grouping:
    ir = popxl.gcg().ir
    # Collectives and shards take groups whose members are equally far apart.
    chosen = ir.replica_grouping() if grouping is None else grouping.const_rg
    if chosen.stride > size:
        raise ValueError(
            f"The stride of a replica grouping must be at most the {what} size,"
            f" {size}, got {chosen.stride}"
        )
    if _span(chosen) <= size:
        return chosen
    return ir.replica_grouping(stride=chosen.stride, group_size=size // chosen.stride)
