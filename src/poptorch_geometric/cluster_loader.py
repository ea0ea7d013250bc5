"""The loader of clusters, under the name that scripts import."""

from tremula.frontends.geometric.loaders.cluster import FixedSizeClusterLoader

__all__ = ["FixedSizeClusterLoader"]
