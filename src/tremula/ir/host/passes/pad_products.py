"""Pass for Inductor on a GPU: large products get rows that begin at multiples of 16 bytes.

Tensor cores need that for their fast kernels. The output layer of GPT-2 has 50,257 words: with
seven more, zeros that are cut off again, its products are aligned forwards and backwards. Inductor
would time both, on a GPU that is busy with calls, and choose by chance.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx

from tremula.ir.host.passes.memory_format import relax_strides
from tremula.ir.nodes import HALF_TYPES, operand, overload_of
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default)
ALIGNED_BYTES = 16
# Multiplications for each number that is read or written. With fewer, memory binds a product, and
# copies of its operands would take as long as it does.
_MIN_INTENSITY = 128


def pad_products(step: CapturedStep) -> CapturedStep:
    """Pad the operands of products for tensor cores, and cut the results."""
    operands = _PaddedOperands(step.graph)
    for node in list(step.graph.nodes):
        if node.target not in _PRODUCTS or not _uses_tensor_cores(node.meta["val"].dtype):
            continue
        padding = _padding(node)
        if any(padding):
            _replace(step.graph, node, padding, operands)
    for node in step.graph.nodes:
        if node.target is aten._unsafe_view.default:  # results may have gaps between their rows now
            node.target = aten.reshape.default
    return relax_strides(step)


def _uses_tensor_cores(dtype: torch.dtype) -> bool:
    if dtype is torch.float32:
        return torch.get_float32_matmul_precision() != "highest"
    return dtype in HALF_TYPES


def _factors(node: fx.Node) -> tuple[fx.Node, fx.Node]:
    first = 1 if node.target is aten.addmm.default else 0
    return operand(node, first), operand(node, first + 1)


def _padding(node: fx.Node) -> tuple[int, int, int]:
    """How many rows and columns are added: of the left factor, in between, of the right one."""
    left, right = (factor.meta["val"] for factor in _factors(node))
    (m, k), n = left.shape[-2:], right.shape[-1]
    if m * k * n < _MIN_INTENSITY * (m * k + k * n + m * n):
        return 0, 0, 0
    if node.target is aten.addmm.default and operand(node).meta["val"].dim() != 1:
        return 0, 0, 0
    n_aligned = ALIGNED_BYTES // left.dtype.itemsize
    left_by_rows, right_by_rows = (_is_by_rows(value) for value in (left, right))
    pads_between = left_by_rows or not right_by_rows  # along which a factor is contiguous
    return (
        0 if left_by_rows else -m % n_aligned,
        -k % n_aligned if pads_between else 0,
        -n % n_aligned,
    )


def _is_by_rows(value: Tensor) -> bool:
    return value.stride(-1) == 1


def _replace(
    graph: fx.Graph, node: fx.Node, padding: tuple[int, int, int], operands: "_PaddedOperands"
) -> None:
    """The product of padded factors, cut to its size."""
    left, right = _factors(node)
    more_rows, more_between, more_columns = padding
    factors = [
        operands.padded(left, more_rows, more_between, node),
        operands.padded(right, more_between, more_columns, node),
    ]
    value = node.meta["val"]
    *batch, m, n = value.shape
    whole = value.new_empty((*batch, m + more_rows, n + more_columns))
    with graph.inserting_before(node):
        if node.target is aten.addmm.default:
            bias = operand(node)
            if more_columns:
                made = bias.meta["val"].new_empty(n + more_columns)
                bias = _call(graph, aten.constant_pad_nd.default, (bias, [0, more_columns]), made)
            factors.insert(0, bias)
        result = graph.call_function(overload_of(node), tuple(factors), dict(node.kwargs))
        result.meta = {**node.meta, "val": whole}
        for dim, (more, size) in enumerate(((more_rows, m), (more_columns, n))):
            if more:
                whole = whole.narrow(dim - 2, 0, size)
                result = _call(graph, aten.slice.Tensor, (result, dim - 2, 0, size), whole)
    node.replace_all_uses_with(result)
    graph.erase_node(node)


@dataclass
class _PaddedOperands:
    """Operands with zeros added to their last two dimensions; several products share them."""

    graph: fx.Graph
    made: dict[tuple[fx.Node, int, int], fx.Node] = field(default_factory=dict)

    def padded(self, node: fx.Node, more_rows: int, more_columns: int, reader: fx.Node) -> fx.Node:
        """An operand with more rows and columns, made before the first product that reads it."""
        if not more_rows and not more_columns:
            return node
        key = (node, more_rows, more_columns)
        if key not in self.made:
            self.made[key] = self._make(node, more_rows, more_columns, reader)
        return self.made[key]

    def _make(self, node: fx.Node, more_rows: int, more_columns: int, reader: fx.Node) -> fx.Node:
        value = node.meta["val"]
        if _is_transposed(node):  # what is padded keeps its order in memory
            source = self.padded(operand(node), more_columns, more_rows, reader)
            made = source.meta["val"].transpose(-2, -1)
            with self.graph.inserting_before(reader):
                return _call(self.graph, aten.transpose.int, (source, -2, -1), made)
        *batch, m, n = value.shape
        made = value.new_empty((*batch, m + more_rows, n + more_columns))
        arguments = (node, [0, more_columns, 0, more_rows])
        with self.graph.inserting_before(reader):
            return _call(self.graph, aten.constant_pad_nd.default, arguments, made)


def _is_transposed(node: fx.Node) -> bool:
    """Whether a node swaps the last two dimensions of its operand, and nothing else."""
    if node.target is aten.t.default:
        return node.meta["val"].dim() == 2
    rank = node.meta["val"].dim()
    swapped = [*range(rank - 2), rank - 1, rank - 2]
    if node.target is aten.permute.default:
        return [dim % rank for dim in node.args[1]] == swapped  # pyright: ignore[reportGeneralTypeIssues, reportOptionalIterable, reportArgumentType]
    if node.target is aten.transpose.int:
        return sorted(dim % rank for dim in node.args[1:]) == [rank - 2, rank - 1]  # pyright: ignore[reportOperatorIssue]
    return False


def _call(graph: fx.Graph, target: Any, args: tuple, value: Tensor) -> fx.Node:  # noqa: ANN401 - an operation
    node = graph.call_function(target, args)
    node.meta["val"] = value
    return node
