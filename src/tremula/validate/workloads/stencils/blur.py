"""The 3 × 3 Gaussian blur of an RGBA image of thorbenlouw/lbm-graphcore, on one to 16 chips.

An image is cut over chips, then tiles, then the six workers, by rows or columns. A worker's vertex
gets its part with a halo as one vector, so each sweep gathers it on the tile; an iteration has two
sweeps, from the image to another and back.
"""

import math
from functools import partial
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.cost.slots import VERTEX_OVERHEAD_SLOTS
from tremula.codelets.spec import CostView
from tremula.hardware import Chip, chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Repeat, Sequence
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.validate.rows import MeasuredRow, RowError
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.stencils.compiled_loops import (
    INDEX_SLOTS,
    LOOP_SLOTS,
    GridExpression,
)
from tremula.validate.workloads.stencils.cuts import (
    Boxes,
    add_grid,
    cut_larger_first,
    one_vector_each,
)
from tremula.validate.workloads.table import ModelledValue, workload

FAMILY = "stencils"
N_CHANNELS = 4
ITERATIONS = 100
WEAK_SCALING_MIN_SIDE = 6  # rows and columns of a tile's part at least; other runs had 1
PROFILED_IMAGE = (2200, 1122)  # of the rows that do not name theirs: the largest

# The codelets: element type, and values that one operation handles.
CODELETS = {"float": (FLOAT, 1), "float2": (FLOAT, 2), "half4": (HALF, 4), "half": (HALF, 1)}
PIXEL = GridExpression(n_loads=9, n_operations=11)
ROWS_READ = 3


@family
def blur_codelet(element: Type, width: int) -> type:
    """A worker's part; `width` values are handled at once."""

    class GaussianBlur(Vertex):
        name = f"GaussianBlur<{element},{width}>"
        provenance = "derived"
        image: Input[Vector[element]]  # type: ignore[valid-type]
        blurred: Output[Vector[element]]  # type: ignore[valid-type]

        def compute(self: Any) -> None:
            for i in range(len(self.blurred)):
                self.blurred[i] = self.image[i]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n_pixels = v.sizes["blurred"] // N_CHANNELS
            around = ROWS_READ * INDEX_SLOTS + LOOP_SLOTS
            return VERTEX_OVERHEAD_SLOTS + n_pixels * (N_CHANNELS // width * PIXEL.slots + around)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return PIXEL.n_operations * v.sizes["blurred"]

    return GaussianBlur


def _over_chips(height: int, width: int, n_chips: int) -> list[tuple[Boxes, int]]:
    """Bands of the image: by the dimension that divides more evenly, columns if both do."""
    by_rows = (height % n_chips) / height < (width % n_chips) / width
    cuts = cut_larger_first(height if by_rows else width, n_chips)
    bands = []
    for ipu in range(n_chips):
        low, high = int(cuts[ipu]), int(cuts[ipu + 1])
        first, last = ((low, 0), (high, width)) if by_rows else ((0, low), (height, high))
        box = Boxes(np.array([[*first, 0]]), np.array([[*last, N_CHANNELS]]), np.array([ipu]))
        bands.append((box, ipu))
    return bands


def _over_tiles(band: Boxes, first_tile: int, n_tiles: int, min_side: int) -> Boxes:
    """A grid of parts as square as the band allows; larger ones first."""
    (top, left, _), (bottom, right, _) = band.low[0], band.high[0]
    height, width = int(bottom - top), int(right - left)
    n_across = min(n_tiles, width // min_side, math.ceil(math.sqrt(n_tiles * width / height)))
    n_down = min(n_tiles, height // min_side, n_tiles // n_across)
    rows, columns = cut_larger_first(height, n_down) + top, cut_larger_first(width, n_across) + left
    i, j = (of.ravel() for of in np.meshgrid(np.arange(n_down), np.arange(n_across), indexing="ij"))
    edge = np.zeros_like(i)
    low = np.stack((rows[i], columns[j], edge), axis=1)
    high = np.stack((rows[i + 1], columns[j + 1], edge + N_CHANNELS), axis=1)
    return Boxes(low, high, first_tile + np.arange(len(i)))


def _over_workers(parts: Boxes, n_workers: int) -> Boxes:
    """By rows or columns, whichever leaves less over."""
    low, high, tile = [], [], []
    for at, end, home in zip(parts.low, parts.high, parts.tile, strict=True):
        height, width = end[:2] - at[:2]
        dim = int((height % n_workers) / height > (width % n_workers) / width)
        n = min((height, width)[dim], n_workers)
        cuts = cut_larger_first(int((height, width)[dim]), int(n)) + at[dim]
        first, last = np.repeat(at[None], n, 0), np.repeat(end[None], n, 0)
        first[:, dim], last[:, dim] = cuts[:-1], cuts[1:]
        low.append(first)
        high.append(last)
        tile.append(np.full(n, home))
    return Boxes(np.concatenate(low), np.concatenate(high), np.concatenate(tile))


def time_blur(
    chip_name: str, n_chips: int, image: tuple[int, int], codelet: str, min_side: int, n_times: int
) -> Timing:
    """`n_times` iterations over an image of (width, height)."""
    element, at_once = _element_of(codelet)
    tiles = _tiles_of(chip_name, n_chips, image, min_side)
    shape = image[1], image[0], N_CHANNELS
    build = partial(_build, tiles, shape, element, at_once, n_times)
    return time_program(chip_name, n_chips, build)


def _element_of(codelet: str) -> tuple[Type, int]:
    if codelet not in CODELETS:
        raise RowError(
            f"codelet {codelet!r} is not known.", hint=f"use one of {', '.join(CODELETS)}"
        )
    return CODELETS[codelet]


def _tiles_of(chip_name: str, n_chips: int, image: tuple[int, int], min_side: int) -> Boxes:
    """The part of each tile."""
    width, height = image
    here = chip(chip_name)
    bands = _over_chips(height, width, n_chips)
    parts = [_over_tiles(band, ipu * here.n_tiles, here.n_tiles, min_side) for band, ipu in bands]
    return Boxes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _build(
    tiles: Boxes, shape: tuple[int, int, int], element: Type, at_once: int, n_times: int,
    graph: Graph, sequence: Sequence,
) -> None:  # fmt: skip
    images = [add_grid(graph, element, shape, tiles, name) for name in ("image", "blurred")]
    workers = _over_workers(tiles, graph.target.chip.n_workers)
    with_halo = workers.widened((1, 1, 0), shape)
    once = Sequence()
    for source, target in (images, images[::-1]):
        sweep = graph.add_compute_set("sweep")
        fields = {
            "image": one_vector_each(source, with_halo), "blurred": one_vector_each(target, workers)
        }  # fmt: skip
        graph.add_vertices(sweep, blur_codelet(element, at_once), fields, tiles=workers.tile)
        once.add(Execute(sweep))
    sequence.add(Repeat(n_times, once))


def _codelet_of(row: MeasuredRow) -> str:
    return row.text("codelet", row.text("dtype", "float"))


@workload("Gaussian blur of an RGBA image", FAMILY)
def blur(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """The time of all iterations."""
    wide, high = row.sizes("image")[:2]
    n_times = row.number("iterations", ITERATIONS)
    timing = time_blur(chip_name, row.n_ipus, (wide, high), _codelet_of(row), 1, n_times)
    return ModelledValue.of(timing)


@workload("Gaussian blur weak scaling", FAMILY)
def weak_scaling(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """An image that grows with the chips: columns of 1000 pixels, 500 for each chip."""
    wide, high = row.sizes("per_ipu")[:2]
    image = wide * row.n_ipus, high
    n_times = row.number("iterations", ITERATIONS)
    timing = time_blur(
        chip_name, row.n_ipus, image, _codelet_of(row), WEAK_SCALING_MIN_SIDE, n_times
    )
    return ModelledValue.of(timing)


@workload("Gaussian blur, one iteration, compute step only", FAMILY)
def one_sweep(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Cycles inside the vertices of one sweep, as the profile has them: all is in place already."""
    element, at_once = _element_of(_codelet_of(row))
    wide, high = row.sizes("image")[:2] if row.has("image") else PROFILED_IMAGE
    tiles = _tiles_of(chip_name, row.n_ipus, (wide, high), 1)

    def build(graph: Graph, sequence: Sequence) -> None:
        workers = _over_workers(tiles, graph.target.chip.n_workers)
        ends = np.cumsum(np.prod(workers.sizes, axis=1))
        begins = np.concatenate(([0], ends[:-1]))
        fields = {}
        for name in ("image", "blurred"):
            values = graph.add_variable(element, [int(ends[-1])], name)
            mapping = TileMapping(begins, ends, workers.tile, graph.target.n_tiles)
            graph.set_tile_mapping(values, mapping)
            fields[name] = Slices(values, begins, ends)
        sweep = graph.add_compute_set("sweep")
        graph.add_vertices(sweep, blur_codelet(element, at_once), fields, tiles=workers.tile)
        sequence.add(Execute(sweep))

    timing = time_program(chip_name, row.n_ipus, build)
    return ModelledValue(timing.compute, timing.clock_hz, steps=timing.steps)
