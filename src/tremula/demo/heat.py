"""The heat equation on a plate, one block per tile: what `tremula demo --tiles` runs."""

from typing import Any

import numpy as np

import tremula as tr
from tremula import FLOAT, Input, Output, Vector, Vertex, float32


class HeatBlock(Vertex):
    """One explicit step of the heat equation on a block; its rows include their halos."""

    above_to_below: Vector[Input[Vector[float32]]]
    out: Vector[Output[Vector[float32]]]

    def compute(self: Any) -> None:
        for i in range(len(self.out)):
            north = self.above_to_below[i]
            row = self.above_to_below[i + 1]
            south = self.above_to_below[i + 2]
            out = self.out[i]
            for j in range(len(out)):
                out[j] = row[j + 1] + float32(0.1) * (
                    north[j + 1] + south[j + 1] + row[j] + row[j + 2] - float32(4.0) * row[j + 1]
                )


def heat_engine(n: int, n_steps: int, grid: tuple[int, int], chip: str = "bow") -> tr.Engine:
    """The n x n heat equation with fixed borders, one block per tile, two buffers."""
    n_blocks = grid[0] * grid[1]
    graph = tr.Graph(tr.IPUModel(chip).create_device())
    a = graph.add_variable(FLOAT, [n, n], "a")
    b = graph.add_variable(FLOAT, [n, n], "b")
    rows = np.arange(grid[0] + 1) * n // grid[0]
    columns = np.arange(grid[1] + 1) * n // grid[1]
    for tensor in (a, b):
        for block in range(n_blocks):
            i, j = divmod(block, grid[1])
            part = tensor.slice([rows[i], columns[j]], [rows[i + 1], columns[j + 1]])
            graph.set_tile_mapping(part, block)
    steps = [
        tr.Execute(_heat_set(graph, source, target, rows, columns, grid))
        for source, target in ((a, b), (b, a))
    ]
    graph.create_host_write("a", a)
    graph.create_host_write("b", b)
    graph.create_host_read("plate", b if n_steps % 2 else a)
    pairs = tr.Repeat(n_steps // 2, tr.Sequence(steps))
    return tr.Engine(graph, tr.Sequence([pairs, *steps[: n_steps % 2]]))


def _heat_set(
    graph: tr.Graph,
    source: tr.Tensor,
    target: tr.Tensor,
    rows: np.ndarray,
    columns: np.ndarray,
    grid: tuple[int, int],
) -> tr.ComputeSet:
    n = source.shape[0]
    compute_set = graph.add_compute_set("heat")
    for block in range(grid[0] * grid[1]):
        i, j = divmod(block, grid[1])
        top, bottom = max(rows[i], 1), min(rows[i + 1], n - 1)
        left, right = max(columns[j], 1), min(columns[j + 1], n - 1)
        fields = {
            "above_to_below": source.slice([top - 1, left - 1], [bottom + 1, right + 1]),
            "out": target.slice([top, left], [bottom, right]),
        }
        graph.add_vertex(compute_set, HeatBlock, fields, tile=block)
    return compute_set
