"""Block-sparse products, by the plans and vertices of static ones: blocks are cut into squares.

params = BSMatMulParams.dense_sparse((64, 128, 64), (16, 16, 16), mask, tr.HALF, tr.HALF, tr.HALF)
out = bs_mat_mul(graph, params, sequence, lhs, rhs)
"""

from typing import Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.popops import cast, zero
from tremula.poplibs.popsparse import static
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.experimental.block_params import (
    BlockOptions,
    BSMatMulParams,
    SubBlockMask,
    checked_passes,
)
from tremula.poplibs.popsparse.static.operands import pieces_of


def create_bs_mat_mul_input_lhs(graph: Graph, params: BSMatMulParams, name: str = "lhs") -> Tensor:
    """The dense left operand [m, k], with several groups [groups, m, k]."""
    m, k, _ = params.dims
    return graph.add_variable(params.element, params.dense_shape(m, k), name, mapping="linear")


def create_bs_mat_mul_input_rhs(graph: Graph, params: BSMatMulParams, name: str = "rhs") -> Tensor:
    """The right operand: dense [k, n], or the blocks of a sparse one."""
    if params.is_result_sparse:
        _, k, n = params.dims
        return graph.add_variable(params.element, params.dense_shape(k, n), name, mapping="linear")
    return create_blocks(graph, params.element, params.mask.shape, name)


def create_blocks(graph: Graph, type: Type, shape: tuple[int, int], name: str) -> Tensor:
    """[blocks, elements of a block], each block on one tile."""
    made = graph.add_variable(type, shape, name)
    graph.map_linearly(made, min_elems=1, grain=shape[1])
    return made


def bs_mat_mul(
    graph: Graph, params: BSMatMulParams, sequence: Sequence, lhs: Tensor, rhs: Tensor,
    name: str = "bsMatMul", **options: Unpack[BlockOptions],
) -> Tensor:  # fmt: skip
    """A new tensor: dense [m, n], or the blocks of a sparse result."""
    n_passes = checked_passes(params, options)
    _check_operands(params, lhs, rhs)
    inner = params.partials_type  # plans sum in the type of their operands
    if inner is not params.element:
        lhs = cast(graph, lhs, inner, sequence, f"{name}/wideLhs")
        rhs = cast(graph, rhs, inner, sequence, f"{name}/wideRhs")
    if params.is_result_sparse:
        out = _sparse_result(graph, params, lhs, rhs, sequence, name)
    else:
        out = _dense_result(graph, params, lhs, rhs, sequence, name, n_passes)
    if out.type is params.out_type:
        return out
    return cast(graph, out, params.out_type, sequence, f"{name}/cast")


def _check_operands(params: BSMatMulParams, lhs: Tensor, rhs: Tensor) -> None:
    m, k, n = params.dims
    right = params.dense_shape(k, n) if params.is_result_sparse else params.mask.shape
    for what, tensor, shape in (("left", lhs, params.dense_shape(m, k)), ("right", rhs, right)):
        if tensor.shape != shape or tensor.type != params.element:
            raise SparsityError(
                f"a block-sparse product got a {what} operand of {tensor.type} "
                f"{list(tensor.shape)}, expected {params.element} {list(shape)}.",
                source=user_source(),
                hint="create_bs_mat_mul_input_lhs and create_bs_mat_mul_input_rhs make operands",
            )


def stored(graph: Graph, tensor: Tensor, sequence: Sequence, name: str) -> Tensor:
    """A matrix of blocks as one stretch of memory: itself, or a copy."""
    flat = tensor.flatten()
    runs = flat.runs()
    if len(runs.start) == 1 and (runs.stride[0] == 1 or runs.count[0] == 1):
        return Tensor(tensor.variables, tensor.type, int(runs.start[0]), (flat.n_elems,), (1,))
    made = create_blocks(graph, tensor.type, (tensor.shape[0], tensor.shape[1]), name)
    sequence.add(Copy(tensor, made))
    return made.flatten()


def _of_group(tensor: Tensor, group: int) -> Tensor:
    return tensor if tensor.rank == 2 else tensor[group]


def _in_squares(flat: Tensor, place: np.ndarray, side: int) -> Tensor:
    """Values of blocks in the order of their squares: rows of a square lie together."""
    begin = place[::side]
    count = np.full(len(begin), side)
    return pieces_of(flat, Runs(flat.offset + begin, count, np.ones_like(count)))


def _dense_result(
    graph: Graph, params: BSMatMulParams, lhs: Tensor, rhs: Tensor, sequence: Sequence, name: str,
    n_passes: int,
) -> Tensor:  # fmt: skip
    m, k, n = params.dims
    mask, size = params.mask, m // n_passes
    blocks = stored(graph, rhs, sequence, f"{name}/rhs")
    result = []
    for group in range(params.n_groups):
        pattern, place = mask.squares(group)
        begin, end = mask.first_block[group : group + 2] * mask.area
        values = _in_squares(blocks.slice(int(begin), int(end), 0), place, mask.side)
        sizes = static.MatMulParams.create_for_dense_sparse(1, size, k, n)
        if params.is_rhs_transposed:  # [n, k] by [k, rows] is the transposed result
            sizes = static.MatMulParams.create_for_sparse_dense(1, n, k, size)
        make = (
            static.create_sparse_dense_mat_mul_lhs
            if params.is_rhs_transposed
            else static.create_dense_sparse_mat_mul_rhs
        )
        sparse = make(graph, lhs.type, sizes, pattern, f"{name}/sparse")
        if values.n_elems:
            sequence.add(Copy(values, sparse.in_row_order()))
        own = _of_group(lhs, group)
        parts = [own.slice(p * size, (p + 1) * size, 0) for p in range(n_passes)]
        result.append(concat([_product(graph, sparse, part, sequence, name) for part in parts]))
    if params.n_groups == 1:
        return result[0]
    return concat([one.expand([0]) for one in result])


def _product(
    graph: Graph, sparse: static.SparseTensor, lhs: Tensor, sequence: Sequence, name: str
) -> Tensor:
    if sparse.product.params.is_transposed:
        return static.dense_sparse_mat_mul(graph, lhs, sparse, sequence, name)
    turned = static.sparse_dense_mat_mul(graph, sparse, lhs.transpose(), sequence, name)
    return turned.transpose()


def _sparse_result(
    graph: Graph, params: BSMatMulParams, lhs: Tensor, rhs: Tensor, sequence: Sequence, name: str
) -> Tensor:
    """Blocks of the product are gradients of the values of a matrix with the result's pattern."""
    m, k, n = params.dims
    mask = params.mask
    out = create_blocks(graph, lhs.type, mask.shape, f"{name}/out")
    flat = out.flatten()
    for group in range(params.n_groups):
        pattern, place = mask.squares(group)
        sizes = static.MatMulParams.create_for_sparse_dense(1, m, n, k)
        sparse = static.create_sparse_dense_mat_mul_lhs(
            graph, lhs.type, sizes, pattern, f"{name}/pattern"
        )
        dense, gradient = _of_group(rhs, group).transpose(), _of_group(lhs, group)
        values = static.values_gradient(graph, sparse, dense, gradient, sequence, name)
        begin, end = mask.first_block[group : group + 2] * mask.area
        if values.n_elems:
            own = _in_squares(flat.slice(int(begin), int(end), 0), place, mask.side)
            sequence.add(Copy(sparse.in_row_order(values), own))
    if params.sub_block_mask is SubBlockMask.NONE:
        return out
    elements = mask.counted_elements(params.sub_block_mask)
    masked = create_blocks(graph, lhs.type, mask.shape, f"{name}/masked")
    zero(graph, masked, sequence, f"{name}/zero")
    if len(elements.row):
        sequence.add(Copy(elements.of(flat), elements.of(masked.flatten())))
    return masked
