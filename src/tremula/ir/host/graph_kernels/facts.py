"""What a node of a step is to the rows of a tensor: a gather, a sum into segments, a product.

A *row* is what belongs to one index of the first dimension: an edge of a graph, or a node. The rest
of a shape are its *features*.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

import torch
from torch import Tensor, fx

from tremula.ir.host.graph_kernels.expressions import ELEMENT_WISE, TRITON_TYPES
from tremula.ir.nodes import ints, operand, whole

aten = torch.ops.aten

MIN_ROWS = 16  # fewer are not worth a kernel
MAX_FEATURES = 256  # of a tile: more do not fit the registers of a program
MIN_DOT, MAX_WEIGHT = 16, 128 * 128  # sides and size of a matrix that a program multiplies by

_VIEWS = {
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.squeeze.dims,
    aten.expand.default,
}
_TRANSPOSES = {aten.t.default, aten.transpose.int, aten.permute.default}
_ZEROS = {
    aten.zeros.default,
    aten.new_zeros.default,
    aten.zeros_like.default,
}
_ON_TRUTHS = {aten.logical_and.default, aten.logical_or.default}


def value_of(node: fx.Node) -> Tensor | None:
    """The fake tensor a node gives; None for several of them and for none."""
    value = node.meta.get("val")
    return value if isinstance(value, Tensor) else None


def tensor_of(node: fx.Node) -> Tensor:
    """The fake tensor of a node that gives one."""
    value = value_of(node)
    assert value is not None, f"{node} is no tensor"
    return value


def n_rows_of(node: fx.Node) -> int:
    value = value_of(node)
    return value.shape[0] if value is not None and value.dim() else 0


def features_of(node: fx.Node) -> tuple[int, ...]:
    return tuple(tensor_of(node).shape[1:])


def padded(size: int) -> int:
    """The next power of two: what a dimension of a tile must be."""
    return 1 << (size - 1).bit_length()


# -- operations that read or leave whole tensors ---------------------------------------------------


@dataclass(frozen=True)
class Gather:
    """Row r of the result is row `index[r]` of the table."""

    table: fx.Node
    index: fx.Node
    wraps: bool  # negative indices count from the end


@dataclass(frozen=True)
class Segment:
    """Row r of the source is added to row `index[r]` of the result."""

    source: fx.Node
    index: fx.Node
    skipped: int = -1  # an index whose rows are left out
    wraps: bool = False  # negative indices count from the end


@dataclass(frozen=True)
class Dot:
    """Each row times a matrix, plus a bias."""

    rows: fx.Node
    weight: fx.Node
    bias: fx.Node | None


@dataclass(frozen=True)
class Outer:
    """The sum over all rows of the outer products of two of them."""

    left: fx.Node
    right: fx.Node


def plain_index(node: object) -> fx.Node | None:
    """The list of rows behind an index that was expanded to the shape of what it selects."""
    while isinstance(node, fx.Node):
        value = value_of(node)
        if value is None or value.dtype not in (torch.int64, torch.int32):
            return None
        if value.dim() == 1:
            return node
        is_repeated = node.target in (aten.expand.default, aten._to_copy.default)
        is_column = node.target in _VIEWS and all(n == 1 for n in value.shape[1:])
        node = node.args[0] if is_repeated or is_column else None
    return None


def gather_of(node: fx.Node) -> Gather | None:
    target, args = node.target, node.args
    if target is aten.index_select.default and _is_first(args[1], args[0]):
        return _gather(node, args[0], args[2])
    if target is aten.embedding.default:
        return _gather(node, args[0], args[1])
    if target is aten.index.Tensor and isinstance(args[1], list | tuple) and len(args[1]) == 1:
        return _gather(node, args[0], args[1][0], wraps=True)
    if target is aten.gather.default and _is_first(args[1], args[0]):
        result = _gather(node, args[0], args[2])
        has_all = result is not None and features_of(result.table) == features_of(node)
        return result if has_all else None
    return None


def _gather(node: fx.Node, table: object, index: object, wraps: bool = False) -> Gather | None:
    rows = plain_index(index)
    if rows is None or not isinstance(table, fx.Node) or not _fits(table):
        return None
    return Gather(table, rows, wraps) if n_rows_of(node) == n_rows_of(rows) else None


def segment_of(node: fx.Node) -> Segment | None:
    target, args = node.target, node.args
    if target is aten.embedding_dense_backward.default:
        source, index, _, skipped, by_frequency = args
        return None if by_frequency else _segment(source, index, whole(skipped))
    if not node.args or not _is_zero(args[0]):
        return None
    is_sum = target is aten.scatter_add.default or (
        target is aten.scatter_reduce.two and args[4] == "sum"
    )
    if is_sum and _is_first(args[1], args[0]):
        is_whole = tensor_of(operand(node, 2)).shape == tensor_of(operand(node, 3)).shape
        return _segment(args[3], args[2]) if is_whole else None
    if target is aten.index_add.default and _is_first(args[1], args[0]):
        return None if node.kwargs.get("alpha", 1) != 1 else _segment(args[3], args[2])
    if target is aten.index_put.default and len(args) > 3 and args[3]:
        indices = list(cast("Sequence[object]", args[1]))
        return _segment(args[2], indices[0], wraps=True) if len(indices) == 1 else None
    return None


def _segment(
    source: object, index: object, skipped: int = -1, wraps: bool = False
) -> Segment | None:
    rows = plain_index(index)
    if rows is None or not isinstance(source, fx.Node) or not _fits(source):
        return None
    is_whole = n_rows_of(source) == n_rows_of(rows)
    floats = source.meta["val"].is_floating_point()
    return Segment(source, rows, skipped, wraps) if is_whole and floats else None


def dot_of(node: fx.Node) -> Dot | None:
    """A product with a matrix that a program can hold; narrow ones are sums of products."""
    if node.target is aten.mm.default:
        rows, weight, bias = operand(node), operand(node, 1), None
    elif node.target is aten.addmm.default and not node.kwargs:
        bias, rows, weight = (operand(node, i) for i in range(3))
        if tensor_of(bias).dim() != 1:
            return None
    else:
        return None
    n_in, n_out = tensor_of(weight).shape
    is_wide = min(n_in, n_out) >= MIN_DOT and padded(n_in) * padded(n_out) <= MAX_WEIGHT
    is_narrow = min(n_in, n_out) == 1
    fits = _fits(rows) and (is_wide or is_narrow)
    return Dot(rows, weight, bias) if fits else None


def outer_of(node: fx.Node) -> Outer | None:
    """Only where a program can hold the sum beside what it computes."""
    if node.target is not aten.mm.default:
        return None
    left, is_turned = base_of_matrix(operand(node))
    right = operand(node, 1)
    if not is_turned or n_rows_of(left) != n_rows_of(right):
        return None
    sides = features_of(left)[0], features_of(right)[0]
    is_wide = min(sides) >= MIN_DOT and prod(padded(n) for n in sides) <= MAX_WEIGHT
    is_narrow = min(sides) == 1 and max(sides) <= MAX_FEATURES
    return Outer(left, right) if is_wide or is_narrow else None


def weight_of(node: fx.Node) -> int:
    """The size of the matrix that a wide product multiplies rows by, as tiles hold it."""
    dot = dot_of(node) if is_wide_product(node) else None
    return prod(padded(n) for n in tensor_of(dot.weight).shape) if dot is not None else 0


def outer_size_of(node: fx.Node) -> int:
    """The size of a sum of outer products that tensor cores do."""
    outer = outer_of(node) if is_wide_product(node) else None
    return prod(padded(n) for n in tensor_of(node).shape) if outer is not None else 0


def is_wide_product(node: fx.Node) -> bool:
    """A product of matrices that tensor cores do."""
    value = value_of(node)
    is_product = node.target in (aten.mm.default, aten.addmm.default)
    return is_product and value is not None and min(value.shape) > 1 and _inner(node) > 1


def _inner(node: fx.Node) -> int:
    return tensor_of(operand(node, -1)).shape[0]


def column_sum_of(node: fx.Node) -> fx.Node | None:
    """The tensor whose rows are summed, if a node does that."""
    if node.target is not aten.sum.dim_IntList or node.kwargs:
        return None
    source = operand(node)
    rank = tensor_of(source).dim()
    dims = [d % rank for d in ints(node.args[1] or [])]
    is_matrix = rank == 2
    return source if dims == [0] and is_matrix and _fits(source) else None


def base_of_matrix(node: fx.Node) -> tuple[fx.Node, bool]:
    """A matrix without its transpositions, and whether it was transposed."""
    is_turned = False
    while is_transposition(node):
        is_same = node.target is aten.permute.default and ints(node.args[1]) == [0, 1]
        is_turned ^= not is_same
        node = operand(node)
    return node, is_turned


def is_transposition(node: fx.Node) -> bool:
    value = value_of(node)
    return node.target in _TRANSPOSES and value is not None and value.dim() == 2


def _is_first(dim: object, node: object) -> bool:
    value = value_of(node) if isinstance(node, fx.Node) else None
    return value is not None and isinstance(dim, int) and dim % value.dim() == 0


def _is_zero(node: object) -> bool:
    if not isinstance(node, fx.Node):
        return False
    if node.target in (aten.full.default, aten.full_like.default, aten.new_full.default):
        place = 2 if node.target is aten.new_full.default else 1
        return bool(node.args[place] == 0)
    return node.target in _ZEROS


def _fits(node: fx.Node) -> bool:
    value = value_of(node)
    if value is None or value.dim() == 0 or value.dtype not in TRITON_TYPES:
        return False
    return prod(padded(n) for n in value.shape[1:]) <= MAX_FEATURES


# -- operations on each row by itself --------------------------------------------------------------


def row_operands(node: fx.Node, n_rows: int) -> list[fx.Node] | None:
    """The operands of which row r alone decides row r of the result; None if there is more to it.

    Indices of a gather are such operands, its table is not.
    """
    if node.op != "call_function" or n_rows_of(node) != n_rows or not _fits(node):
        return None
    value = tensor_of(node)
    if not value.is_floating_point() and value.dtype is not torch.bool:
        return None  # indices: few, and seldom computed
    gather = gather_of(node)
    if gather is not None:
        return [gather.index]
    dot = dot_of(node)
    if dot is not None:
        return [dot.rows]
    for known in (_element_wise_operands, _reduced_operand, _viewed_operand):
        result = known(node, n_rows)
        if result is not None:
            return result
    return None


def _element_wise_operands(node: fx.Node, n_rows: int) -> list[fx.Node] | None:
    if node.target not in ELEMENT_WISE:
        return None
    rank = tensor_of(node).dim()
    result = []
    for x in node.all_input_nodes:
        value = value_of(x)
        if value is None or value.dtype not in TRITON_TYPES:
            return None
        if node.target in _ON_TRUTHS and value.dtype is not torch.bool:
            return None
        if value.dim() == rank and value.shape[0] == n_rows:
            result.append(x)
        elif value.dim() == rank and value.shape[0] != 1:
            return None
    return result or None


def _reduced_operand(node: fx.Node, n_rows: int) -> list[fx.Node] | None:
    """Sums, means and norms over the last feature."""
    reduction = row_reduction_of(node)
    if reduction is None or n_rows_of(reduction.source) != n_rows or not _fits(reduction.source):
        return None
    return [reduction.source]


@dataclass(frozen=True)
class RowReduction:
    """The last feature of each row made one number."""

    source: fx.Node
    kind: str  # sum, mean, norm
    keeps: bool


def row_reduction_of(node: fx.Node) -> RowReduction | None:
    args = node.args
    if node.target is aten.linalg_vector_norm.default:
        if len(args) < 3 or args[1] != 2:
            return None
        kind, dims, rest = "norm", args[2], args[3:]
    elif node.target in (aten.sum.dim_IntList, aten.mean.dim):
        kind = "sum" if node.target is aten.sum.dim_IntList else "mean"
        _, dims, *rest = args
    else:
        return None
    source = operand(node)
    rank = tensor_of(source).dim()
    is_last = dims is not None and [d % rank for d in ints(dims)] == [rank - 1]
    floats = tensor_of(source).is_floating_point()
    if not is_last or rank < 2 or node.kwargs or not floats:
        return None
    return RowReduction(source, kind, bool(rest and rest[0]))


def _viewed_operand(node: fx.Node, n_rows: int) -> list[fx.Node] | None:
    """Views that keep rows; tiles have powers of two as sides, so others than ones must be such."""
    if node.target not in _VIEWS:
        return None
    source = operand(node)
    if n_rows_of(source) != n_rows or not _fits(source):
        return None
    before, after = features_of(source), features_of(node)
    if node.target is aten.expand.default:
        return [source] if len(before) == len(after) else None
    same = _without_ones(before) == _without_ones(after)
    powers = all(n == padded(n) for n in (*before, *after))
    return [source] if same or powers else None


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]


def whole_operands(node: fx.Node, rows: list[fx.Node]) -> list[fx.Node]:
    """The operands of a row-wise node that must be complete before its first row is computed."""
    gather, dot = gather_of(node), dot_of(node)
    if gather is not None:
        return [gather.table]
    if dot is not None:
        return [x for x in (dot.weight, dot.bias) if x is not None]
    return [x for x in node.all_input_nodes if x not in rows]


def is_view_of_rows(node: fx.Node) -> bool:
    return node.target in _VIEWS
