"""poputil: tile maps, regions and broadcasting that all operations share."""

from tremula.poplibs.poputil.regions import (
    TileRegions,
    WorkerSlices,
    in_memory_order,
    split_between_workers,
    tile_regions,
)

__all__ = [
    "TileRegions",
    "WorkerSlices",
    "in_memory_order",
    "split_between_workers",
    "tile_regions",
]
