"""The loader of sampled neighbours, under the name that scripts import."""

from tremula.frontends.geometric.loaders.neighbor import FixedSizeNeighborLoader

__all__ = ["FixedSizeNeighborLoader"]
