"""Steps of linear algebra that only tile programs are made of: decompositions call them."""

import torch
from torch import Tensor

_library = torch.library.Library("tremula", "FRAGMENT")

# The order in which exchanges of rows (counted from 1, as LAPACK's) leave n rows.
_library.define("row_order(Tensor pivots, int n) -> Tensor")
# (matrix · rotations, rotations): the columns of the product are orthogonal.
_library.define("orthogonal_columns(Tensor matrix) -> (Tensor, Tensor)")


def _row_order(pivots: Tensor, n: int) -> Tensor:
    return pivots.new_empty((*pivots.shape[:-1], n), dtype=torch.int64)


def _orthogonal_columns(matrix: Tensor) -> tuple[Tensor, Tensor]:
    n = matrix.shape[-1]
    return torch.empty_like(matrix), matrix.new_empty((*matrix.shape[:-2], n, n))


_library.impl("row_order", _row_order, "Meta")
_library.impl("orthogonal_columns", _orthogonal_columns, "Meta")
