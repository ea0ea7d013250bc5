"""Lowerings of sparse products: PopSparse's static ones, and dynamic ones for patterns as data.

PopSparse is slow to load, and most models have no use for it: each lowering loads it for itself.
"""

from typing import TYPE_CHECKING

from tremula.base.types import UNSIGNED_SHORT, Type
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.ir.ops.sparse_pattern import pattern_numbered
from tremula.poplar.programs import Copy
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import popops

if TYPE_CHECKING:
    from tremula.poplibs.popsparse import dynamic


@lowers("tremula::sparse_mm", calls="popsparse.static.mat_mul")
def sparse_mm(
    tiles: Tiles, values: Tensor, dense: Tensor, pattern: int, transposed: bool
) -> Tensor:
    """Values travel in the pattern's order; the transposed product leaves them where they are."""
    from tremula.poplibs.popsparse import static

    multiply = static.mat_mul_dense_gradient if transposed else static.mat_mul
    matrix = pattern_numbered(pattern).csr()
    return multiply(
        tiles.graph, values.flatten(), dense, tiles.sequence, pattern=matrix, name=tiles.name
    )


@lowers("tremula::sparse_mm_values", calls="popsparse.static.mat_mul_values_gradient")
def sparse_mm_values(tiles: Tiles, gradient: Tensor, dense: Tensor, pattern: int) -> Tensor:
    from tremula.poplibs.popsparse import static

    matrix = pattern_numbered(pattern).csr()
    result = static.mat_mul_values_gradient(
        tiles.graph, dense, gradient, tiles.sequence, pattern=matrix, name=tiles.name
    )
    return result.reshape(tiles.out_shape)


# -- patterns that are data ------------------------------------------------------------------------

DYNAMIC_OPTIONS: "dynamic.DynamicOptions" = {"do_grad_a_pass": True, "do_grad_w_pass": True}


def _weights(
    tiles: Tiles, meta: Tensor, params: "dynamic.FullyConnectedParams", type: Type
) -> "dynamic.SparseTensor":
    from tremula.poplibs.popsparse import SparsityError, dynamic

    made = dynamic.create_fully_connected_weights(
        tiles.graph, type, params, f"{tiles.name}/weights", **DYNAMIC_OPTIONS
    )
    if made.meta_info.n_elems != meta.n_elems:
        raise SparsityError(
            f"{tiles.name}: a pattern was spread for {meta.n_elems} words of meta-information, but "
            f"{tiles.graph.target.n_tiles} tiles have {made.meta_info.n_elems}.",
            hint="make DynamicSparseLinear for the chip that the model is compiled for, without "
            "I/O tiles",
        )
    words = popops.cast(tiles.graph, meta, UNSIGNED_SHORT, tiles.sequence, f"{tiles.name}/words")
    tiles.sequence.add(Copy(words, made.meta_info))
    return made


def _with_values(
    tiles: Tiles, values: Tensor, made: "dynamic.SparseTensor"
) -> "dynamic.SparseTensor":
    tiles.sequence.add(Copy(values.flatten(), made.nz_values))
    return made


@lowers("tremula::dynamic_sparse", calls="popsparse.dynamic.fully_connected_fwd")
def dynamic_sparse(
    tiles: Tiles, values: Tensor, x: Tensor, meta: Tensor, _rows: Tensor, _columns: Tensor,
    n_values: int, n_out: int,
) -> Tensor:  # fmt: skip
    from tremula.poplibs.popsparse import dynamic

    params = dynamic.FullyConnectedParams(x.shape[0], x.shape[1], n_out, n_values, values.shape[-1])
    weights = _with_values(tiles, values, _weights(tiles, meta, params, x.type))
    return dynamic.fully_connected_fwd(tiles.graph, weights, x, tiles.sequence, tiles.name)


@lowers("tremula::dynamic_sparse_x", calls="popsparse.dynamic.fully_connected_grad_a")
def dynamic_sparse_x(
    tiles: Tiles, values: Tensor, grad: Tensor, meta: Tensor, _rows: Tensor, _columns: Tensor,
    n_values: int, n_in: int,
) -> Tensor:  # fmt: skip
    from tremula.poplibs.popsparse import dynamic

    params = dynamic.FullyConnectedParams(
        grad.shape[0], n_in, grad.shape[1], n_values, values.shape[-1]
    )
    weights = _with_values(tiles, values, _weights(tiles, meta, params, grad.type))
    return dynamic.fully_connected_grad_a(tiles.graph, weights, grad, tiles.sequence, tiles.name)


@lowers("tremula::dynamic_sparse_values", calls="popsparse.dynamic.fully_connected_sparse_grad_w")
def dynamic_sparse_values(
    tiles: Tiles, grad: Tensor, x: Tensor, meta: Tensor, _rows: Tensor, _columns: Tensor,
    n_values: int, side: int,
) -> Tensor:  # fmt: skip
    from tremula.poplibs.popsparse import dynamic

    params = dynamic.FullyConnectedParams(x.shape[0], x.shape[1], grad.shape[1], n_values, side)
    weights = _weights(tiles, meta, params, x.type)
    result = dynamic.fully_connected_sparse_grad_w(
        tiles.graph, weights, grad, x, tiles.sequence, tiles.name
    )
    return result.reshape(tiles.out_shape)
