"""Equations on three-dimensional grids: heat, diffusion and waves of simehaa/IPU and its successor.

A grid is cut over chips along its last dimension, and on each chip into as many boxes as it has
tiles, with the least surface; six workers share a box as 2 × 3. A vertex gets its rows as a list of
vectors, with a halo as wide as half the space order. Values go from one grid to the next and back:
TszwangKo/FYP_IPU_DEVITO has the programs, their codelets and the partitions.
"""

from collections.abc import Callable
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from tremula.base.types import FLOAT, float32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.cost.slots import VERTEX_OVERHEAD_SLOTS
from tremula.codelets.spec import CostView
from tremula.hardware import Chip, chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Execute, Sequence
from tremula.poplibs.families import family
from tremula.validate.rows import MeasuredRow, RowError
from tremula.validate.timing import Timing, time_program
from tremula.validate.workloads.stencils.blur import FAMILY
from tremula.validate.workloads.stencils.compiled_loops import (
    LOOP_SLOTS,
    ROW_POINTER_SLOTS,
    GridExpression,
)
from tremula.validate.workloads.stencils.cuts import (
    Boxes,
    add_grid,
    cut_evenly,
    one_vector_per_row,
)
from tremula.validate.workloads.table import ModelledValue, workload

WORKERS = (2, 3)
SIDE = 320  # of a grid that a row does not state
Shape = tuple[int, int, int]
Ints = np.ndarray
RowSlots = Callable[[Ints], Ints]  # slots of a worker for rows of these lengths


class StencilEquation(NamedTuple):
    """What a vertex reads and computes."""

    name: str
    halo: int
    n_others: int  # grids that are read without a halo
    row_slots: RowSlots


def diffusion(order: int) -> StencilEquation:
    """Three second differences and the value itself: a pair of neighbours per coefficient."""
    per_dim = 3 * (order // 2) + 1
    point = GridExpression(
        n_loads=1 + 3 * order, n_operations=1 + 3 * per_dim + 6, n_members=6,
        n_pointers=2 * order + 2,
    )  # fmt: skip
    return StencilEquation(f"diffusion{order}", order // 2, 0, partial(_compiled_rows, point))


def wave(order: int) -> StencilEquation:
    """Two steps back in time, damping and a velocity for each point; two divisions."""
    point = GridExpression(
        n_loads=1 + 3 * order + 3, n_operations=3 + 6 * order, n_members=2, n_divisions=2,
        n_pointers=2 * order + 5,
    )  # fmt: skip
    return StencilEquation(f"wave{order}", order // 2, 3, partial(_compiled_rows, point))


def _compiled_rows(point: GridExpression, length: Ints) -> Ints:
    return point.n_pointers * ROW_POINTER_SLOTS + length * (point.slots + LOOP_SLOTS)


# HeatEquationOptimized in the published listing (codelets.S): a turn of the loop over pairs; the
# first and the last point of a row (both at once if the length is even); a row in both loops.
PAIR_SLOTS, FIRST_SLOTS, FIRST_AND_LAST_SLOTS, PAIRED_ROW_SLOTS = 16, 22, 43, 37
SIMPLE_POINT_SLOTS, SIMPLE_ROW_SLOTS = 15, 75  # HeatEquationSimple: a point, a row


def _heat_rows(length: Ints) -> Ints:
    ends = np.where(length % 2 == 0, FIRST_AND_LAST_SLOTS, FIRST_SLOTS)
    return ends + PAIRED_ROW_SLOTS + PAIR_SLOTS * (-(-length // 2) - 1)


def _simple_heat_rows(length: Ints) -> Ints:
    return SIMPLE_ROW_SLOTS + SIMPLE_POINT_SLOTS * length


HEAT = StencilEquation("heat", 1, 0, _heat_rows)
SIMPLE_HEAT = StencilEquation("simple_heat", 1, 0, _simple_heat_rows)


@family
def stencil_codelet(equation: StencilEquation) -> type:
    """A worker's box: rows with a halo, rows of other grids, and rows of the result."""

    class GridStencil(Vertex):
        name = f"GridStencil<{equation.name}>"
        provenance = "derived"
        around: Vector[Input[Vector[float32]]]
        others: Vector[Input[Vector[float32]]]
        result: Vector[Output[Vector[float32]]]

        def compute(self: Any) -> None:
            for i in range(len(self.result)):
                for j in range(len(self.result[i])):
                    self.result[i][j] = self.around[i][j]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n_rows = v.n_subs["result"]
            length = v.sizes["result"] // np.maximum(n_rows, 1)
            return VERTEX_OVERHEAD_SLOTS + n_rows * equation.row_slots(length)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * v.sizes["result"]

    return GridStencil


# -- cuts ------------------------------------------------------------------------------------------


def tile_splits(shape: Shape, halo: int, n_ipus: int, n_tiles: int) -> Shape:
    """Factors of the tiles with the least surface of a box, in whichever order of dimensions.

    As the programs do: the factors are then used in the order in which they were tried.
    """
    inner = [n - 2 * halo for n in shape]
    inner[2] //= n_ipus
    best, least = (1, 1, n_tiles), float("inf")
    for i in (n for n in range(1, n_tiles + 1) if n_tiles % n == 0):
        for j in (n for n in range(1, n_tiles // i + 1) if n_tiles // i % n == 0):
            factors = i, j, n_tiles // i // j
            for order in permutations(factors):
                a, b, c = (n / parts for n, parts in zip(inner, order, strict=True))
                if (surface := 2 * (a * b + b * c + a * c)) <= least:
                    best, least = factors, surface
    return best


def _outer(*cuts: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """(low, high) int64[n, 3] of all boxes between (low, high) of three dimensions."""
    at = np.meshgrid(*(np.arange(len(low)) for low, _ in cuts), indexing="ij")
    low, high = (
        np.stack([cut[side][i.ravel()] for cut, i in zip(cuts, at, strict=True)], axis=1)
        for side in (0, 1)
    )
    return low, high


def _homes(n: int, n_parts: int) -> tuple[Ints, Ints]:
    """Where parts of n points are: edges belong to the first and the last."""
    cuts = cut_evenly(n - 2, n_parts)
    low, high = cuts[:-1] + 1, cuts[1:] + 1
    low[0], high[-1] = 0, n
    return low, high


def _homes_of_grid(shape: Shape, splits: Shape, n_ipus: int, n_tiles: int) -> Boxes:
    parts = []
    for ipu, (first, last) in enumerate(zip(*_homes(shape[2], n_ipus), strict=True)):
        low, high = _homes(int(last - first), splits[2])
        box = _outer(*(_homes(shape[d], splits[d]) for d in (0, 1)), (low + first, high + first))
        parts.append(Boxes(*box, ipu * n_tiles + np.arange(len(box[0]))))
    return Boxes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _computed(n: int, n_parts: int, halo: int) -> tuple[Ints, Ints]:
    cuts = cut_evenly(n - 2 * halo, n_parts) + halo
    return cuts[:-1], cuts[1:]


def _boxes_of_workers(shape: Shape, halo: int, splits: Shape, n_ipus: int, n_tiles: int) -> Boxes:
    """What each worker computes."""
    parts = []
    planes = cut_evenly(shape[2] - 2 * halo, n_ipus)
    for ipu in range(n_ipus):
        depth = int(planes[ipu + 1] - planes[ipu]) + 2 * halo
        low, high = _computed(depth, splits[2], halo)
        sides = [_computed(shape[d], splits[d], halo) for d in (0, 1)]
        box = _outer(*sides, (low + planes[ipu], high + planes[ipu]))
        parts.append(_split_over_workers(*box, ipu * n_tiles + np.arange(len(box[0]))))
    return Boxes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _split_over_workers(low: Ints, high: Ints, tile: Ints) -> Boxes:
    parts = []
    for i in range(WORKERS[0]):
        for j in range(WORKERS[1]):
            first, last = low.copy(), high.copy()
            for d, at in ((0, i), (1, j)):
                size = high[:, d] - low[:, d]
                first[:, d] = low[:, d] + at * size // WORKERS[d]
                last[:, d] = low[:, d] + (at + 1) * size // WORKERS[d]
            some = np.all(last > first, axis=1)
            parts.append(Boxes(first[some], last[some], tile[some]))
    return Boxes(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


# -- programs --------------------------------------------------------------------------------------


def time_step(chip_name: str, n_ipus: int, shape: Shape, equation: StencilEquation) -> Timing:
    """One step in time, from one grid to the next."""
    n_tiles = chip(chip_name).n_tiles
    splits = tile_splits(shape, equation.halo, n_ipus, n_tiles)
    homes = _homes_of_grid(shape, splits, n_ipus, n_tiles)
    workers = _boxes_of_workers(shape, equation.halo, splits, n_ipus, n_tiles)

    def build(graph: Graph, sequence: Sequence) -> None:
        now, then = (add_grid(graph, FLOAT, shape, homes, name) for name in ("now", "then"))
        halo = equation.halo
        wide = workers.widened((halo, halo, halo), shape)
        others = [
            add_grid(graph, FLOAT, shape, homes, f"other{i}") for i in range(equation.n_others)
        ]
        step = graph.add_compute_set(equation.name)
        fields = {
            "around": one_vector_per_row(now, wide),
            "others": one_vector_per_row(others[0] if others else now, workers),
            "result": one_vector_per_row(then, workers),
        }
        graph.add_vertices(step, stencil_codelet(equation), fields, tiles=workers.tile)
        sequence.add(Execute(step))

    return time_program(chip_name, n_ipus, build)


def _shape_of(row: MeasuredRow) -> Shape:
    name = next((n for n in ("grid", "size", "mesh") if row.has(n)), None)
    sizes = row.sizes(name) if name else (SIDE,) * 3
    if len(sizes) not in (1, 3):
        raise RowError(f"row {row.id!r} has a grid of {sizes}.", hint="give three sizes")
    return sizes if len(sizes) == 3 else sizes * 3  # type: ignore[return-value]


def _modelled(row: MeasuredRow, chip_name: str, equation: StencilEquation) -> ModelledValue:
    """A time of all steps, or points a second."""
    shape = _shape_of(row)
    timing = time_step(chip_name, row.n_ipus, shape, equation)
    n_steps = row.number("steps", row.number("iterations", 1))
    n_items = float(np.prod(shape, dtype=np.int64)) * n_steps
    return ModelledValue(
        timing.cycles * n_steps, timing.clock_hz, n_items=n_items, steps=timing.steps
    )


@workload("3D diffusion", FAMILY, gbytes=3)
def diffusion_rate(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _modelled(row, chip_name, diffusion(row.number("space_order", 2)))


@workload("3D wave", FAMILY, gbytes=3)
def wave_rate(row: MeasuredRow, chip_name: str) -> ModelledValue:
    return _modelled(row, chip_name, wave(row.number("space_order", 4)))


@workload("3D heat", FAMILY, gbytes=3)
def heat_time(row: MeasuredRow, chip_name: str) -> ModelledValue:
    """Seven points; the optimised vertex handles pairs along a row."""
    is_simple = "simple" in row.details.lower()
    return _modelled(row, chip_name, SIMPLE_HEAT if is_simple else HEAT)
