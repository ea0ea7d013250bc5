"""The vertices of dynamic sparsity: they read a pattern's words and work on their sub-group alone.

Buckets lie one behind the other in `words` and `values`. What a vertex takes depends on the
pattern; its cycles are those that the plan expects of a uniform one (`planned_cycles`, by PopLibs'
formulae).
"""

# Fields of codelets are annotated with values, which pyright cannot see as types.
# pyright: reportInvalidTypeForm=false

from typing import Any

import numpy as np

from tremula.base.types import FLOAT, UNSIGNED_SHORT, Type, float32, int32, uint32
from tremula.codelets import InOut, Input, MultiVertex, Vector
from tremula.codelets.python.machine import multiply_accumulate
from tremula.codelets.spec import CostView
from tremula.hardware import Chip
from tremula.poplibs.families import family


def _planned_cycles(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    return v.state["planned_cycles"].astype(np.int64)


def _planned_flops(v: CostView, chip: Chip) -> np.ndarray:  # noqa: ARG001
    return v.state["planned_flops"].astype(np.int64)


def _add_scaled(out: Any, to: int, rows: Any, source: int, scale: Any, n: int) -> None:  # noqa: ANN401
    """Add a scaled row of a dense operand to a row of partial results."""
    for i in range(n):
        out[to + i] += scale * float32(rows[source + i])


@family
def element_product(element: Type) -> type:
    """Rows of single values times dense rows, or columns of them for the transposed matrix."""
    n_bytes = element.n_bytes

    class ElementProduct(MultiVertex):
        name = f"popsparse::SparseDenseMatMulElementWise<{element},float>"
        provenance = "published"
        words: Input[Vector[UNSIGNED_SHORT]]
        values: Input[Vector[element]]
        dense: Input[Vector[element]]
        partials: InOut[Vector[FLOAT]]
        sub_group: int32
        n_buckets: int32
        n_columns: int32
        is_transposed: int32
        planned_cycles: uint32
        planned_flops: uint32

        def compute(self: Any, worker_id: int) -> None:
            n_words = len(self.words) // self.n_buckets
            n_values, n = len(self.values) // self.n_buckets, int(self.n_columns)
            z0 = n * worker_id // self.n_workers
            z1 = n * (worker_id + 1) // self.n_workers
            for bucket in range(self.n_buckets):
                at, value = bucket * n_words, bucket * n_values
                while int(self.words[at]) != 0:
                    place, n_rows, first = at + int(self.words[at + 7]), 0, value
                    if int(self.words[at]) == self.sub_group:
                        n_rows = int(self.words[at + 6]) + 1
                        if self.is_transposed == 0:
                            n_rows, z0, z1 = 0, 0, 0
                            if worker_id < int(self.words[at + 8]):
                                entry = at + 9 + 5 * worker_id
                                first = value + int(self.words[entry])
                                z0 = int(self.words[entry + 2])
                                z1 = z0 + int(self.words[entry + 1])
                                n_rows = int(self.words[entry + 3]) + 1
                                place = entry + int(self.words[entry + 4])
                    for _ in range(n_rows):
                        row = int(self.words[place]) * n
                        n_row = int(self.words[place + 1])
                        for j in range(n_row):
                            to, source = row, int(self.words[place + 2 + j]) // n_bytes
                            if self.is_transposed != 0:
                                to, source = source, row
                            scale = float32(self.values[first + j])
                            _add_scaled(
                                self.partials, to + z0, self.dense, source + z0, scale, z1 - z0
                            )
                        first += n_row
                        place += 2 + n_row
                    value += int(self.words[at + 3])
                    at += int(self.words[at + 4])

        cycles, flops = staticmethod(_planned_cycles), staticmethod(_planned_flops)

    return ElementProduct


@family
def block_product(element: Type, sums: Type) -> type:
    """Rows of blocks times dense blocks; of transposed blocks for the transposed matrix."""

    class BlockProduct(MultiVertex):
        name = f"popsparse::SparseDenseMatMulBlock<{element},{sums}>"
        provenance = "published"
        matrix_types = (element, sums)
        words: Input[Vector[UNSIGNED_SHORT]]
        values: Input[Vector[element]]
        dense: Input[Vector[element]]
        partials: InOut[Vector[sums]]
        sub_group: int32
        n_buckets: int32
        n_columns: int32
        side: int32
        is_transposed: int32
        planned_cycles: uint32
        planned_flops: uint32

        def compute(self: Any, worker_id: int) -> None:
            n, side = int(self.n_columns), int(self.side)
            n_words, area = len(self.words) // self.n_buckets, side * side
            n_values = len(self.values) // self.n_buckets
            z0 = n * worker_id // self.n_workers
            n_z = n * (worker_id + 1) // self.n_workers - z0
            for bucket in range(self.n_buckets):
                at, value = bucket * n_words, bucket * n_values
                while int(self.words[at]) != 0:
                    place, block = at + 7 + 4 * int(self.words[at + 6]), value
                    n_rows = 0
                    if int(self.words[at]) == self.sub_group and n_z > 0:
                        n_rows = int(self.words[at + 5]) + 1
                    for _ in range(n_rows):
                        row, n_row = int(self.words[place]), int(self.words[place + 1]) + 1
                        for j in range(n_row):
                            to, source = row, int(self.words[place + 2 + j])
                            if self.is_transposed != 0:
                                to, source = source, row
                            multiply_accumulate(
                                self.partials, (to * n + z0) * side, side, self.dense,
                                (source * n + z0) * side, side, 1, self.values,
                                block + j * area, side, n_z, side, side,
                            )  # fmt: skip
                        block += n_row * area
                        place += 2 + n_row
                    value += int(self.words[at + 3]) * area
                    at += int(self.words[at + 4])

        cycles, flops = staticmethod(_planned_cycles), staticmethod(_planned_flops)

    return BlockProduct


@family
def values_gradient(element: Type) -> type:
    """Gradients of the values that belong to the sub-group whose operands are here."""
    n_bytes = element.n_bytes

    class ValuesGradient(MultiVertex):
        name = f"popsparse::SparseDenseMatMulGradW<{element},float>"
        provenance = "published"
        words: Input[Vector[UNSIGNED_SHORT]]
        dense: Input[Vector[element]]
        gradient: Input[Vector[element]]
        out: InOut[Vector[FLOAT]]
        visiting: Input[Vector[int32]]  # the sub-group of the operands
        n_columns: int32
        n_planned_columns: int32  # of a partition: offsets in words of elements count these
        side: int32
        planned_cycles: uint32
        planned_flops: uint32

        def compute(self: Any, worker_id: int) -> None:
            n, side, at, value = int(self.n_columns), int(self.side), 0, 0
            area, step = side * side, int(self.n_planned_columns) * n_bytes
            while int(self.words[at]) != 0:
                n_rows, place = int(self.words[at + 5]) + 1, at + 7 + 4 * int(self.words[at + 6])
                extra = 1  # of blocks, a row's number of columns is stored less one
                if side == 1:
                    n_rows, place = int(self.words[at + 6]) + 1, at + int(self.words[at + 7])
                    extra = 0
                if int(self.words[at]) != int(self.visiting[0]):
                    n_rows = 0
                block = value
                for _ in range(n_rows):
                    row, n_row = int(self.words[place]), int(self.words[place + 1]) + extra
                    for j in range(n_row):
                        column = int(self.words[place + 2 + j])
                        if side == 1:
                            column = column // step
                        if (block + j) % self.n_workers == worker_id:
                            multiply_accumulate(
                                self.out, (block + j) * area, side, self.dense,
                                column * n * side, 1, side, self.gradient, row * n * side, side,
                                side, n, side,
                            )  # fmt: skip
                    block += n_row
                    place += 2 + n_row
                value += int(self.words[at + 3])
                at += int(self.words[at + 4])

        cycles, flops = staticmethod(_planned_cycles), staticmethod(_planned_flops)

    return ValuesGradient
