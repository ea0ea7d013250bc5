"""The vertices of static sparse products: partial results, gradients of values, adding up."""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false
# ruff: noqa: C901 - a vertex's loops, its cycles and its flops count as one function

from typing import Any

import numpy as np

from tremula.base.types import HALF, Type, float32, int32
from tremula.codelets import Input, MultiVertex, Output, Vector, Vertex
from tremula.codelets.python.machine import (
    multiply_accumulate,
    multiply_blocks,
    sum_scaled_rows,
)
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popsparse.static.costs import (
    block_cycles,
    block_grad_w_cycles,
    block_transpose_cycles,
    element_grad_w_slots,
    element_worker_slots,
    gather_cycles,
    reduce_worker_slots,
    zeroing_cycles,
)

POSITIONS_AT_ONCE = 4  # rows that the native product of blocks computes together


def _count(v: CostView, name: str) -> np.ndarray:
    return v.state[name].astype(np.int64)


def _side(v: CostView) -> int:
    """The side of the blocks, which is the same for all vertices of a product."""
    return int(v.state["side"][0]) if v.n_rows else 1


@family
def sparse_dense_elements(element: Type) -> type:
    """Rows of single values times dense rows; workers share the rows, or also the columns."""

    class SparseDenseElements(MultiVertex):
        """Output row r sums values row_start[r] … row_start[r + 1], each times a dense row."""

        name = f"popsparse::StaticSparseDenseElementWise<{element}>"
        provenance = "published"
        dense: Input[Vector[element]]
        values: Input[Vector[element]]
        out: Output[Vector[element]]
        row_start: Vector[int32]
        offsets: Vector[int32]  # of the values' dense rows
        first_row: Vector[int32]  # of each set of workers
        n_columns: int32
        n_column_parts: int32

        def compute(self: Any, worker_id: int) -> None:
            n_sets = len(self.first_row) - 1
            part, rows = worker_id // n_sets, worker_id % n_sets
            if part < self.n_column_parts:
                n = self.n_columns // self.n_column_parts
                for row in range(self.first_row[rows], self.first_row[rows + 1]):
                    sum_scaled_rows(
                        self.out, row * self.n_columns + part * n, self.dense, part * n,
                        self.values, self.offsets, self.row_start[row], self.row_start[row + 1], n,
                    )  # fmt: skip

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            rows, values = _busiest(v)
            grain = chip.vector_width(element)
            width = ceil_div(_count(v, "n_columns") // _count(v, "n_column_parts"), grain) * grain
            return chip.n_workers * element_worker_slots(rows, values, width, element)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * v.sizes["values"] * _count(v, "n_columns")

    return SparseDenseElements


def _busiest(v: CostView) -> tuple[np.ndarray, np.ndarray]:
    """(rows, values) of the set of workers that has most values."""
    n_sets = v.sizes["first_row"] - 1
    ends = np.cumsum(v.sizes["first_row"])
    first, row_end = v.state["first_row"].astype(np.int64), np.cumsum(v.sizes["row_start"])
    row_begin = row_end - v.sizes["row_start"]
    starts = v.state["row_start"].astype(np.int64)
    owner = np.repeat(np.arange(v.n_rows), n_sets)
    at = np.delete(np.arange(len(first)), ends - 1)  # all but the last bound of each vertex
    n_rows = first[at + 1] - first[at]
    n_values = starts[row_begin[owner] + first[at + 1]] - starts[row_begin[owner] + first[at]]
    begin = np.cumsum(n_sets) - n_sets
    # Slots grow with both; the set with most values has, in a random pattern, most rows, too.
    return np.maximum.reduceat(n_rows, begin), np.maximum.reduceat(n_values, begin)


def _convert(source: np.ndarray, result: np.ndarray) -> None:
    for i in range(len(result)):
        result[i] = source[i]


@family
def sparse_dense_blocks(element: Type) -> type:
    """Rows of blocks times dense blocks on the matrix unit; workers share the columns."""
    is_half = element is HALF

    class SparseDenseBlocks(MultiVertex):
        """A dense block is [columns][side]; a block of values is stored by its columns."""

        name = f"popsparse::StaticSparseDenseBlock<{element}>"
        provenance = "published"
        matrix_types = (element, element)
        dense: Input[Vector[element]]
        values: Input[Vector[element]]
        out: Output[Vector[element]]
        row_start: Vector[int32]
        offsets: Vector[int32]
        n_columns: int32
        side: int32

        def compute(self: Any, worker_id: int) -> None:
            n, side = int(self.n_columns), int(self.side)
            n_groups = (n + POSITIONS_AT_ONCE - 1) // POSITIONS_AT_ONCE
            begin = n_groups * worker_id // self.n_workers * POSITIONS_AT_ONCE
            end = min(n_groups * (worker_id + 1) // self.n_workers * POSITIONS_AT_ONCE, n)
            if end > begin:
                for row in range(len(self.row_start) - 1):
                    multiply_blocks(
                        self.out, (row * n + begin) * side, side, self.dense, begin * side, side,
                        self.values, side, self.offsets, self.row_start[row],
                        self.row_start[row + 1], end - begin, side, side,
                    )  # fmt: skip

        def compute_on_host(self: Any) -> None:
            # A half that is read by many products becomes a float once, which changes no bit.
            n, side = int(self.n_columns), int(self.side)
            if is_half:
                dense = np.empty(len(self.dense), dtype=float32)
                values = np.empty(len(self.values), dtype=float32)
                _convert(self.dense, dense)
                _convert(self.values, values)
            else:
                dense, values = self.dense, self.values
            for row in range(len(self.row_start) - 1):
                multiply_blocks(
                    self.out, row * n * side, side, dense, 0, side, values, side, self.offsets,
                    self.row_start[row], self.row_start[row + 1], n, side, side,
                )  # fmt: skip

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            rows, blocks, side = v.sizes["row_start"] - 1, v.sizes["offsets"], _side(v)
            width = ceil_div(_count(v, "n_columns"), chip.n_workers)
            result = block_cycles(rows, blocks, width, side, element, chip.n_workers)
            n_bytes = v.sizes["out"] * element.n_bytes
            return result + zeroing_cycles(n_bytes, side, element, chip)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * v.sizes["values"] * _count(v, "n_columns")

    return SparseDenseBlocks


@family
def gather_values(element: Type) -> type:
    """Values in another order, for a product with the transposed matrix."""

    class GatherValues(MultiVertex):
        name = f"popsparse::SparseGatherElementWise<{element}>"
        provenance = "published"
        values: Input[Vector[element]]
        out: Output[Vector[element]]
        source: Vector[int32]

        def compute(self: Any, worker_id: int) -> None:
            n = len(self.out)
            for i in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
                self.out[i] = self.values[self.source[i]]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return gather_cycles(v.sizes["out"], element, chip.n_workers)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.zeros(v.n_rows, np.int64)

    return GatherValues


@family
def transpose_blocks(element: Type) -> type:
    """Blocks in another order, each transposed."""

    class TransposeBlocks(MultiVertex):
        name = f"popsparse::BlockTranspose<{element}>"
        provenance = "published"
        values: Input[Vector[element]]
        out: Output[Vector[element]]
        source: Vector[int32]
        side: int32

        def compute(self: Any, worker_id: int) -> None:
            n, side = len(self.source), int(self.side)
            area = side * side
            for p in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
                at = int(self.source[p]) * area
                for i in range(side):
                    for j in range(side):
                        self.out[p * area + i * side + j] = self.values[at + j * side + i]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            return block_transpose_cycles(v.sizes["source"], _side(v), element, chip.n_workers)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.zeros(v.n_rows, np.int64)

    return TransposeBlocks


@family
def values_gradient(element: Type) -> type:
    """The gradient of values: products of a result's rows by dense rows, at the pattern alone."""

    class StaticValuesGradient(MultiVertex):
        """Block p is the sum over columns of dense rows in_offset[p] by gradients out_offset[p]."""

        name = f"popsparse::StaticValuesGradient<{element}>"
        provenance = "published"
        dense: Input[Vector[element]]
        gradient: Input[Vector[element]]
        out: Output[Vector[element]]
        in_offset: Vector[int32]
        out_offset: Vector[int32]
        n_columns: int32
        n_rows: int32
        side: int32

        def compute(self: Any, worker_id: int) -> None:
            n, n_blocks, side = int(self.n_columns), len(self.in_offset), int(self.side)
            area = side * side
            begin = n_blocks * worker_id // self.n_workers
            for p in range(begin, n_blocks * (worker_id + 1) // self.n_workers):
                for i in range(area):
                    self.out[p * area + i] = 0
                multiply_accumulate(
                    self.out, p * area, side, self.dense, self.in_offset[p], 1, side,
                    self.gradient, self.out_offset[p], side, side, n, side,
                )  # fmt: skip

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n, rows, side = _count(v, "n_columns"), _count(v, "n_rows"), _side(v)
            if side == 1:
                worker = element_grad_w_slots(
                    ceil_div(rows, chip.n_workers), ceil_div(v.sizes["out"], chip.n_workers), n,
                    element,
                )  # fmt: skip
            else:
                worker = block_grad_w_cycles(
                    ceil_div(rows, chip.n_workers),
                    ceil_div(v.sizes["in_offset"], chip.n_workers), n, side, element,
                )  # fmt: skip
            return GRAD_W_SUPERVISOR + chip.n_workers * worker

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return 2 * v.sizes["out"] * _count(v, "n_columns")

    return StaticValuesGradient


GRAD_W_SUPERVISOR = 37 + 38 + 26  # cycles before the workers start, with one group of blocks


@family
def reduce_add(partials: Type, element: Type) -> type:
    """Adds up partial results in float; of none it makes zeros."""
    is_half = element is HALF

    class ReduceAdd(Vertex):
        name = f"popsparse::ReduceAdd<{element},{partials}>"
        provenance = "published"
        parts: Vector[Input[Vector[partials]]]
        out: Output[Vector[element]]
        totals: Output[Vector[float32]]  # of floats nothing: they are summed in `out`

        def compute(self: Any) -> None:
            n_parts, n = len(self.parts), len(self.out)
            if is_half:
                for i in range(n):
                    self.totals[i] = 0
                for j in range(n_parts):
                    for i in range(n):
                        self.totals[i] += float32(self.parts[j][i])
                for i in range(n):
                    self.out[i] = self.totals[i]
            else:
                for i in range(n):
                    self.out[i] = 0
                for j in range(n_parts):
                    for i in range(n):
                        self.out[i] += self.parts[j][i]

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return reduce_worker_slots(v.sizes["out"], v.n_subs["parts"], partials)

        @staticmethod
        def flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG004
            return np.maximum(v.n_subs["parts"] - 1, 0) * v.sizes["out"]

    return ReduceAdd
