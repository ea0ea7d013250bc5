"""Codelets of slicing: rows are copied as plain words, so that all types share them."""

# Fields are annotated with values, and Numba decides what they hold.
# pyright: reportInvalidTypeForm=false, reportOperatorIssue=false, reportArgumentType=false

from typing import Any

import numpy as np

from tremula.base.types import (
    Type,
    uint32,
)
from tremula.codelets import InOut, Input, MultiVertex, Output, Vector
from tremula.codelets.flops import no_flops
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.families import family
from tremula.poplibs.popops.slicing.costs import dynamic_slice_cycles, multi_slice_cycles

# Worker slots of an integer loop with a scalar operand beside the operation itself, from PopLibs'
# table: six with a sum, of one slot (elementwise/operations.py).
SCALAR_LOOP_SLOTS = 5
# PopLibs shifts where the divisor is a power of two (`optimise` in popops/ElementWiseInternal.cpp).
SHIFT_SLOTS = 1
# Tiles cannot divide. LLVM's routine (compiler-rt, lib/builtins, unsigned division) compares
# leading zeros and then finds one bit of the quotient in each turn: two double shifts, a comparison
# by subtraction and sign, a masked subtraction, the count. Operations of its source, one slot each.
DIVIDE_START_SLOTS, DIVIDE_BIT_SLOTS = 20, 12


def divide_slots(n_entries: np.ndarray, divisor: np.ndarray) -> np.ndarray:
    """Slots of index // divisor, the mean over all indices below n_entries."""
    n_turns = np.zeros(len(divisor))
    for n_bits in range(1, 33):
        n_values = np.clip(n_entries, 1 << n_bits - 1, 1 << n_bits) - (1 << n_bits - 1)
        n_divisor_bits = np.ceil(np.log2(divisor + 1))
        n_turns += np.maximum(n_bits - n_divisor_bits + 1, 0) * n_values / n_entries
    return np.rint(DIVIDE_START_SLOTS + DIVIDE_BIT_SLOTS * n_turns).astype(np.int64)


def copy_row(out: np.ndarray, to: int, table: np.ndarray, at: int, width: int) -> None:
    """Plans often leave a tile two or four columns: a loop would cost more than the copies.

    All are read before one is written, so that native code moves them together.
    """
    if width == 2:
        first, second = table[at], table[at + 1]
        out[to] = first
        out[to + 1] = second
    elif width == 4:
        first, second, third, fourth = table[at], table[at + 1], table[at + 2], table[at + 3]
        out[to] = first
        out[to + 1] = second
        out[to + 2] = third
        out[to + 3] = fourth
    else:
        new, old = out[to : to + width], table[at : at + width]
        for j in range(width):
            new[j] = old[j]


@family
def multi_slice_codelet(T: Type) -> type:  # noqa: N803
    """Rows of a block of a table, one per index; zeros for indices outside of it."""

    class MultiSlice(MultiVertex):
        name = f"popops::MultiSlice<{T}>"
        provenance = "published"
        indices: Input[Vector[uint32]]
        table: Input[Vector[T]]
        out: Output[Vector[T]]
        first_row: uint32
        n_columns: uint32
        n_entries: uint32  # of the whole table

        def compute(self: Any, worker_id: int) -> None:
            width, first, n = int(self.n_columns), int(self.first_row), len(self.indices)
            n_rows = len(self.table) // width
            if n == 1:  # the workers share the columns of a single row
                left, right = width * worker_id, width * (worker_id + 1)
                left, right = left // self.n_workers, right // self.n_workers
                begin, end = 0, 1
            else:
                left, right = 0, width
                begin, end = n * worker_id, n * (worker_id + 1)
                begin, end = begin // self.n_workers, end // self.n_workers
            indices = self.indices[begin:end]
            out = self.out[begin * width : end * width]
            for i in range(len(indices)):
                row = int(indices[i]) - first
                to = i * width + left
                if 0 <= row < n_rows:
                    copy_row(out, to, self.table, row * width + left, right - left)
                else:
                    for j in range(right - left):
                        out[to + j] = T(0)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            width = v.state["n_columns"].astype(np.int64)
            share = np.minimum(1, v.sizes["table"] / (width * v.state["n_entries"]))
            n_lookups = v.sizes["indices"]
            return multi_slice_cycles(n_lookups, width, T.n_bytes, share, chip, v.n_rows)

        flops = no_flops

    return MultiSlice


@family
def row_part_codelet() -> type:
    """Which part of a split table has each index: index // rows of a part."""

    class RowPart(MultiVertex):
        name = "popops::RowPart"
        provenance = "derived"
        indices: Input[Vector[uint32]]
        part: Output[Vector[uint32]]
        n_rows: uint32
        n_entries: uint32

        def compute(self: Any, worker_id: int) -> None:
            n, n_rows, n_entries = len(self.indices), int(self.n_rows), int(self.n_entries)
            for i in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
                index = int(self.indices[i])
                self.part[i] = uint32(index // n_rows if index < n_entries else n_entries)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            n_entries = v.state["n_entries"].astype(np.int64)
            n_rows = v.state["n_rows"].astype(np.int64)
            is_shift = (n_rows & (n_rows - 1)) == 0
            dividing = np.where(is_shift, SHIFT_SLOTS, divide_slots(n_entries, n_rows))
            per_index = SCALAR_LOOP_SLOTS + dividing
            return 11 + chip.n_workers * (
                20 + per_index * ceil_div(v.sizes["part"], chip.n_workers)
            )

        flops = no_flops

    return RowPart


@family
def dynamic_slice_codelet(T: Type) -> type:  # noqa: N803
    """Consecutive rows of a block, from an offset on; the row after the last is the first."""

    class DynamicSlice(MultiVertex):
        name = f"popops::DynamicSlice1D<{T}>"
        provenance = "published"
        offset: Input[uint32]
        table: Input[Vector[T]]
        out: Output[Vector[T]]
        n_columns: uint32
        remaps: uint32

        def compute(self: Any, worker_id: int) -> None:
            width, first = int(self.n_columns), int(self.offset)
            begin = width * worker_id // self.n_workers
            n_mine = width * (worker_id + 1) // self.n_workers - begin
            n_rows, n_out = len(self.table) // width, len(self.out) // width
            is_inside = first < n_rows
            if not is_inside and self.remaps != 0:
                first = 0
                is_inside = True
            for i in range(n_out):
                row = first + i
                if row >= n_rows:
                    row -= n_rows
                if is_inside:
                    copy_row(self.out, i * width + begin, self.table, row * width + begin, n_mine)
                else:
                    for j in range(n_mine):
                        self.out[i * width + begin + j] = T(0)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            width = v.state["n_columns"].astype(np.int64)
            return dynamic_slice_cycles(v.sizes["out"] // width, width, T.n_bytes, chip)

        flops = no_flops

    return DynamicSlice


@family
def dynamic_update_codelet(T: Type) -> type:  # noqa: N803
    """Overwrites consecutive rows of a block; the row after the last is the first."""

    class DynamicUpdateSlice(MultiVertex):
        name = f"popops::DynamicUpdateSlice1D<{T}>"
        provenance = "published"
        offset: Input[uint32]
        table: InOut[Vector[T]]
        update: Input[Vector[T]]
        n_columns: uint32
        remaps: uint32

        def compute(self: Any, worker_id: int) -> None:
            width, first = int(self.n_columns), int(self.offset)
            begin = width * worker_id // self.n_workers
            n_mine = width * (worker_id + 1) // self.n_workers - begin
            n_rows, n_new = len(self.table) // width, len(self.update) // width
            if first >= n_rows:
                n_new = n_new if self.remaps != 0 else 0
                first = 0
            for i in range(n_new):
                row = first + i
                if row >= n_rows:
                    row -= n_rows
                copy_row(self.table, row * width + begin, self.update, i * width + begin, n_mine)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            width = v.state["n_columns"].astype(np.int64)
            return dynamic_slice_cycles(v.sizes["update"] // width, width, T.n_bytes, chip)

        flops = no_flops

    return DynamicUpdateSlice


@family
def check_indices_codelet() -> type:
    """True if all indices are in range."""

    class IndicesInRange(MultiVertex):
        name = "popops::IndicesInRange"
        provenance = "derived"
        indices: Input[Vector[uint32]]
        n_entries: uint32

        def compute(self: Any, worker_id: int) -> bool:
            n, largest = len(self.indices), 0
            for i in range(n * worker_id // self.n_workers, n * (worker_id + 1) // self.n_workers):
                largest = max(largest, int(self.indices[i]))
            return largest < int(self.n_entries)

        @staticmethod
        def cycles(v: CostView, chip: Chip) -> np.ndarray:
            # One load and one maximum per index, beside the start of a multi-worker vertex.
            return 11 + chip.n_workers * (20 + 2 * ceil_div(v.sizes["indices"], chip.n_workers))

        flops = no_flops

    return IndicesInRange
