"""popxl.replica_grouping: partitions of replicas."""

from tremula.frontends.popxl.replica_grouping import ReplicaGrouping
