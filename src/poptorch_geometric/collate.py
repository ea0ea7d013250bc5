"""Collaters, under the names that scripts import."""

from tremula.frontends.geometric.fixed_size.collate import (
    CombinedBatchingCollater,
    FixedSizeCollater,
    make_exclude_keys,
)

__all__ = ["CombinedBatchingCollater", "FixedSizeCollater", "make_exclude_keys"]
