"""Loaders for PopTorch models, under the names that scripts import."""

from tremula.frontends.geometric.fixed_size.options import FixedSizeStrategy, OverSizeStrategy
from tremula.frontends.geometric.loaders.poptorch import DataLoader, FixedSizeDataLoader

__all__ = ["DataLoader", "FixedSizeDataLoader", "FixedSizeStrategy", "OverSizeStrategy"]
