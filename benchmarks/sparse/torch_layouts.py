"""Sparse matrices in the layouts that this PyTorch multiplies: its compressed ones need MKL."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded where it is used
    from torch import Tensor


def multiplied_layouts(matrices: "Sequence[Tensor]", right: "Tensor") -> "list[Tensor]":
    """Those of some sparse matrices that PyTorch can multiply here; without any, coordinates.

    Builds without MKL, as those for ARM, have no product of compressed layouts (CSR, BSR).
    """
    result = [matrix for matrix in matrices if _is_multiplied(matrix, right)]
    return result or [matrices[0].to_dense().to_sparse_coo().coalesce()]


def _is_multiplied(matrix: "Tensor", right: "Tensor") -> bool:
    try:
        matrix @ right[:, :1]
    except RuntimeError:
        return False
    return True
