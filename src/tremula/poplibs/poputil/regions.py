"""Which tile works on what: a tensor's elements in memory order, cut by tile and by worker."""

from typing import NamedTuple

import numpy as np

from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import expand
from tremula.poplar.tensors.tensor import Tensor


class TileRegions(NamedTuple):
    """Intervals [begin, end) of a flattened tensor, each contiguous in memory, sorted by tile."""

    tile: np.ndarray
    begin: np.ndarray
    end: np.ndarray

    @property
    def n_elems(self) -> np.ndarray:
        """Elements of all regions."""
        return self.end - self.begin

    def on_tiles(self, is_wanted: np.ndarray) -> "TileRegions":
        """The regions of tiles for which is_wanted[tile] is true."""
        keep = is_wanted[self.tile]
        return TileRegions(self.tile[keep], self.begin[keep], self.end[keep])


def tile_regions(graph: Graph, tensor: Tensor) -> TileRegions:
    """For every tile the intervals of the flattened tensor it holds."""
    mapping = graph.get_tile_mapping(tensor)
    low, high = tensor.ordered_intervals()
    position = np.cumsum(high - low) // tensor.type.n_bytes
    cuts = position[:-1][low[1:] != high[:-1]]
    inside = np.searchsorted(cuts, mapping.end, "left") - np.searchsorted(
        cuts, mapping.begin, "right"
    )
    owner, within = expand(inside + 1)
    first = np.searchsorted(cuts, mapping.begin, "right")[owner] + within
    begin = np.where(
        within == 0, mapping.begin[owner], cuts[np.maximum(first - 1, 0)] if len(cuts) else 0
    )
    is_last = within == inside[owner]
    after = cuts[np.minimum(first, len(cuts) - 1)] if len(cuts) else np.zeros(len(owner), np.int64)
    end = np.where(is_last, mapping.end[owner], after)
    order = np.argsort(mapping.tile[owner], kind="stable")
    return TileRegions(mapping.tile[owner][order], begin[order], end[order])


class WorkerSlices(NamedTuple):
    """Regions dealt to workers: vertex i, on tile[i], has the slices start[i] … start[i+1]."""

    tile: np.ndarray  # int64[n_vertices]
    start: np.ndarray  # int64[n_vertices + 1]
    begin: np.ndarray  # int64[n_slices]
    end: np.ndarray

    @property
    def tile_of_slice(self) -> np.ndarray:
        """The tile of each slice."""
        return np.repeat(self.tile, np.diff(self.start))


def split_between_workers(regions: TileRegions, n_workers: int, grain: int) -> WorkerSlices:
    """Cut the regions of each tile into up to n_workers nearly equal parts of whole grains."""
    sizes = regions.n_elems
    before = np.cumsum(sizes) - sizes
    tiles, first = np.unique(regions.tile, return_index=True)
    base = before[first]  # elements before each tile
    total = np.add.reduceat(sizes, first) if len(first) else sizes
    n_grains = -(-total // grain)
    n_parts = np.minimum(n_workers, np.maximum(1, n_grains))
    tile_of_part, part = expand(n_parts)
    low = part * n_grains[tile_of_part] // n_parts[tile_of_part] * grain
    high = (part + 1) * n_grains[tile_of_part] // n_parts[tile_of_part] * grain
    low = base[tile_of_part] + np.minimum(low, total[tile_of_part])
    high = base[tile_of_part] + np.minimum(high, total[tile_of_part])
    from_region = np.searchsorted(before + sizes, low, "right")
    to_region = np.searchsorted(before, high, "left")
    n_slices = np.maximum(to_region - from_region, 0)
    owner, within = expand(n_slices)
    region = from_region[owner] + within
    begin = regions.begin[region] + np.maximum(low[owner] - before[region], 0)
    end = regions.begin[region] + np.minimum(high[owner] - before[region], sizes[region])
    return WorkerSlices(tiles[tile_of_part], np.concatenate(([0], np.cumsum(n_slices))), begin, end)
