"""Rectangles and boxes that programs cut their grids into, and the runs of elements in them."""

from typing import NamedTuple

import numpy as np

from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices

Ints = np.ndarray


class Boxes(NamedTuple):
    """Boxes of a grid with three dimensions: columns low and high, int64[n, 3], and their tile."""

    low: Ints
    high: Ints
    tile: Ints

    @property
    def sizes(self) -> Ints:
        return self.high - self.low

    def widened(self, halo: tuple[int, int, int], shape: tuple[int, int, int]) -> "Boxes":
        """With a halo on all sides, cut off at the grid's edge."""
        wide = np.asarray(halo)
        low = np.maximum(self.low - wide, 0)
        return Boxes(low, np.minimum(self.high + wide, np.asarray(shape)), self.tile)

    def rows(self, shape: tuple[int, int, int]) -> tuple[Ints, Ints, Ints]:
        """Runs along the last dimension: (box, begin, end), box by box."""
        n_rows = self.sizes[:, 0] * self.sizes[:, 1]
        box = np.repeat(np.arange(len(n_rows)), n_rows)
        at = np.arange(len(box)) - np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
        i, j = np.divmod(at, self.sizes[box, 1])
        line = (self.low[box, 0] + i) * shape[1] + self.low[box, 1] + j
        return box, line * shape[2] + self.low[box, 2], line * shape[2] + self.high[box, 2]


def cut_evenly(n: int, n_parts: int) -> Ints:
    """Boundaries int64[n_parts + 1] of parts whose sizes differ by at most one: i * n // parts."""
    return np.arange(n_parts + 1) * n // n_parts


def cut_larger_first(n: int, n_parts: int) -> Ints:
    """Boundaries of parts of which the first ones are one larger."""
    sizes = np.full(n_parts, n // n_parts) + (np.arange(n_parts) < n % n_parts)
    return np.concatenate(([0], np.cumsum(sizes)))


def add_grid(
    graph: Graph, element: Type, shape: tuple[int, int, int], boxes: Boxes, name: str
) -> Tensor:
    """A variable whose boxes are on their tiles."""
    grid = graph.add_variable(element, list(shape), name)
    box, begin, end = boxes.rows(shape)
    order = np.argsort(begin, kind="stable")
    tile = boxes.tile[box]
    mapping = TileMapping(begin[order], end[order], tile[order], graph.target.n_tiles)
    graph.set_tile_mapping(grid, mapping)
    return grid


def one_vector_each(grid: Tensor, boxes: Boxes) -> Slices:
    """All elements of each box as one vector."""
    box, begin, end = boxes.rows(grid.shape)  # type: ignore[arg-type]
    flat = grid.flatten()
    runs = Runs(begin + flat.offset, end - begin, np.ones(len(begin), np.int64))
    sizes = np.bincount(box, weights=end - begin, minlength=len(boxes.tile)).astype(np.int64)
    last = np.cumsum(sizes)
    together = Tensor(flat.variables, flat.type, 0, (int(last[-1]),), (1,), Pieces(runs))
    return Slices(together, last - sizes, last)


def one_vector_per_row(grid: Tensor, boxes: Boxes) -> Slices:
    """Each box as a list of its rows along the last dimension."""
    box, begin, end = boxes.rows(grid.shape)  # type: ignore[arg-type]
    start = np.searchsorted(box, np.arange(len(boxes.tile) + 1))
    return Slices(grid.flatten(), begin, end, start)
