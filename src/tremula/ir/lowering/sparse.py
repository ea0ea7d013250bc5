"""Lowerings of products of fixed sparsity, to PopSparse's static ones."""

from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.ir.ops.sparse_pattern import pattern_numbered
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popsparse import static


@lowers("tremula::sparse_mm", calls="popsparse.static.mat_mul")
def sparse_mm(
    tiles: Tiles, values: Tensor, dense: Tensor, pattern: int, transposed: bool
) -> Tensor:
    """Values travel in the pattern's order; the transposed product leaves them where they are."""
    multiply = static.mat_mul_dense_gradient if transposed else static.mat_mul
    matrix = pattern_numbered(pattern).csr()
    return multiply(
        tiles.graph, values.flatten(), dense, tiles.sequence, pattern=matrix, name=tiles.name
    )


@lowers("tremula::sparse_mm_values", calls="popsparse.static.mat_mul_values_gradient")
def sparse_mm_values(tiles: Tiles, gradient: Tensor, dense: Tensor, pattern: int) -> Tensor:
    matrix = pattern_numbered(pattern).csr()
    found = static.mat_mul_values_gradient(
        tiles.graph, dense, gradient, tiles.sequence, pattern=matrix, name=tiles.name
    )
    return found.reshape(tiles.out_shape)
