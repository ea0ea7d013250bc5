"""The vertices of sparse tables: they look for rows in buckets by the rows' numbers.

Offsets are the row numbers that are looked up; `partition` is the part of the columns that a tile's
rows have. Slots were counted in PopLibs' code, which has no estimate of them.
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from collections.abc import Callable
from typing import Any

import numpy as np

from tremula.base.types import FLOAT, HALF, UNSIGNED_SHORT, Type, float32, int32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Vector
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family

_SUPERVISOR, _SUB_GROUP = 40, 15  # cycles once, and of every bucket


def _slice_cycles(once: int, each: int) -> Callable[[CostView, Chip], np.ndarray]:
    """Each worker compares all rows with its share of the offsets; `each` is of a column taken."""

    def cycles(v: CostView, chip: Chip) -> np.ndarray:
        state, n_workers = v.state, chip.n_workers
        offsets, matches = (ceil_div(state[n], n_workers) for n in ("n_offsets", "planned_matches"))
        slots = 22 + state["planned_rows"] * (10 + 5 * offsets)
        slots = slots + matches * (once + each * state["planned_row_columns"])
        return (_SUPERVISOR + _SUB_GROUP * state["n_buckets"] + n_workers * slots).astype(np.int64)

    return cycles


def _update_cycles(v: CostView, chip: Chip) -> np.ndarray:
    """Each worker compares its share of the rows with all offsets."""
    state, n_workers = v.state, chip.n_workers
    rows, matches = (ceil_div(state[n], n_workers) for n in ("planned_rows", "planned_matches"))
    slots = 28 + rows * (11 + 5 * state["n_offsets"])
    slots = slots + matches * (5 + 6 * state["planned_row_columns"])
    return (_SUPERVISOR + _SUB_GROUP + n_workers * slots).astype(np.int64)


def _flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    return (v.state["planned_matches"] * v.state["planned_row_columns"]).astype(np.int64)


def _row_list(words: Any, at: int, side: int) -> int:  # noqa: ANN401
    """Where the rows of a sub-group begin."""
    if side == 1:
        return at + int(words[at + 7])
    return at + 7 + 4 * int(words[at + 6])


def _n_rows(words: Any, at: int, side: int) -> int:  # noqa: ANN401
    return int(words[at + (6 if side == 1 else 5)]) + 1


def _column(word: int, side: int, step: int) -> int:
    """The first column of a block: words of single elements count bytes."""
    return word // step if side == 1 else word * side


@family
def take_rows(element: Type) -> type:
    """Rows of buckets to the offsets that ask for them."""
    n_bytes = element.n_bytes
    slots = (7, 10) if element is HALF else (4, 5)

    class TakeRows(MultiVertex):
        name = f"popsparse::SparseDenseMultiSlice<{element}>"
        provenance = "derived"
        words: Input[Vector[UNSIGNED_SHORT]]
        values: Input[Vector[element]]
        offsets: Input[Vector[uint32]]
        out: InOut[Vector[element]]  # [offsets, columns of the partition]
        partition: int32
        n_buckets: int32
        n_columns: int32
        n_planned_columns: int32  # of a product: words of elements count in these
        rows_of_partition: int32
        side: int32
        n_offsets: int32
        planned_rows: int32
        planned_row_columns: int32
        planned_matches: int32

        def compute(self: Any, worker_id: int) -> None:
            side, n = int(self.side), int(self.n_columns)
            area, step = side * side, int(self.n_planned_columns) * n_bytes
            extra = 0 if side == 1 else 1  # of blocks, a row's length is stored less one
            n_words = len(self.words) // self.n_buckets
            n_blocks = len(self.values) // self.n_buckets // area
            for bucket in range(self.n_buckets):
                at, block = bucket * n_words, bucket * n_blocks
                while int(self.words[at]) != 0:
                    place, first, n_rows = _row_list(self.words, at, side), block, 0
                    if int(self.words[at + 2]) == self.partition:
                        n_rows = _n_rows(self.words, at, side)
                    for _ in range(n_rows):
                        row = int(self.words[at + 1]) * self.rows_of_partition
                        row = (row + int(self.words[place])) * side
                        n_row = int(self.words[place + 1]) + extra
                        for i in range(worker_id, len(self.offsets), self.n_workers):
                            line = int(self.offsets[i]) - row
                            n_found = n_row if 0 <= line < side else 0
                            for j in range(n_found):
                                column = _column(int(self.words[place + 2 + j]), side, step)
                                at_value = (first + j) * area + line
                                for c in range(side):
                                    self.out[i * n + column + c] = self.values[at_value + c * side]
                        first += n_row
                        place += 2 + n_row
                    block += int(self.words[at + 3])
                    at += int(self.words[at + 4])

        cycles, flops = staticmethod(_slice_cycles(*slots)), no_flops

    return TakeRows


@family
def add_rows(element: Type) -> type:
    """Rows that come by, added to what a bucket has of them."""
    n_bytes = element.n_bytes

    class AddRows(MultiVertex):
        name = f"popsparse::SparseDenseMultiUpdateAdd<{element}>"
        provenance = "derived"
        words: Input[Vector[UNSIGNED_SHORT]]
        slices: Input[Vector[element]]  # [offsets, columns of the partition]
        offsets: Input[Vector[uint32]]
        partition: Input[Vector[int32]]  # it travels with the rows
        out: InOut[Vector[FLOAT]]
        n_columns: int32
        n_planned_columns: int32
        rows_of_partition: int32
        side: int32
        n_offsets: int32
        planned_rows: int32
        planned_row_columns: int32
        planned_matches: int32

        def compute(self: Any, worker_id: int) -> None:
            side, n, at, block = int(self.side), int(self.n_columns), 0, 0
            area, step = side * side, int(self.n_planned_columns) * n_bytes
            extra = 0 if side == 1 else 1  # of blocks, a row's length is stored less one
            while int(self.words[at]) != 0:
                place, first, n_rows = _row_list(self.words, at, side), block, 0
                if int(self.words[at + 2]) == int(self.partition[0]):
                    n_rows = _n_rows(self.words, at, side)
                for number in range(n_rows):
                    row = int(self.words[at + 1]) * self.rows_of_partition
                    row = (row + int(self.words[place])) * side
                    n_row = int(self.words[place + 1]) + extra
                    n_offsets = len(self.offsets) if number % self.n_workers == worker_id else 0
                    for i in range(n_offsets):
                        line = int(self.offsets[i]) - row
                        n_found = n_row if 0 <= line < side else 0
                        for j in range(n_found):
                            column = _column(int(self.words[place + 2 + j]), side, step)
                            for c in range(side):
                                self.out[(first + j) * area + c * side + line] += float32(
                                    self.slices[i * n + column + c]
                                )
                    first += n_row
                    place += 2 + n_row
                block += int(self.words[at + 3])
                at += int(self.words[at + 4])

        cycles, flops = staticmethod(_update_cycles), staticmethod(_flops)

    return AddRows
