"""popdist: which of several processes this one is, and what they do together."""

from tremula.frontends.poptorch.instances import (
    execute_on_instances,
    finalize,
    getInstanceIndex,
    getLocalInstanceIndex,
    getNumInstances,
    getNumIpusPerReplica,
    getNumLocalReplicas,
    getNumTotalReplicas,
    getReplicaIndexOffset,
    init,
    isPopdistEnvSet,
    synchronize,
)

__all__ = [
    "execute_on_instances",
    "finalize",
    "getInstanceIndex",
    "getLocalInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "synchronize",
]
