"""The heat equation on a plate as a tile program: a compute set, halos as views, two buffers."""

from typing import Any

import tremula as tr
from tremula import Input, Output, Vector, Vertex, float32
from tremula.garden.models.science.tile_grids import TileGrid


class Heat(Vertex):
    """One explicit step on a band of cells; `cells` has one more on each side than `out`."""

    cells: Vector[Input[Vector[float32]]]
    out: Vector[Output[Vector[float32]]]
    conductivity: float32  # times time step, over the square of a cell's side  # pyright: ignore[reportInvalidTypeForm]

    def compute(self: Any) -> None:
        rate = self.conductivity
        for i in range(len(self.out)):
            north = self.cells[i]
            row = self.cells[i + 1]
            south = self.cells[i + 2]
            out = self.out[i]
            for j in range(len(out)):
                out[j] = row[j + 1] + rate * (
                    north[j + 1] + south[j + 1] + row[j] + row[j + 2] - float32(4.0) * row[j + 1]
                )


def heat_engine(
    n: int, n_steps: int, blocks: tuple[int, int], rate: float, chip: str = "bow"
) -> tr.Engine:
    """`n_steps` on a plate of n x n cells whose border stays as it is; handles: plate, result.

    Blocks are cut from the cells within the border. Steps go to and fro between two buffers, so
    nothing is copied back.
    """
    inner = TileGrid(n - 2, n - 2, blocks)
    device = tr.IPUModel(chip, tiles_per_ipu=inner.n_tiles).create_device()
    graph = tr.Graph(device)
    plate = TileGrid(n, n, blocks)
    a, b = plate.add(graph, "a"), plate.add(graph, "b")
    for buffer in (a, b):  # the border's cells live with their block
        _map_inner(graph, buffer, inner)
    steps = [tr.Execute(_step(graph, inner, *way, rate)) for way in ((a, b), (b, a))]
    graph.create_host_write("plate", a)
    graph.create_host_read("result", b if n_steps % 2 else a)
    pairs = tr.Repeat(n_steps // 2, tr.Sequence(steps))
    return tr.Engine(graph, tr.Sequence([tr.Copy(a, b), pairs, *steps[: n_steps % 2]]))


def _map_inner(graph: tr.Graph, buffer: tr.Tensor, inner: TileGrid) -> None:
    for band in inner.bands(1):
        graph.set_tile_mapping(band.of(buffer, down=1, right=1), band.tile)


def _step(
    graph: tr.Graph, inner: TileGrid, source: tr.Tensor, target: tr.Tensor, rate: float
) -> tr.ComputeSet:
    compute_set = graph.add_compute_set("heat")
    for band in inner.bands(graph.target.n_worker_contexts):
        fields = {
            "cells": band.of(source, halo=1),
            "out": band.of(target, down=1, right=1),
            "conductivity": rate,
        }
        graph.add_vertex(compute_set, Heat, fields, tile=band.tile)
    return compute_set
