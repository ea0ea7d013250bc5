"""Column panels: the layout and the shared steps of Cholesky, LU, QR and triangular solve.

A matrix is cut into panels of a few columns; each panel lies row by row on one tile, so that any
range of its rows is one piece of memory. A step takes one panel and applies it to all others.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, float32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Vector
from tremula.codelets.cost.slots import LAUNCH_CYCLES
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import PoplibsError

DEFAULT_WIDTH = 16  # columns of a panel: as many as the matrix unit has outputs

# Cycles: launching the workers, and a worker's entry and exit, as for other vector codelets.
START_SLOTS = 20
DIVIDE_SLOTS, SQRT_SLOTS = 3, 5
# The matrix unit in float: 8 inputs × 16 outputs per pass; the published cost of a 1×1 convolution.
AMP_INPUTS, AMP_OUTPUTS = 8, 16
AMP_SUPERVISOR, AMP_PASS, AMP_FIRST_ROWS, AMP_ROW = 50, 39, 46, 8


def sum_below(n: np.ndarray, term: Callable[[int], np.ndarray]) -> np.ndarray:
    """For each vertex the sum of term(j) over j < n; n is at most the width of a panel."""
    last = int(n.max(initial=0))
    return sum((np.where(j < n, term(j), 0) for j in range(last)), np.zeros(len(n), np.int64))


def state(v: CostView, name: str) -> np.ndarray:
    """A state column as int64, so that products of sizes do not overflow."""
    return v.state[name].astype(np.int64)


@dataclass(frozen=True, slots=True)
class Panels:
    """A batch of matrices [n_batches, n_rows, n_columns] as column panels of a flat variable."""

    graph: Graph
    flat: Tensor
    n_batches: int
    n_rows: int
    n_columns: int
    width: int

    @property
    def n_panels(self) -> int:
        return -(-self.n_columns // self.width)

    def first_column(self, panel: np.ndarray | int) -> np.ndarray:
        return np.minimum(np.asarray(panel, np.int64) * self.width, self.n_columns)

    def widths(self, panel: np.ndarray | int) -> np.ndarray:
        return self.first_column(np.asarray(panel) + 1) - self.first_column(panel)

    def tiles(self, batch: np.ndarray, panel: np.ndarray) -> np.ndarray:
        """The tile of a panel: one after the other, around all tiles."""
        return (batch * self.n_panels + panel) % self.graph.target.n_tiles

    def rows(
        self, batch: np.ndarray, panel: np.ndarray, first: np.ndarray | int, end: np.ndarray | int
    ) -> Slices:
        """Rows first … end of panels, a slice each."""
        start = batch * self.n_rows * self.n_columns + self.n_rows * self.first_column(panel)
        width = self.widths(panel)
        return Slices(self.flat, start + first * width, start + end * width)

    def matrix(self) -> Tensor:
        """The panels as a view [n_batches, n_rows, n_columns]."""
        n_whole = self.n_columns // self.width
        by_batch = self.flat.reshape((self.n_batches, self.n_rows * self.n_columns))
        cut = self.n_rows * n_whole * self.width
        whole = by_batch.slice(0, cut, 1)
        whole = whole.reshape((self.n_batches, n_whole, self.n_rows, self.width))
        shape = (self.n_batches, self.n_rows, n_whole * self.width)
        whole = whole.dim_shuffle([0, 2, 1, 3]).reshape(shape)
        n_rest = self.n_columns - n_whole * self.width
        if not n_rest:
            return whole
        rest = by_batch.slice(cut, by_batch.shape[1], 1)
        rest = rest.reshape((self.n_batches, self.n_rows, n_rest))
        return concat([whole, rest], 2) if n_whole else rest

    def every(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        """(batch, panel) of the panels first … end of all batches."""
        batch, panel = np.divmod(np.arange(self.n_batches * (end - first)), max(end - first, 1))
        return batch, panel + first


def add_panels(
    graph: Graph, shape: tuple[int, int, int], name: str, width: int = DEFAULT_WIDTH
) -> Panels:
    """New panels for a shape [n_batches, n_rows, n_columns], mapped."""
    if width < 1:
        raise PoplibsError(
            f"panels of {name!r} are {width} columns wide.",
            source=user_source(),
            hint="give a panel_width of at least 1",
        )
    flat = graph.add_variable(FLOAT, [prod(shape)], name)
    panels = Panels(graph, flat, *shape, width)
    batch, panel = panels.every(0, panels.n_panels)
    part = panels.rows(batch, panel, 0, panels.n_rows)
    tiles = panels.tiles(batch, panel)
    graph.set_tile_mapping(flat, TileMapping(part.begin, part.end, tiles, graph.target.n_tiles))
    return panels


def copied_panels(
    graph: Graph, matrix: Tensor, sequence: Sequence, name: str, width: int = DEFAULT_WIDTH
) -> Panels:
    """A [n_batches, n_rows, n_columns] tensor copied into new panels."""
    panels = add_panels(graph, matrix.shape, name, width)  # pyright: ignore[reportArgumentType]
    sequence.add(Copy(matrix, panels.matrix()))
    return panels


def as_batch(op: str, tensor: Tensor, what: str = "the matrix") -> Tensor:
    """A tensor [..., n_rows, n_columns] with its leading dimensions merged; FLOAT only."""
    if tensor.type is not FLOAT:
        raise PoplibsError(
            f"{op} works on float, got {what} of {tensor.type}.",
            source=user_source(),
            hint="cast it: popops.cast(graph, tensor, FLOAT, sequence)",
        )
    if tensor.rank < 2:
        raise PoplibsError(
            f"{op} expected {what} of shape [..., n_rows, n_columns], got {list(tensor.shape)}.",
            source=user_source(),
            hint="give a tensor of rank 2 or more; leading dimensions are a batch",
        )
    n_batches = prod(tensor.shape[:-2])
    return tensor.reshape((n_batches, *tensor.shape[-2:]))


def check_square(op: str, tensor: Tensor) -> None:
    if tensor.shape[-1] != tensor.shape[-2]:
        raise PoplibsError(
            f"{op} expected square matrices, got shape {list(tensor.shape)}.",
            source=user_source(),
            hint="the last two dimensions must be equal",
        )


def check_width(op: str, width: int) -> None:
    if width < 1:
        raise PoplibsError(
            f"{op} got a panel_width of {width}.", source=user_source(), hint="use 1 or more"
        )


@dataclass(frozen=True, slots=True)
class PanelStep:
    """Adds the vertices of one compute set over panels."""

    panels: Panels
    sequence: Sequence
    name: str

    def run(
        self, codelet: type, batch: np.ndarray, panel: np.ndarray, fields: Mapping[str, object]
    ) -> None:
        """One vertex per (batch, panel), on the panel's tile."""
        if len(batch):
            tiles = self.panels.tiles(batch, panel)
            run_vertices(self.panels.graph, codelet, fields, tiles, self.sequence, self.name)

    def subtract_product(
        self,
        chosen: tuple[np.ndarray, np.ndarray],
        out: Slices,
        left: Slices,
        right: Slices,
        *,
        n_inner: int,
        left_stride: int,
        is_right_transposed: bool = False,
    ) -> None:
        """Subtract left · right from rows `out` of the chosen panels (batch, panel)."""
        width = self.panels.widths(chosen[1])
        fields = {
            "out": out,
            "left": left,
            "right": right,
            "n_columns": width,
            "n_inner": n_inner,
            "left_stride": left_stride,
            "right_stride": 1 if is_right_transposed else width,
            "right_step": n_inner if is_right_transposed else 1,
        }
        self.run(panel_update_codelet(), *chosen, fields)


@family
def panel_update_codelet() -> type:
    """Subtract left · right from out, by rows; `right` may be read transposed."""

    class PanelUpdate(MultiVertex):
        name = "poplin::PanelUpdate<float>"
        provenance = "derived"
        matrix_types = (FLOAT, FLOAT)
        out: InOut[Vector[float32]]
        left: Input[Vector[float32]]
        right: Input[Vector[float32]]
        n_columns: uint32  # of out
        n_inner: uint32
        left_stride: uint32
        right_stride: uint32  # from one k to the next
        right_step: uint32  # from one column to the next

        def compute(self: Any, worker_id: int) -> None:
            out, left, right = self.out, self.left, self.right
            n_columns, n_inner = int(self.n_columns), int(self.n_inner)
            stride, right_stride = int(self.left_stride), int(self.right_stride)
            step, n_rows = int(self.right_step), len(self.out) // int(self.n_columns)
            begin = n_rows * worker_id // self.n_workers
            end = n_rows * (worker_id + 1) // self.n_workers
            for i in range(begin, end):
                for k in range(n_inner):
                    factor = left[i * stride + k]
                    for j in range(n_columns):
                        at = k * right_stride + j * step
                        out[i * n_columns + j] -= factor * right[at]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            columns, inner = state(v, "n_columns"), state(v, "n_inner")
            n_passes = ceil_div(inner, AMP_INPUTS) * ceil_div(columns, AMP_OUTPUTS)
            rows = ceil_div(v.sizes["out"] // columns, chip.n_workers)
            worker = AMP_FIRST_ROWS + AMP_ROW * np.maximum(rows - 3, 0)
            return AMP_SUPERVISOR + n_passes * (AMP_PASS + chip.n_workers * worker)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * v.sizes["out"] * state(v, "n_inner")

    return PanelUpdate


@family
def panel_solve_codelet() -> type:
    """Solve L·X = B in place for a small lower triangle L; the workers share the columns."""

    class PanelSolve(MultiVertex):
        name = "poplin::PanelSolve<float>"
        provenance = "derived"
        out: InOut[Vector[float32]]
        triangle: Input[Vector[float32]]
        n_columns: uint32
        stride: uint32  # of the triangle's rows
        is_unit: uint32  # its diagonal counts as 1

        def compute(self: Any, worker_id: int) -> None:
            out, triangle = self.out, self.triangle
            n, stride, is_unit = int(self.n_columns), int(self.stride), int(self.is_unit)
            first, end = n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers
            for i in range(len(self.out) // n):
                for k in range(i):
                    factor = triangle[i * stride + k]
                    for j in range(first, end):
                        out[i * n + j] -= factor * out[k * n + j]
                if is_unit == 0:
                    pivot = triangle[i * stride + i]
                    for j in range(first, end):
                        out[i * n + j] = out[i * n + j] / pivot

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            columns = state(v, "n_columns")
            n = v.sizes["out"] // columns
            vectors = ceil_div(ceil_div(columns, chip.n_workers), 2)
            # Per vector: two loads, a multiply-add and a store; the division is per element.
            worker = n * (n - 1) // 2 * (3 + 3 * vectors) + n * 2 * vectors * DIVIDE_SLOTS
            return LAUNCH_CYCLES + chip.n_workers * (START_SLOTS + worker)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            n = v.sizes["out"] // state(v, "n_columns")
            return v.sizes["out"] * (n - 1 + (state(v, "is_unit") == 0))

    return PanelSolve
