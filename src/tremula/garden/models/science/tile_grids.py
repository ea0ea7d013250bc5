"""Grids of cells over tiles: a block for each tile, a band for each worker, halos as views."""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import InvalidOption
from tremula.base.types import FLOAT, Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy
from tremula.poplar.tensors.tensor import Tensor, concat


@dataclass(frozen=True, slots=True)
class Band:
    """Rows of a block that one worker updates: [top, bottom) × [left, right) of the grid."""

    tile: int
    top: int
    bottom: int
    left: int
    right: int

    def of(self, grid: Tensor, halo: int = 0, down: int = 0, right: int = 0) -> Tensor:
        """This band in a grid that has `halo` more cells on each side, moved down and right."""
        top, left = self.top + down, self.left + right
        return grid.slice(
            [top, left], [self.bottom + down + 2 * halo, self.right + right + 2 * halo]
        )


@dataclass(frozen=True, slots=True)
class TileGrid:
    """A grid cut into `blocks` (down, across), one for each tile, row by row."""

    n_rows: int
    n_cols: int
    blocks: tuple[int, int]

    def __post_init__(self) -> None:
        sizes = ("rows", self.n_rows, self.blocks[0]), ("columns", self.n_cols, self.blocks[1])
        for what, n, n_blocks in sizes:
            if not 1 <= n_blocks <= n:
                raise InvalidOption(
                    f"a grid of {n} {what} cannot be cut into {n_blocks} blocks.",
                    hint=f"take between 1 and {n} blocks, so that each has a cell",
                )

    @property
    def n_tiles(self) -> int:
        return self.blocks[0] * self.blocks[1]

    def cuts(self) -> tuple[np.ndarray, np.ndarray]:
        """Where blocks begin and end: int64[blocks + 1] of rows, and of columns."""
        down, across = self.blocks
        return (
            np.arange(down + 1) * self.n_rows // down,
            np.arange(across + 1) * self.n_cols // across,
        )

    def bands(self, n_workers: int) -> list[Band]:
        """Each block in up to `n_workers` bands of whole rows."""
        rows, cols = self.cuts()
        result = []
        for tile in range(self.n_tiles):
            i, j = divmod(tile, self.blocks[1])
            n = int(rows[i + 1] - rows[i])
            n_bands = min(n, n_workers)
            tops = rows[i] + np.arange(n_bands + 1) * n // n_bands
            for top, bottom in zip(tops[:-1].tolist(), tops[1:].tolist(), strict=True):
                result.append(Band(tile, top, bottom, int(cols[j]), int(cols[j + 1])))
        return result

    def add(self, graph: Graph, name: str, type: Type = FLOAT) -> Tensor:
        """A variable of one number for each cell, each block on its tile."""
        grid = graph.add_variable(type, [self.n_rows, self.n_cols], name)
        self._map(graph, grid, self.cuts()[1])
        return grid

    def add_ringed(self, graph: Graph, name: str, type: Type = FLOAT) -> "RingedGrid":
        """A grid of blocks with room for a copy of the opposite cell at both ends of each row."""
        whole = graph.add_variable(type, [self.n_rows, self.n_cols + 2], name)
        cols = self.cuts()[1] + 1
        cols[0], cols[-1] = 0, self.n_cols + 2
        self._map(graph, whole, cols)
        return RingedGrid(whole)

    def _map(self, graph: Graph, grid: Tensor, cols: np.ndarray) -> None:
        rows, _ = self.cuts()
        for tile in range(self.n_tiles):
            i, j = divmod(tile, self.blocks[1])
            block = grid.slice([rows[i], cols[j]], [rows[i + 1], cols[j + 1]])
            graph.set_tile_mapping(block, tile)


@dataclass(frozen=True, slots=True)
class RingedGrid:
    """A grid that wraps around, whose rows with their halos are contiguous.

    In a view like `wrapped` the ends of a row lie apart from it, so a vertex that reads it needs
    the whole row moved together. Here `close_rings` copies only the ends, when cells changed.
    """

    whole: Tensor  # [n_rows, n_cols + 2]

    @property
    def cells(self) -> Tensor:
        """The grid itself."""
        return self.whole[:, 1:-1]

    @property
    def around(self) -> Tensor:
        """The grid with a cell more on each side; rows above and below are views."""
        return concat([self.whole[-1:], self.whole, self.whole[:1]], 0)


def close_rings(grids: list[RingedGrid]) -> Copy:
    """Renews both ends of all rows of these grids, in one exchange."""
    sources = [column for g in grids for column in (g.whole[:, -2:-1], g.whole[:, 1:2])]
    ends = [column for g in grids for column in (g.whole[:, :1], g.whole[:, -1:])]
    return Copy(concat(sources, 0), concat(ends, 0))


def wrapped(grid: Tensor) -> Tensor:
    """The grid with a cell more on each side, taken from the opposite side: a view."""
    tall = concat([grid[-1:], grid, grid[:1]], 0)
    return concat([tall[:, -1:], tall, tall[:, :1]], 1)


def blocks_for(n_tiles: int, n_rows: int, n_cols: int) -> tuple[int, int]:
    """How to cut a grid for n tiles: wide blocks, since rows are read in long vectors.

    A halo of w × h cells is least where blocks are square; but a block's rows are the vectors of
    its vertices, so blocks eight times as wide as high are taken where the tiles allow it.
    """
    shapes = [(down, n_tiles // down) for down in range(1, n_tiles + 1) if n_tiles % down == 0]
    possible = [(down, across) for down, across in shapes if down <= n_rows and across <= n_cols]
    if not possible:
        raise InvalidOption(
            f"{n_tiles} tiles are too many for a grid of {n_rows} × {n_cols} cells.",
            hint="take fewer tiles or a larger grid",
        )
    aspect = 8.0

    def distance(shape: tuple[int, int]) -> float:
        return abs(np.log((n_cols / shape[1]) / (n_rows / shape[0]) / aspect))

    return min(possible, key=distance)


def rows_on_tiles(graph: Graph, name: str, type: Type, n_of_tile: int) -> Tensor:
    """A variable [tiles, n] with a row on each tile."""
    n_tiles = graph.target.n_tiles
    result = graph.add_variable(type, [n_tiles, n_of_tile], name)
    for tile in range(n_tiles):
        graph.set_tile_mapping(result[tile], tile)
    return result
