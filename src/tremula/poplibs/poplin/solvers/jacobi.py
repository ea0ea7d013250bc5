"""Orthogonal columns by Jacobi's rotations of pairs of columns: singular values, eigenvectors.

A round rotates n / 2 pairs of columns at once, each pair on its tile, so that the two become
orthogonal; then columns move as players of a tournament do, and after n - 1 rounds, a sweep, each
has met every other. Few sweeps leave all columns orthogonal to rounding.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

from collections.abc import Iterator
from math import fabs, sqrt
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, Type, float32, uint32
from tremula.codelets import Input, Output, Vector, Vertex
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Repeat, Sequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplar.vertices.bulk import Slices
from tremula.poplibs.families import family
from tremula.poplibs.poplin.solvers.panels import (
    DIVIDE_SLOTS,
    SQRT_SLOTS,
    START_SLOTS,
    as_batch,
    state,
)
from tremula.poplibs.poputil.steps import run_vertices
from tremula.poplibs.registry import ErrorCase, Op, Sample, register

_FIRST_SWEEPS = 5  # and one more each time the number of columns doubles


def orthogonal_columns(
    graph: Graph, matrix: Tensor, sequence: Sequence, name: str = ""
) -> tuple[Tensor, Tensor]:
    """(matrix · V, V) with V orthogonal, such that the columns of the product are orthogonal.

    Their lengths are the singular values, in no order; V has the right singular vectors, which for
    a symmetric matrix without negative eigenvalues are its eigenvectors.
    """
    batch = as_batch("orthogonal_columns", matrix)
    name = name or "orthogonalColumns"
    n_batches, n_rows, n = batch.shape
    if n < 2 or not batch.n_elems:
        return matrix, _identity(graph, n_batches, n, name).reshape((*matrix.shape[:-2], n, n))
    now = _columns(graph, batch, sequence, name)
    rotated = _paired_variable(graph, now.shape, f"{name}/rotated")
    _add_rounds(graph, now, rotated, n_rows, sequence, name)
    result = now.slice(0, n, 1).dim_shuffle([0, 2, 1])  # [batch, rows of both, columns]
    left, right = result.slice(0, n_rows, 1), result.slice(n_rows, n_rows + n, 1)
    return left.reshape(matrix.shape), right.reshape((*matrix.shape[:-2], n, n))


def _identity(graph: Graph, n_batches: int, n: int, name: str) -> Tensor:
    one = graph.add_constant(FLOAT, [1, n, n], np.eye(n, dtype=np.float32)[None], f"{name}/one")
    graph.set_tile_mapping(one, 0)
    return one.broadcast(n_batches, 0)


def _columns(graph: Graph, batch: Tensor, sequence: Sequence, name: str) -> Tensor:
    """[n_batches, n_columns, n_rows + n]: a column of the matrix, then one of the rotations.

    The number of columns is even: one of zeros, which nothing rotates, is added where it is not.
    """
    n_batches, _, n = batch.shape
    both = concat([batch, _identity(graph, n_batches, n, name)], 1).dim_shuffle([0, 2, 1])
    if n % 2:
        zero = graph.add_constant(FLOAT, [1, 1, 1], np.zeros((1, 1, 1), np.float32), f"{name}/zero")
        graph.set_tile_mapping(zero, 0)
        none = zero.broadcast(n_batches, 0).broadcast(both.shape[2], 2)
        both = concat([both, none], 1)
    columns = _paired_variable(graph, both.shape, f"{name}/columns")
    sequence.add(Copy(both, columns))
    return columns


def _paired_variable(graph: Graph, shape: tuple[int, ...], name: str) -> Tensor:
    """Columns as a variable; two neighbours are a pair and lie on one tile."""
    columns = graph.add_variable(FLOAT, list(shape), name)
    n_tiles = graph.target.n_tiles
    size, n_pairs = 2 * shape[2], shape[0] * shape[1] // 2
    pair = np.arange(n_pairs)
    mapping = TileMapping(pair * size, (pair + 1) * size, pair % n_tiles, n_tiles)
    graph.set_tile_mapping(columns, mapping)
    return columns


def _add_rounds(
    graph: Graph, now: Tensor, rotated: Tensor, n_rows: int, sequence: Sequence, name: str
) -> None:
    n_batches, n, length = now.shape
    pair = np.arange(n_batches * n // 2)
    ends = (pair * 2 * length, (pair + 1) * 2 * length)
    fields = {
        "pair": Slices(now, *ends),
        "out": Slices(rotated, *ends),
        "n_rows": n_rows,
    }
    body = Sequence()
    tiles = pair % graph.target.n_tiles
    run_vertices(graph, rotate_pair_codelet(), fields, tiles, body, f"{name}/rotate")
    moved = concat([rotated.slice(place, place + 1, 1) for place in next_places(n)], 1)
    body.add(Copy(moved, now))
    n_sweeps = _FIRST_SWEEPS + n.bit_length()
    sequence.add(Repeat(n_sweeps * (n - 1), body))


def next_places(n: int) -> list[int]:
    """Whose column comes to each place of n, an even number; neighbours 2i and 2i + 1 are a pair.

    The first stays; the others go around: right along the upper places, back along the lower.
    """
    half = n // 2
    upper = [0, *([1] if half > 1 else []), *(2 * (i - 1) for i in range(2, half))]
    lower = [*(2 * (i + 1) + 1 for i in range(half - 1)), 2 * (half - 1) if half > 1 else 1]
    return [place for both in zip(upper, lower, strict=True) for place in both]


@family
def rotate_pair_codelet() -> type:
    """Two columns turned so that they are orthogonal."""

    class RotatePair(Vertex):
        name = "poplin::RotatePair<float>"
        provenance = "derived"
        pair: Input[Vector[float32]]
        out: Output[Vector[float32]]
        n_rows: uint32  # of each column, that count for the angle; all are turned

        def compute(self: Any) -> None:
            pair, out, n_rows = self.pair, self.out, int(self.n_rows)
            length = len(self.pair) // 2
            first, second, product = float32(0), float32(0), float32(0)
            for i in range(n_rows):
                a, b = pair[i], pair[length + i]
                first += a * a
                second += b * b
                product += a * b
            c, s = float32(1), float32(0)
            limit = float32(1e-7) * float32(sqrt(first)) * float32(sqrt(second))
            if float32(fabs(product)) > limit:
                zeta = (second - first) / (float32(2) * product)
                root = float32(sqrt(float32(1) + zeta * zeta))
                t = float32(1) / (float32(fabs(zeta)) + root)
                if zeta < float32(0):
                    t = -t
                c = float32(1) / float32(sqrt(float32(1) + t * t))
                s = c * t
            for i in range(length):
                a, b = pair[i], pair[length + i]
                out[i] = c * a - s * b
                out[length + i] = s * a + c * b

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            length = v.sizes["pair"] // 2
            # Per row: two loads and three multiply-adds, in vectors of two; turning takes two
            # loads, four multiply-adds and two stores.
            sums = 4 * -(-state(v, "n_rows") // 2)
            angle = 6 * SQRT_SLOTS + 4 * DIVIDE_SLOTS + 24
            return START_SLOTS + sums + angle + 6 * -(-length // 2)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 6 * state(v, "n_rows") + 20 + 3 * v.sizes["pair"]

    return RotatePair


# -- registry --------------------------------------------------------------------------------------


def _with_known_columns(
    shape: tuple[int, ...], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A matrix whose columns are orthogonal, and the rotations that no round changes: none."""
    *_, n_rows, n = shape
    q, _ = np.linalg.qr(rng.standard_normal((*shape[:-2], n_rows, n)))
    return (q * np.arange(1, n + 1)).astype(np.float32), np.eye(n, dtype=np.float32)


def _samples(type: Type, rng: np.random.Generator) -> Iterator[Sample]:
    assert type is FLOAT, type
    for shape in ((1, 1), (4, 4), (2, 6, 3), (3, 2), (0, 2, 2)):
        yield Sample((_with_known_columns(shape, rng)[0],))


def _reference(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = matrix.shape[-1]
    return matrix, np.broadcast_to(np.eye(n, dtype=np.float32), (*matrix.shape[:-2], n, n))


register(
    Op(
        name="poplin.orthogonal_columns",
        function=orthogonal_columns,
        about="matrix · V and V, an orthogonal matrix that makes the columns orthogonal.",
        types=(FLOAT,),
        samples=_samples,
        reference=_reference,
        codelets=(rotate_pair_codelet,),
        errors=(
            ErrorCase(Sample((np.ones(3, np.float32),)), "[..., n_rows, n_columns], got [3]"),
            ErrorCase(Sample((np.ones((2, 2), np.float16),)), "works on float, got the matrix of"),
        ),
        tolerance={"FLOAT": 1e-4},
    )
)
