"""Groups of replicas by dotted names."""

from tremula.frontends.popxl_addons.named.tensors import (
    NamedReplicaGrouping,
)

__all__ = [
    "NamedReplicaGrouping",
]
