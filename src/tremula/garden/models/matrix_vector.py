"""Matrix times vector, split by rows and columns: a planner by cost model, and the graph it plans.

One vertex multiplies a piece of a row with the same piece of the vector; a second compute set adds
the pieces of each row. More pieces spread the work better and send less of the vector to each tile,
but leave more to add up. The planner tries every number of pieces and keeps the cheapest.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import tremula as tr
from tremula.codelets.spec import CostView
from tremula.hardware import Chip

# Worker cycles of either codelet: the call, then two floats per cycle.
VERTEX_OVERHEAD_CYCLES = 5
FLOATS_PER_CYCLE = 2


class DotProduct(tr.Vertex):
    """A piece of a row times the same piece of the vector."""

    a: tr.Input[tr.Vector[tr.float32]]
    b: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.float32]

    def compute(self: Any) -> None:
        total = tr.float32(0)
        for i in range(len(self.a)):
            total += self.a[i] * self.b[i]
        self.out = total

    @staticmethod
    def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
        return vertex_cycles(v.sizes["a"])


class Sum(tr.Vertex):
    """The sum of the pieces of a row."""

    pieces: tr.Input[tr.Vector[tr.float32]]
    out: tr.Output[tr.float32]

    def compute(self: Any) -> None:
        total = tr.float32(0)
        for piece in self.pieces:
            total += piece
        self.out = total

    @staticmethod
    def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
        return vertex_cycles(v.sizes["pieces"])


def ceil_div(a: np.ndarray | int, b: np.ndarray | int) -> np.ndarray:
    return -(-np.asarray(a, np.int64) // b)


def vertex_cycles(n_elems: np.ndarray) -> np.ndarray:
    """Worker cycles of a DotProduct or Sum of n elements."""
    return VERTEX_OVERHEAD_CYCLES + ceil_div(n_elems, FLOATS_PER_CYCLE)


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """The cheapest number of pieces a row is cut into, and the costs it was compared with."""

    n_splits: int
    multiply_cycles: int
    vector_exchange_cycles: int
    reduce_exchange_cycles: int
    reduce_cycles: int
    worst_cycles: int  # of the most expensive number of pieces that was tried

    @property
    def cycles(self) -> int:
        return (
            self.multiply_cycles
            + self.vector_exchange_cycles
            + self.reduce_exchange_cycles
            + self.reduce_cycles
        )


def plan(n_rows: int, n_cols: int, target: tr.Target) -> SplitPlan:
    """The cheapest of all numbers of pieces, by the cost of the busiest tile."""
    parts = split_costs(n_rows, n_cols, np.arange(1, max(2, n_cols)), target)
    totals = sum(parts)
    best = int(np.argmin(totals))
    return SplitPlan(
        best + 1, *(int(part[best]) for part in parts), worst_cycles=int(np.max(totals))
    )


def split_costs(
    n_rows: int, n_cols: int, n_splits: np.ndarray, target: tr.Target
) -> tuple[np.ndarray, ...]:
    """(multiply, vector exchange, reduce exchange, reduce) cycles for each number of pieces."""
    n_piece_cols = ceil_div(n_cols, n_splits)
    n_rows_per_tile = ceil_div(n_rows, target.n_tiles)
    return (
        compute_cycles(ceil_div(n_rows * n_splits, target.n_tiles), n_piece_cols, target),
        exchange_cycles(n_piece_cols, target),
        exchange_cycles(n_rows_per_tile * n_splits, target),
        compute_cycles(n_rows_per_tile, n_splits, target),
    )


def compute_cycles(
    n_vertices_per_tile: np.ndarray, n_elems: np.ndarray, target: tr.Target
) -> np.ndarray:
    """Tile cycles: the workers share the vertices, and each issues every sixth cycle."""
    n_workers = target.n_worker_contexts
    return ceil_div(n_vertices_per_tile, n_workers) * n_workers * vertex_cycles(n_elems)


def exchange_cycles(n_floats: np.ndarray, target: tr.Target) -> np.ndarray:
    """Cycles until a tile has received n floats."""
    n_bytes = n_floats * tr.FLOAT.n_bytes
    return np.ceil(n_bytes / target.exchange_bytes_per_cycle).astype(np.int64)


@dataclass(frozen=True, slots=True)
class MatVec:
    """Tensors of a matrix-vector product, and the program that computes `result`."""

    matrix: tr.Tensor
    vector: tr.Tensor
    result: tr.Tensor
    multiply: tr.Sequence


def build(graph: tr.Graph, n_rows: int, n_cols: int, n_splits: int) -> MatVec:
    """Add result = matrix · vector to a graph, each row cut into `n_splits` pieces."""
    matrix = graph.add_variable(tr.FLOAT, [n_rows, n_cols], "matrix")
    vector = graph.add_variable(tr.FLOAT, [n_cols], "vector", mapping="linear")
    partials = graph.add_variable(tr.FLOAT, [n_rows, n_splits], "partials")
    result = graph.add_variable(tr.FLOAT, [n_rows], "result")
    cuts = np.arange(n_splits + 1) * n_cols // n_splits
    multiply = _add_dot_products(graph, matrix, vector, partials, cuts)
    reduce = _add_sums(graph, partials, result)
    program = tr.Sequence([tr.Execute(multiply), tr.Execute(reduce)])
    return MatVec(matrix, vector, result, program)


def _add_dot_products(
    graph: tr.Graph, matrix: tr.Tensor, vector: tr.Tensor, partials: tr.Tensor, cuts: np.ndarray
) -> tr.ComputeSet:
    """Vertex i works on piece i // n_rows of row i % n_rows, so a tile needs one or two pieces."""
    n_rows, n_cols = matrix.shape
    piece, row = np.divmod(np.arange(n_rows * (len(cuts) - 1)), n_rows)
    tiles = np.arange(len(row)) * graph.target.n_tiles // len(row)
    compute_set = graph.add_compute_set("multiply")
    graph.add_vertices(
        compute_set,
        DotProduct,
        {
            "a": tr.Slices(matrix, row * n_cols + cuts[piece], row * n_cols + cuts[piece + 1]),
            "b": tr.Slices(vector, cuts[piece], cuts[piece + 1]),
            "out": partials.transpose().flatten(),
        },
        tiles=tiles,
    )
    # Matrix and partials live where they are used: only the vector travels.
    edges = np.flatnonzero(np.diff(piece * graph.target.n_tiles + tiles)) + 1
    for begin, end in zip([0, *edges.tolist()], [*edges.tolist(), len(row)], strict=True):
        k, tile = int(piece[begin]), int(tiles[begin])
        rows = slice(int(row[begin]), int(row[end - 1]) + 1)
        graph.set_tile_mapping(matrix[rows, int(cuts[k]) : int(cuts[k + 1])], tile)
        graph.set_tile_mapping(partials[rows, k], tile)
    return compute_set


def _add_sums(graph: tr.Graph, partials: tr.Tensor, result: tr.Tensor) -> tr.ComputeSet:
    n_rows = result.n_elems
    rows = np.arange(n_rows)
    tiles = rows * graph.target.n_tiles // n_rows
    compute_set = graph.add_compute_set("reduce")
    graph.add_vertices(compute_set, Sum, {"pieces": partials, "out": result}, tiles=tiles)
    graph.set_tile_mapping(result, tr.TileMapping(rows, rows + 1, tiles, graph.target.n_tiles))
    return compute_set
