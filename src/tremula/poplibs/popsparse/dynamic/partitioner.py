"""The host's side of dynamic sparsity: a matrix as the data that device programs take.

partitioner = dynamic.Partitioner(params, tr.HALF, graph.target)
data = partitioner.create_sparsity_data(csr)
engine.write_tensor("meta", data.meta_info)
engine.write_tensor("values", data.nz_values)
"""

from dataclasses import dataclass
from typing import Unpack

import numpy as np

from tremula.base.types import Type, as_type
from tremula.poplar.target import Target
from tremula.poplibs.popsparse.dynamic.meta_info import (
    decode,
    encode,
    fixed_words,
    n_overflow_words,
    worker_loads,
)
from tremula.poplibs.popsparse.dynamic.params import (
    DynamicOptions,
    FullyConnectedParams,
    MatMulParams,
    layer_of,
    plan_of,
)
from tremula.poplibs.popsparse.dynamic.plan import DynamicPlan
from tremula.poplibs.popsparse.dynamic.spread import (
    BucketLimits,
    gathered,
    rows_and_columns,
    spread,
)
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix

Ints = np.ndarray


@dataclass(frozen=True, eq=False)
class SparsityData:
    """What the device takes: words of the pattern, and values in the order of buckets."""

    meta_info: Ints  # uint16
    nz_values: Ints
    source: Ints  # number of each value's block in the matrix, row by row; -1: none


@dataclass(frozen=True, eq=False)
class KnownPattern:
    """What a forecast needs to know of a pattern: how far it spills, and what each bucket has."""

    ends: tuple[int, int]  # endX, endY
    rows: Ints  # int64[sub-groups, z]: rows of the bucket's sub-group in each bucket
    blocks: Ints
    loads: Ints  # int64[sub-groups, z, workers, 3]: rows, values, columns; of blocks, no workers


class Partitioner:
    """Distributes patterns over the buckets of one plan, and reads them back."""

    def __init__(
        self, params: FullyConnectedParams | MatMulParams, type: Type | str, target: Target,
        **options: Unpack[DynamicOptions],
    ) -> None:  # fmt: skip
        self.element, self.layer = as_type(type), layer_of(params)
        self.n_workers = target.chip.n_workers
        self.plan: DynamicPlan = plan_of(params, type, target.chip, target.n_tiles, options)

    def create_sparsity_data(self, matrix: COOMatrix | CSRMatrix | CSCMatrix) -> SparsityData:
        """The data of a matrix [outputs, inputs]; more than there is room for is an error."""
        row, column, blocks = self._canonical(matrix)
        plan = self.plan
        limits = BucketLimits(
            plan.n_values // plan.problem.area, plan.n_meta, fixed_words(plan, self.n_workers)
        )
        pieces, n_left = spread(
            row, column, (plan.tile_x, plan.tile_y), (plan.x, plan.y, plan.z), limits
        )
        if n_left:
            room = plan.n_tiles * limits.n_values
            raise SparsityError(
                f"Overflow in buckets: {n_left} of {len(row)} non-zero blocks found no room. The "
                f"plan is for {plan.problem.n_values} evenly spread ones; {plan.n_tiles} buckets "
                f"hold {room} at most.",
                hint="plan for more non-zeros, or raise meta_info_bucket_oversize_proportion",
            )
        encoded = encode(plan, pieces, column, self.n_workers)
        source = encoded.source.reshape(-1)
        return SparsityData(encoded.words, self._values(blocks, source), source)

    def known(self, data: SparsityData) -> KnownPattern:
        """What forecasts of cycles take from a distributed pattern."""
        plan, n_head = self.plan, n_overflow_words(self.plan)
        words = data.meta_info[n_head:].reshape(plan.x * plan.y, plan.z, plan.n_meta)
        first = words[:, :, :7].astype(np.int64)
        is_own = first[:, :, 0] == np.arange(plan.x * plan.y)[:, None] + 1
        rows = first[:, :, 6 if plan.problem.side == 1 else 5] + 1
        ends = int(data.meta_info[0]), int(data.meta_info[1])
        loads = np.zeros((plan.x * plan.y, plan.z, 0, 3), np.int64)
        if plan.problem.side == 1:
            result = worker_loads(words.reshape(-1, plan.n_meta), plan.z, self.n_workers)
            loads = result.reshape(plan.x * plan.y, plan.z, self.n_workers, 3)
        rows, blocks = np.where(is_own, rows, 0), np.where(is_own, first[:, :, 3], 0)
        return KnownPattern(ends, rows, blocks, loads)

    def values_of(self, data: SparsityData, matrix: CSRMatrix) -> Ints:
        """New values for a pattern that was distributed before: its meta-information stays."""
        return self._values(self._canonical(matrix)[2], data.source)

    def order_of(self, data: SparsityData, matrix: CSRMatrix) -> Ints:
        """int64[values on the device]: which of the matrix's each is; -1: none."""
        side = self.plan.problem.side
        numbers = np.arange(1, len(matrix.nz_values) + 1)  # 0 where a bucket has none
        blocks = self._canonical(matrix.with_values(numbers))[2].reshape(-1, side, side)
        stored = np.concatenate((blocks.transpose(0, 2, 1), np.zeros((1, side, side), np.int64)))
        return stored[data.source].reshape(-1) - 1

    def to_coo(self, meta_info: Ints, nz_values: Ints) -> COOMatrix:
        """The matrix that the device's data stand for, row by row."""
        plan, side = self.plan, self.plan.problem.side
        n_head = n_overflow_words(plan)
        if len(meta_info) != n_head + plan.n_tiles * plan.n_meta:
            raise SparsityError(
                f"meta-info of {len(meta_info)} words, expected "
                f"{n_head + plan.n_tiles * plan.n_meta}.",
                hint="give what a Partitioner of the same sizes and options made",
            )
        if np.size(nz_values) != plan.n_tiles * plan.n_values:
            raise SparsityError(
                f"{np.size(nz_values)} values, expected {plan.n_tiles * plan.n_values}: all "
                "buckets, with what is unused in them.",
                hint="give what a Partitioner of the same sizes and options made",
            )
        row, column, place = decode(plan, np.asarray(meta_info[n_head:]))
        blocks = np.asarray(nz_values).reshape(-1, side, side)[place].transpose(0, 2, 1)
        return COOMatrix(
            self.layer.n_out, self.layer.n_in, blocks.reshape(-1), column * side, row * side,
            (side, side),
        ).to_coo()  # fmt: skip

    def to_csr(self, meta_info: Ints, nz_values: Ints) -> CSRMatrix:
        """The matrix by rows."""
        return self.to_coo(meta_info, nz_values).to_csr()

    def to_csc(self, meta_info: Ints, nz_values: Ints) -> CSCMatrix:
        """The matrix by columns."""
        return self.to_coo(meta_info, nz_values).to_csc()

    @property
    def plan_partitions(self) -> tuple[Ints, Ints, Ints]:
        """Where the parts of outputs, inputs and batch begin, in elements."""
        plan, p = self.plan, self.plan.problem
        return (
            np.minimum(np.arange(plan.x) * plan.tile_x, p.n_x) * p.side,
            np.minimum(np.arange(plan.y) * plan.tile_y, p.n_y) * p.side,
            np.arange(plan.z) * plan.tile_z,
        )

    @property
    def n_bucket_words(self) -> int:
        """Words of meta-information that a bucket has room for."""
        return self.plan.n_meta

    def _canonical(self, matrix: COOMatrix | CSRMatrix | CSCMatrix) -> tuple[Ints, Ints, Ints]:
        """(rows, columns, values) of blocks of the plan's size, row by row."""
        side, wanted = self.plan.problem.side, (self.layer.n_out, self.layer.n_in)
        if (matrix.num_rows, matrix.num_columns) != wanted:
            raise SparsityError(
                f"a matrix of [{matrix.num_rows}, {matrix.num_columns}] for a layer of "
                f"{list(wanted)}.",
                hint="rows are outputs, columns inputs",
            )
        if isinstance(matrix, CSRMatrix) and matrix.block == (side, side):
            row, column, wrong = rows_and_columns(matrix.row_indices, matrix.column_indices, side)
            if wrong >= 0:
                matrix.check_order()  # names the entry
            return row, column, matrix.nz_values
        coo = matrix.to_coo()
        if coo.block != (side, side):
            coo = coo.with_block((side, side))
        twice = coo.duplicates()
        if len(twice):
            at = int(twice[0])
            raise SparsityError(
                f"the block at row {coo.row_indices[at]}, column {coo.column_indices[at]} occurs "
                "twice.",
                hint="add the values of equal places up first",
            )
        return coo.row_indices // side, coo.column_indices // side, coo.nz_values

    def _values(self, blocks: Ints, source: Ints) -> Ints:
        """Values in the order of buckets, each block by its columns; zeros where there is none."""
        side, dtype = self.plan.problem.side, self.element.dtype
        if side == 1:
            # Numba has no halves; their bits will do.
            bits = blocks.astype(dtype, copy=False).view(f"u{self.element.n_bytes}")
            return gathered(bits, source).view(dtype)
        stored = blocks.reshape(-1, side, side).transpose(0, 2, 1).astype(dtype)
        stored = np.concatenate((stored, np.zeros((1, side, side), dtype)))
        return stored[source].reshape(-1)
