"""The loader of clusters without PopTorch, under the name that scripts import."""

from tremula.frontends.geometric.loaders.cluster import (
    PyGFixedSizeClusterLoader as FixedSizeClusterLoader,
)

__all__ = ["FixedSizeClusterLoader"]
