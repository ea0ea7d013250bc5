"""The host's side of a static product: values of a pattern in the order of the device, and back.

partitioner = static.Partitioner(params, tr.HALF, graph.target)
engine.write_tensor("values", partitioner.create_sparsity_data(csr))
"""

from typing import Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type, as_type
from tremula.poplar.target import Target
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSCMatrix, CSRMatrix
from tremula.poplibs.popsparse.static.operands import (
    MatMulParams,
    StaticOptions,
    StaticProduct,
    plan_product,
)


class Partitioner:
    """Orders values as tiles have them; the pattern of the first matrix is that of all."""

    def __init__(
        self, params: MatMulParams, type: Type | str, target: Target,
        **options: Unpack[StaticOptions],
    ) -> None:  # fmt: skip
        self.params, self.element, self.target = params, as_type(type), target
        self.options = options
        self._pattern: CSRMatrix | None = None
        self._product: StaticProduct | None = None

    def create_sparsity_data(self, matrix: COOMatrix | CSRMatrix | CSCMatrix) -> np.ndarray:
        """The values of a matrix in the order of the device."""
        csr = matrix.to_csr()
        if self._pattern is None or self._product is None:
            self._product = plan_product(self.params, self.element, csr, self.target, self.options)
            self._pattern = csr
        elif not _is_alike(self._pattern, csr):
            raise SparsityError(
                f"a pattern of {csr.n_blocks} blocks that is not the first one's, of "
                f"{self._pattern.n_blocks}: a static product has one pattern.",
                source=user_source(),
                hint="make another Partitioner for it, or use popsparse.dynamic",
            )
        return self._product.to_device(csr.nz_values).astype(self.element.dtype)

    def to_csr(self, nz_values: np.ndarray) -> CSRMatrix:
        """The matrix that the device's values stand for, by rows."""
        if self._pattern is None or self._product is None:
            raise SparsityError(
                "a Partitioner that was given no matrix knows no pattern.",
                source=user_source(),
                hint="call create_sparsity_data first",
            )
        if np.size(nz_values) != len(self._pattern.nz_values):
            raise SparsityError(
                f"{np.size(nz_values)} values for a pattern of {len(self._pattern.nz_values)}.",
                source=user_source(),
                hint="give the values of a tensor of create_sparse_dense_mat_mul_lhs",
            )
        return self._pattern.with_values(self._product.from_device(nz_values))

    def to_coo(self, nz_values: np.ndarray) -> COOMatrix:
        """The matrix as a list of blocks, row by row."""
        return self.to_csr(nz_values).to_coo()

    def to_csc(self, nz_values: np.ndarray) -> CSCMatrix:
        """The matrix by columns."""
        return self.to_csr(nz_values).to_csc()


def _is_alike(one: CSRMatrix, other: CSRMatrix) -> bool:
    return (
        (one.num_rows, one.num_columns, one.block)
        == (other.num_rows, other.num_columns, other.block)
        and np.array_equal(one.row_indices, other.row_indices)
        and np.array_equal(one.column_indices, other.column_indices)
    )  # fmt: skip
