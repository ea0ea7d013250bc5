"""Needleman and Wunsch on tiles: the matrix in strips, one per worker, that run one after another.

Each worker owns a strip of columns. In step t, strip s computes block t - s of its rows. It reads
the last column of strip s - 1 for these rows, which that strip computed in step t - 1. So all
strips work at once after a while, and each step exchanges one column of a block for each strip:

    Repeat n_blocks + n_strips - 1:
        Execute   every strip that has a block
        Copy      each strip's last column to the next strip

Every cell keeps where its score came from; the host walks back along that.

    S. B. Needleman, C. D. Wunsch, A general method applicable to the search for similarities, 1970
"""

from typing import Any

import numpy as np

import tremula as tr
from tremula import InOut, Input, Output, Vector, Vertex, int32
from tremula.base.errors import InvalidOption

MATCH, MISMATCH, GAP = 1, -1, -1
DIAGONAL, UP, LEFT = 0, 1, 2  # where a score came from


class StripBlock(Vertex):
    """The next block of a strip's rows, if it is time for it."""

    down: Input[Vector[tr.UNSIGNED_CHAR]]  # the sequence along the rows, all of it
    across: Input[Vector[tr.UNSIGNED_CHAR]]  # the part of the other that belongs to this strip
    left: Input[Vector[int32]]  # scores of the column before the strip, for this block
    right: Output[Vector[int32]]  # scores of its last column
    above: InOut[Vector[int32]]  # scores of the row above the block
    corner: InOut[int32]  # the score above `left`
    turn: InOut[int32]
    came_from: InOut[Vector[tr.UNSIGNED_CHAR]]  # of all the strip's cells, row by row
    strip: int32  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        n, height = len(self.across), len(self.right)
        block = self.turn - self.strip
        self.turn += 1
        if block >= 0 and block * height < len(self.down):
            diagonal_start = self.corner
            for i in range(height):
                row = block * height + i
                letter = self.down[row]
                before = GAP * (row + 1) if self.strip == 0 else self.left[i]
                diagonal = diagonal_start
                diagonal_start = before
                for j in range(n):
                    over = self.above[j]
                    matched = diagonal + (MATCH if self.across[j] == letter else MISMATCH)
                    from_up, from_left = over + GAP, before + GAP
                    best = max(matched, from_up, from_left)
                    self.came_from[row * n + j] = (
                        DIAGONAL if best == matched else (UP if best == from_up else LEFT)
                    )
                    diagonal = over
                    before = best
                    self.above[j] = best
                self.right[i] = before
            self.corner = diagonal_start


def wavefront_engine(
    n_down: int, n_across: int, n_tiles: int, block: int, chip: str = "bow"
) -> tr.Engine:
    """Handles: down, across to write; score, came_from [n_strips, n_down, width] to read."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    n_strips = n_tiles * graph.target.n_worker_contexts
    if n_across % n_strips or n_down % block:
        raise InvalidOption(
            f"{n_across} letters cannot be cut into {n_strips} strips, or {n_down} into blocks of "
            f"{block}.",
            hint=f"take multiples of {n_strips} and of {block}",
        )
    width, n_workers = n_across // n_strips, graph.target.n_worker_contexts
    tiles = np.arange(n_strips) // n_workers
    down = graph.add_variable(tr.UNSIGNED_CHAR, [n_down], "down", mapping=0)
    everywhere = _spread(graph, tr.UNSIGNED_CHAR, [n_tiles, n_down], "down", np.arange(n_tiles))
    sizes = {
        "across": (tr.UNSIGNED_CHAR, [width]),
        "left": (tr.INT, [block]),
        "right": (tr.INT, [block]),
        "above": (tr.INT, [width]),
        "came_from": (tr.UNSIGNED_CHAR, [n_down * width]),
        "corner": (tr.INT, []),
        "turn": (tr.INT, []),
    }
    of_strips = {
        name: _spread(graph, element, [n_strips, *size], name, tiles)
        for name, (element, size) in sizes.items()
    }
    step = graph.add_compute_set("strips")
    shared = everywhere.expand([1]).broadcast(n_workers, 1).reshape([n_strips, n_down])
    fields = {**of_strips, "down": shared, "strip": np.arange(n_strips)}
    graph.add_vertices(step, StripBlock, fields, tiles=tiles)
    shift = tr.Copy(of_strips["right"][:-1], of_strips["left"][1:], name="to the next strip")
    wave = tr.Repeat(n_down // block + n_strips - 1, tr.Sequence([tr.Execute(step), shift]))
    start = _start(graph, of_strips, width)
    spread = tr.Copy(down.expand([0]).broadcast(n_tiles), everywhere)
    graph.create_host_write("down", down)
    graph.create_host_write("across", of_strips["across"].flatten())
    graph.create_host_read("score", of_strips["above"][n_strips - 1, width - 1])
    came_from = of_strips["came_from"].reshape([n_strips, n_down, width])
    graph.create_host_read("came_from", came_from)
    return tr.Engine(graph, tr.Sequence([*start, spread, wave]))


def _spread(
    graph: tr.Graph, element: tr.Type, shape: list[int], name: str, tiles: np.ndarray
) -> tr.Tensor:
    """A variable whose row i is on tile tiles[i]."""
    tensor = graph.add_variable(element, shape, name)
    for row, tile in enumerate(tiles.tolist()):
        graph.set_tile_mapping(tensor[row], tile)
    return tensor


def _start(graph: tr.Graph, of_strips: dict[str, tr.Tensor], width: int) -> list[tr.Program]:
    """Scores above the first row: gaps all the way."""
    n_strips = len(of_strips["turn"])
    first = np.arange(n_strips) * width
    values = {
        "turn": np.zeros(n_strips, np.int32),
        "corner": GAP * first,
        "above": GAP * (first[:, None] + np.arange(width) + 1),
    }
    copies: list[tr.Program] = []
    for name, start in values.items():
        constant = graph.add_constant(tr.INT, list(start.shape), start.ravel(), f"first {name}")
        graph.map_linearly(constant)
        copies.append(tr.Copy(constant, of_strips[name]))
    return copies


def aligned(engine: tr.Engine, down: np.ndarray, across: np.ndarray) -> tuple[int, str, str]:
    """The best score, and both sequences with gaps; letters are bytes."""
    engine.write_tensor("down", down)
    engine.write_tensor("across", across)
    engine.run()
    came_from = engine.read_tensor("came_from").swapaxes(0, 1).reshape(len(down), len(across))
    return int(engine.read_tensor("score")), *traced(came_from, down, across)


def traced(came_from: np.ndarray, down: np.ndarray, across: np.ndarray) -> tuple[str, str]:
    """The way back from the last cell, as two rows of letters and gaps."""
    i, j = came_from.shape
    first: list[str] = []
    second: list[str] = []
    while i or j:
        way = UP if j == 0 else LEFT if i == 0 else int(came_from[i - 1, j - 1])
        first.append("-" if way == LEFT else chr(down[i - 1]))
        second.append("-" if way == UP else chr(across[j - 1]))
        i, j = i - (way != LEFT), j - (way != UP)
    return "".join(reversed(first)), "".join(reversed(second))


def score_of(first: str, second: str) -> int:
    """The score of an alignment that is written out."""
    return sum(
        GAP if "-" in (a, b) else MATCH if a == b else MISMATCH
        for a, b in zip(first, second, strict=True)
    )
