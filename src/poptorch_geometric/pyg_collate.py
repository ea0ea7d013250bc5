"""PyG's collater with optional arguments."""

from tremula.frontends.geometric.fixed_size.collate import Collater

__all__ = ["Collater"]
