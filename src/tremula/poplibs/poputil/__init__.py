"""poputil: tile maps, regions and broadcasting that all operations share."""

from tremula.poplibs.poputil.broadcast import (
    Pattern,
    broadcast_shape,
    broadcast_to_match,
    broadcast_view,
    can_broadcast_to_match,
    cut_rows,
    expand_to_match_ranks,
    pattern_of,
)
from tremula.poplibs.poputil.layout import (
    clone_in_order,
    in_memory_order,
    memory_order,
    simplified,
)
from tremula.poplibs.poputil.regions import (
    TileRegions,
    WorkerSlices,
    split_between_workers,
    tile_regions,
)

__all__ = [
    # broadcasting
    "Pattern", "broadcast_shape", "broadcast_to_match", "broadcast_view", "can_broadcast_to_match",
    "cut_rows", "expand_to_match_ranks", "pattern_of",
    # layout
    "clone_in_order", "in_memory_order", "memory_order", "simplified",
    # regions
    "TileRegions", "WorkerSlices", "split_between_workers", "tile_regions",
]  # fmt: skip
