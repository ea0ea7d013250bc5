"""The three phases on tiles: products of pieces of the stacked factors, a copy between them.

Each worker holds one piece of the stacked V and one of the stacked U: whole rows, so that nothing
has to be summed over tiles. Pieces are cut so that the busiest worker has as little as possible.
"""

import heapq
from itertools import pairwise
from typing import Any

import numpy as np

import tremula as tr
from tremula import Input, Output, Vector, Vertex, float32
from tremula.codelets.spec import CostView
from tremula.garden.applications.tlr_mvm.compression import TlrMatrix
from tremula.hardware import Chip

START_SLOTS = 20  # placing pointers and the return: a placeholder
# Before each column: its factor loaded and put into the axpy unit's register, two pointers packed,
# the loop started, its pipeline filled and drained.
COLUMN_SLOTS = 8
BYTES_PER_PRODUCT = 12  # a matrix element and a sum are loaded, a sum is stored


class ColumnProduct(Vertex):
    """y = M x by columns: y += M[:, c] x[c]; `matrix` holds column after column.

    The inner loop is one bundle for two floats: `ld2xst64pace` loads two elements of the matrix and
    two sums and stores two sums while `f32v2axpy` multiplies and adds. The matrix and y must lie in
    different memory elements for that.
    """

    provenance = "derived"
    matrix: Input[Vector[float32]]
    x: Input[Vector[float32]]
    y: Output[Vector[float32]]

    def compute(self: Any) -> None:
        matrix, x, y = self.matrix, self.x, self.y
        n = len(y)
        for row in range(n):
            y[row] = float32(0)
        for column in range(len(x)):
            factor, at = x[column], column * n
            for row in range(n):
                y[row] += factor * matrix[at + row]

    @staticmethod
    def cycles(v: CostView, chip: Chip) -> np.ndarray:
        n_pairs = -(-v.sizes["y"] // (chip.data_path_bytes // 4))
        return START_SLOTS + n_pairs + v.sizes["x"] * (COLUMN_SLOTS + n_pairs)

    @staticmethod
    def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
        return 2 * v.sizes["matrix"]


def tlr_engine(matrix: TlrMatrix, n_tiles: int, chip: str = "bow") -> tr.Engine:
    """Handles: x to write, y to read. The factors are in the executable, on their tiles."""
    graph = tr.Graph(tr.IPUModel(chip, tiles_per_ipu=n_tiles).create_device())
    x = graph.add_variable(tr.FLOAT, [matrix.n], "x", mapping="linear")
    by_columns = graph.add_variable(tr.FLOAT, [matrix.total_rank], "by columns")
    y = graph.add_variable(tr.FLOAT, [matrix.n], "y")
    first = graph.add_compute_set("phase 1: V x")
    parts = [x[j * matrix.n_block : (j + 1) * matrix.n_block] for j in range(len(matrix.v))]
    add_products(graph, first, matrix.v, parts, by_columns)
    reorder, third = _by_rows(graph, matrix, by_columns, y)
    graph.create_host_write("x", x)
    graph.create_host_read("y", y)
    return tr.Engine(graph, tr.Sequence([tr.Execute(first), reorder, tr.Execute(third)]))


def _by_rows(
    graph: tr.Graph, matrix: TlrMatrix, by_columns: tr.Tensor, y: tr.Tensor
) -> tuple[tr.Program, tr.ComputeSet]:
    """Phases 2 and 3: every tile that holds rows of U_i gets its own copy of z_i."""
    order, ends = matrix.row_order(), np.append(0, np.cumsum(matrix.ranks.sum(1)))
    wanted = [_picked(by_columns, order[a:b]) for a, b in pairwise(ends.tolist())]
    sources: list[tr.Tensor] = []
    copies: dict[tuple[int, int], tr.Tensor] = {}

    def local(i: int, tile: int) -> tr.Tensor:
        if (i, tile) not in copies:
            size = wanted[i].n_elems
            copies[i, tile] = graph.add_variable(tr.FLOAT, [size], f"z{i}", mapping=tile)
            sources.append(wanted[i])
        return copies[i, tile]

    third = graph.add_compute_set("phase 3: U z")
    add_products(graph, third, matrix.u, local, y)
    copy = tr.Copy(tr.concat(sources), tr.concat(list(copies.values())), name="phase 2: regroup")
    return copy, third


def _picked(tensor: tr.Tensor, places: np.ndarray) -> tr.Tensor:
    """Elements of a vector at rising runs of places, as a view."""
    cuts = np.flatnonzero(np.diff(places) != 1) + 1
    runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(places, cuts)]
    return tr.concat([tensor[begin:end] for begin, end in runs])


def add_products(
    graph: tr.Graph,
    compute_set: tr.ComputeSet,
    blocks: tuple[np.ndarray, ...],
    inputs: Any,  # noqa: ANN401 - a list of tensors, or a function of block and tile
    out: tr.Tensor,
) -> None:
    """The blocks' products below each other; a piece of rows of a block for each worker."""
    n_workers = graph.target.n_worker_contexts
    sizes = np.array([block.shape for block in blocks])
    n_pieces = pieces_of(sizes, n_workers * graph.target.n_tiles)
    at, worker = 0, 0
    for i, block in enumerate(blocks):
        cuts = np.arange(n_pieces[i] + 1) * len(block) // n_pieces[i]
        for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
            tile = worker // n_workers
            columns = np.ascontiguousarray(block[begin:end].T).ravel()
            piece = graph.add_variable(tr.FLOAT, [columns.size], f"piece {i}", mapping=tile)
            graph.set_initial_value(piece, columns)
            result = out[at + begin : at + end]
            graph.set_tile_mapping(result, tile)
            values = inputs(i, tile) if callable(inputs) else inputs[i]
            fields = {"matrix": piece, "x": values, "y": result}
            graph.add_vertex(compute_set, ColumnProduct, fields, tile=tile)
            worker += 1
        at += len(block)


def pieces_of(sizes: np.ndarray, n_workers: int) -> np.ndarray:
    """int64[n_blocks]: into how many pieces of rows to cut each block, of sizes (rows, columns).

    A worker has one piece. The block with the largest pieces gets the next cut: none is better.
    """
    n_pieces = np.ones(len(sizes), np.int64)
    busiest = [(-float(rows * columns), i) for i, (rows, columns) in enumerate(sizes.tolist())]
    heapq.heapify(busiest)
    for _ in range(n_workers - len(sizes)):
        _, i = busiest[0]
        if n_pieces[i] == sizes[i, 0]:
            break
        n_pieces[i] += 1
        heapq.heapreplace(busiest, (-float(sizes[i].prod()) / n_pieces[i], i))
    return n_pieces
