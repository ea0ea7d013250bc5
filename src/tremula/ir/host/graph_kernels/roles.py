"""What a node of a step does with the rows of tensors: it gathers, multiplies or sums them.

A *row* is what belongs to one index of the first dimension: an edge of a graph, or a node. The
other dimensions of a shape are its *features*. A node has a `RowRole` if row r of its result
depends on row r of its operands alone (and on tensors that all rows share), and a `SumRole` if it
sums over rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import cast

import torch
from torch import Tensor, fx

from tremula.ir.host.graph_kernels.expressions import ELEMENT_TYPES, ELEMENT_WISE
from tremula.ir.nodes import ints, operand, whole

aten = torch.ops.aten

MIN_ROWS = 16  # the smallest tile
MAX_FEATURES = 256  # of a tile: more do not fit into the registers of a program
# The least side of a matrix that tensor cores take, and the elements of the largest in a kernel:
# 128 × 128 floats are 64 KB, a quarter of the shared memory of a multiprocessor.
MIN_SIDE, MAX_WEIGHT = 16, 128 * 128

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
_ON_BOOLEANS = {aten.logical_and.default, aten.logical_or.default}


def value_of(node: fx.Node) -> Tensor | None:
    """The fake tensor of a node; None if it has several results or none."""
    value = node.meta.get("val")
    return value if isinstance(value, Tensor) else None


def tensor_of(node: fx.Node) -> Tensor:
    """The fake tensor of a node that has one."""
    value = value_of(node)
    assert value is not None, f"{node} is not a tensor"
    return value


def n_rows_of(node: fx.Node) -> int:
    value = value_of(node)
    return value.shape[0] if value is not None and value.dim() else 0


def features_of(node: fx.Node) -> tuple[int, ...]:
    return tuple(tensor_of(node).shape[1:])


def padded(size: int) -> int:
    """The next power of two: dimensions of tiles are powers of two."""
    return 1 << (size - 1).bit_length()


def _fits(node: fx.Node) -> bool:
    value = value_of(node)
    if value is None or value.dim() == 0 or value.dtype not in ELEMENT_TYPES:
        return False
    return prod(padded(n) for n in value.shape[1:]) <= MAX_FEATURES


# -- roles -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gather:
    """Row r of the result is row `index[r]` of the table."""

    table: fx.Node
    index: fx.Node
    wraps: bool  # negative indices count from the end

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.index,)


@dataclass(frozen=True)
class Product:
    """Each row times a matrix, plus a bias."""

    source: fx.Node
    weight: fx.Node
    bias: fx.Node | None

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.source,)

    @property
    def is_wide(self) -> bool:
        """Whether tensor cores do it; with one column or row it is a sum of products."""
        return min(tensor_of(self.weight).shape) > 1


@dataclass(frozen=True)
class ElementWise:
    """An expression of `ELEMENT_WISE`; operands that are not rows are shared by all rows."""

    rows: tuple[fx.Node, ...]


@dataclass(frozen=True)
class RowReduction:
    """The last feature dimension of each row, reduced to one number."""

    source: fx.Node
    kind: str  # sum, mean, norm
    keeps_dim: bool

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.source,)


@dataclass(frozen=True)
class RowView:
    """The elements of each row in another shape, or repeated."""

    source: fx.Node

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.source,)


@dataclass(frozen=True)
class SegmentSum:
    """Row r of the source is added to row `index[r]` of the result."""

    source: fx.Node
    index: fx.Node
    skipped: int = -1  # an index whose rows are left out
    wraps: bool = False  # negative indices count from the end

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.source, self.index)


@dataclass(frozen=True)
class ColumnSum:
    """The sum of all rows of a matrix."""

    source: fx.Node

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.source,)


@dataclass(frozen=True)
class OuterSum:
    """The sum over all rows of the outer products of two of them."""

    left: fx.Node
    right: fx.Node

    @property
    def rows(self) -> tuple[fx.Node, ...]:
        return (self.left, self.right)

    @property
    def sizes(self) -> tuple[int, int]:
        return features_of(self.left)[0], features_of(self.right)[0]

    @property
    def is_wide(self) -> bool:
        """Whether tensor cores do it."""
        return min(self.sizes) > 1

    @property
    def narrow_and_wide(self) -> tuple[fx.Node, fx.Node]:
        """The operand with one feature, and the other."""
        n, m = self.sizes
        return (self.right, self.left) if n > m else (self.left, self.right)


RowRole = Gather | Product | ElementWise | RowReduction | RowView
SumRole = SegmentSum | ColumnSum | OuterSum


def row_role_of(node: fx.Node, n_rows: int) -> RowRole | None:
    """How a node computes each of `n_rows` rows; None if it does not."""
    if node.op != "call_function" or n_rows_of(node) != n_rows or not _fits(node):
        return None
    value = tensor_of(node)
    if not value.is_floating_point() and value.dtype is not torch.bool:
        return None  # indices: few, and seldom computed
    return (
        gather_of(node)
        or product_of(node)
        or _element_wise_of(node, n_rows)
        or _row_reduction_of(node, n_rows)
        or _row_view_of(node, n_rows)
    )


def sum_role_of(node: fx.Node) -> SumRole | None:
    """How a node sums over rows; None if it does not."""
    return segment_sum_of(node) or column_sum_of(node) or outer_sum_of(node)


def whole_operands(node: fx.Node, role: RowRole) -> list[fx.Node]:
    """The operands of a row-wise node that must be complete before its first row is computed."""
    match role:
        case Gather():
            return [role.table]
        case Product():
            return [x for x in (role.weight, role.bias) if x is not None]
        case _:
            return [x for x in node.all_input_nodes if x not in role.rows]


# -- gathers and segments --------------------------------------------------------------------------


def gather_of(node: fx.Node) -> Gather | None:
    target, args = node.target, node.args
    if target is aten.index_select.default and is_first_dimension(args[1], args[0]):
        return _gather(node, args[0], args[2])
    if target is aten.embedding.default:
        return _gather(node, args[0], args[1])
    if target is aten.index.Tensor and isinstance(args[1], list | tuple) and len(args[1]) == 1:
        return _gather(node, args[0], args[1][0], wraps=True)
    if target is aten.gather.default and is_first_dimension(args[1], args[0]):
        result = _gather(node, args[0], args[2])
        has_all = result is not None and features_of(result.table) == features_of(node)
        return result if has_all else None
    return None


def _gather(node: fx.Node, table: object, index: object, wraps: bool = False) -> Gather | None:
    rows = plain_index(index)
    if rows is None or not isinstance(table, fx.Node) or not _fits(table):
        return None
    return Gather(table, rows, wraps) if n_rows_of(node) == n_rows_of(rows) else None


def segment_sum_of(node: fx.Node) -> SegmentSum | None:
    target, args = node.target, node.args
    if target is aten.embedding_dense_backward.default:
        source, index, _, skipped, by_frequency = args
        return None if by_frequency else _segment_sum(source, index, whole(skipped))
    if not node.args or not is_zero(args[0]):
        return None
    is_sum = target is aten.scatter_add.default or (
        target is aten.scatter_reduce.two and args[4] == "sum"
    )
    if is_sum and is_first_dimension(args[1], args[0]):
        is_whole = tensor_of(operand(node, 2)).shape == tensor_of(operand(node, 3)).shape
        return _segment_sum(args[3], args[2]) if is_whole else None
    if target is aten.index_add.default and is_first_dimension(args[1], args[0]):
        return None if node.kwargs.get("alpha", 1) != 1 else _segment_sum(args[3], args[2])
    if target is aten.index_put.default and len(args) > 3 and args[3]:
        indices = list(cast("Sequence[object]", args[1]))
        return _segment_sum(args[2], indices[0], wraps=True) if len(indices) == 1 else None
    return None


def _segment_sum(
    source: object, index: object, skipped: int = -1, wraps: bool = False
) -> SegmentSum | None:
    rows = plain_index(index)
    if rows is None or not isinstance(source, fx.Node) or not _fits(source):
        return None
    is_whole = n_rows_of(source) == n_rows_of(rows)
    floats = source.meta["val"].is_floating_point()
    return SegmentSum(source, rows, skipped, wraps) if is_whole and floats else None


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


def is_first_dimension(dim: object, node: object) -> bool:
    value = value_of(node) if isinstance(node, fx.Node) else None
    return value is not None and isinstance(dim, int) and dim % value.dim() == 0


def is_zero(node: object) -> bool:
    if not isinstance(node, fx.Node):
        return False
    if node.target in (aten.full.default, aten.full_like.default, aten.new_full.default):
        position = 2 if node.target is aten.new_full.default else 1
        return bool(node.args[position] == 0)
    return node.target in _ZEROS


# -- products --------------------------------------------------------------------------------------


def product_of(node: fx.Node) -> Product | None:
    """A product with a matrix that fits into a program; narrow ones are sums of products."""
    if node.target is aten.mm.default:
        rows, weight, bias = operand(node), operand(node, 1), None
    elif node.target is aten.addmm.default and not node.kwargs:
        bias, rows, weight = (operand(node, i) for i in range(3))
        if tensor_of(bias).dim() != 1:
            return None
    else:
        return None
    n_in, n_out = tensor_of(weight).shape
    is_wide = min(n_in, n_out) >= MIN_SIDE and padded(n_in) * padded(n_out) <= MAX_WEIGHT
    is_narrow = min(n_in, n_out) == 1
    fits = _fits(rows) and (is_wide or is_narrow)
    return Product(rows, weight, bias) if fits else None


def outer_sum_of(node: fx.Node) -> OuterSum | None:
    """Only where the sum fits into a program next to what it computes."""
    if node.target is not aten.mm.default:
        return None
    left, is_transposed = base_of_matrix(operand(node))
    right = operand(node, 1)
    if not is_transposed or n_rows_of(left) != n_rows_of(right):
        return None
    sides = features_of(left)[0], features_of(right)[0]
    is_wide = min(sides) >= MIN_SIDE and prod(padded(n) for n in sides) <= MAX_WEIGHT
    is_narrow = min(sides) == 1 and max(sides) <= MAX_FEATURES
    return OuterSum(left, right) if is_wide or is_narrow else None


def weight_of(node: fx.Node) -> int:
    """Elements, padded, of the matrix that a wide product multiplies rows by; else 0."""
    product = product_of(node) if is_wide_product(node) else None
    return prod(padded(n) for n in tensor_of(product.weight).shape) if product is not None else 0


def outer_size_of(node: fx.Node) -> int:
    """Elements, padded, of a sum of outer products that tensor cores compute; else 0."""
    outer = outer_sum_of(node) if is_wide_product(node) else None
    return prod(padded(n) for n in tensor_of(node).shape) if outer is not None else 0


def is_wide_product(node: fx.Node) -> bool:
    """Whether a node is a product of matrices that tensor cores compute."""
    value = value_of(node)
    is_product = node.target in (aten.mm.default, aten.addmm.default)
    return is_product and value is not None and min(value.shape) > 1 and _n_summed(node) > 1


def _n_summed(product: fx.Node) -> int:
    return tensor_of(operand(product, -1)).shape[0]


def base_of_matrix(node: fx.Node) -> tuple[fx.Node, bool]:
    """A matrix without its transpositions, and whether it was transposed."""
    is_transposed = False
    while is_transposition(node):
        is_same = node.target is aten.permute.default and ints(node.args[1]) == [0, 1]
        is_transposed ^= not is_same
        node = operand(node)
    return node, is_transposed


def is_transposition(node: fx.Node) -> bool:
    value = value_of(node)
    return node.target in _TRANSPOSES and value is not None and value.dim() == 2


def column_sum_of(node: fx.Node) -> ColumnSum | None:
    if node.target is not aten.sum.dim_IntList or node.kwargs:
        return None
    source = operand(node)
    rank = tensor_of(source).dim()
    dims = [d % rank for d in ints(node.args[1] or [])]
    return ColumnSum(source) if dims == [0] and rank == 2 and _fits(source) else None


# -- operations on each row ------------------------------------------------------------------------


def _element_wise_of(node: fx.Node, n_rows: int) -> ElementWise | None:
    if node.target not in ELEMENT_WISE:
        return None
    rank = tensor_of(node).dim()
    rows = []
    for x in node.all_input_nodes:
        value = value_of(x)
        if value is None or value.dtype not in ELEMENT_TYPES:
            return None
        if node.target in _ON_BOOLEANS and value.dtype is not torch.bool:
            return None
        if value.dim() == rank and value.shape[0] == n_rows:
            rows.append(x)
        elif value.dim() == rank and value.shape[0] != 1:
            return None
    return ElementWise(tuple(rows)) if rows else None


def _row_reduction_of(node: fx.Node, n_rows: int) -> RowReduction | None:
    """A sum, mean or norm over the last feature dimension."""
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
    if n_rows_of(source) != n_rows or not _fits(source):
        return None
    return RowReduction(source, kind, bool(rest and rest[0]))


def _row_view_of(node: fx.Node, n_rows: int) -> RowView | None:
    """A view that keeps rows: sides other than one must be the same, or all be powers of two."""
    if node.target not in _VIEWS:
        return None
    source = operand(node)
    if n_rows_of(source) != n_rows or not _fits(source):
        return None
    before, after = features_of(source), features_of(node)
    if node.target is aten.expand.default:
        return RowView(source) if len(before) == len(after) else None
    same = _without_ones(before) == _without_ones(after)
    powers = all(n == padded(n) for n in (*before, *after))
    return RowView(source) if same or powers else None


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [n for n in shape if n != 1]


def is_view_of_rows(node: fx.Node) -> bool:
    return node.target in _VIEWS
