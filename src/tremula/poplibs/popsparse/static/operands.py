"""Operands of static products: sizes, a pattern with its plan, and tensors laid out for it.

A dense operand and the result lie in memory as [rows of blocks][n][side], which is how the matrix
unit takes them; users see [k, n] and [m, n].
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TypedDict, Unpack

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, HALF, Type, as_type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Copy, Sequence
from tremula.poplar.target import Target
from tremula.poplar.tensors.runs import Pieces, Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplar.tensors.tile_map import TileMapping
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import CSRMatrix
from tremula.poplibs.popsparse.static.costs import BLOCK_SIDES
from tremula.poplibs.popsparse.static.partition import Dealt, WorkLists, deal, work_lists
from tremula.poplibs.popsparse.static.plan import StaticPlan, StaticProblem, n_grain, plan_static
from tremula.poplibs.poputil.options import check_memory_proportion, check_options

Ints = np.ndarray


class StaticOptions(TypedDict, total=False):
    """Options of static products; `num_bands` and `n_split` fix what the planner searches."""

    available_memory_proportion: float
    num_bands: int
    n_split: int


@dataclass(frozen=True, slots=True)
class MatMulParams:
    """Sizes of a product: sparse [m, k] by dense [k, n], or dense [n, k] by sparse [k, m]."""

    m: int
    k: int
    n: int
    is_transposed: bool = False  # the sparse operand is on the right

    @classmethod
    def create_for_sparse_dense(cls, groups: int, m: int, k: int, n: int) -> "MatMulParams":
        """Sparse [m, k] by dense [k, n]."""
        _check_groups(groups)
        return cls(m, k, n)

    @classmethod
    def create_for_dense_sparse(cls, groups: int, n: int, k: int, m: int) -> "MatMulParams":
        """Dense [n, k] by sparse [k, m]."""
        _check_groups(groups)
        return cls(m, k, n, is_transposed=True)

    @property
    def sparse_shape(self) -> tuple[int, int]:
        return (self.k, self.m) if self.is_transposed else (self.m, self.k)


def _check_groups(groups: int) -> None:
    if groups != 1:
        raise SparsityError(
            f"a static sparse product of {groups} groups: only one is supported.",
            source=user_source(),
            hint="make a product for each group",
        )


@dataclass(frozen=True, eq=False)
class StaticProduct:
    """A pattern, the plan of its product, and where everything goes."""

    params: MatMulParams
    element: Type
    side: int
    plan: StaticPlan
    dealt: Dealt
    source: Ints  # number in the user's order of each block in device order
    options: StaticOptions

    @property
    def n_blocks(self) -> int:
        return len(self.source)

    @cached_property
    def forward(self) -> WorkLists:
        return work_lists(self.dealt)

    @cached_property
    def backward(self) -> WorkLists:
        return work_lists(self.dealt, is_transposed=True)

    @property
    def n_intervals(self) -> int:
        return len(self.plan.n_cuts) - 1

    def to_device(self, values: Ints) -> Ints:
        """Values in the user's order, row by row in a block, in device order."""
        blocks = np.asarray(values).reshape(-1, self.side, self.side)[self.source]
        return (blocks if self.params.is_transposed else blocks.transpose(0, 2, 1)).reshape(-1)

    def from_device(self, values: Ints) -> Ints:
        """The reverse of `to_device`."""
        blocks = np.asarray(values).reshape(-1, self.side, self.side)
        blocks = blocks if self.params.is_transposed else blocks.transpose(0, 2, 1)
        result = np.empty_like(blocks)
        result[self.source] = blocks
        return result.reshape(-1)


def planned_cycles(
    graph: Graph, type: Type | str, params: MatMulParams, pattern: CSRMatrix,
    **options: Unpack[StaticOptions],
) -> int:  # fmt: skip
    """What the planner expects a product to take, without building it."""
    element = as_type(type)
    _check_pattern(params, element, pattern)
    return _plan(params, element, pattern, graph.target, options)[0].cycles


def plan_product(
    params: MatMulParams, element: Type, pattern: CSRMatrix, target: Target, options: StaticOptions
) -> StaticProduct:
    """Plan the product of a pattern; the values of `pattern` do not matter."""
    side = _check_pattern(params, element, pattern)
    plan, row, column, source = _plan(params, element, pattern, target, options)
    dealt = deal(plan, row, column, params.n)
    return StaticProduct(params, element, side, plan, dealt, source[dealt.order], options)


def _plan(
    params: MatMulParams, element: Type, pattern: CSRMatrix, target: Target, options: StaticOptions
) -> tuple[StaticPlan, Ints, Ints, Ints]:
    """The plan, and rows, columns and numbers of the blocks in the order that it takes them."""
    side = pattern.block[0]
    counts = np.diff(pattern.row_indices) // pattern.block_size
    row = np.repeat(np.arange(len(counts)), counts)
    column = pattern.column_indices // side
    if params.is_transposed:
        row, column = column, row
    source = np.lexsort((column, row))
    row, column = row[source], column[source]
    n_rows, n_inner = params.m // side, params.k // side
    problem = StaticProblem(
        n_rows, n_inner, params.n, side, element, target.n_tiles,
        np.bincount(row, minlength=n_rows).tobytes(),
        np.bincount(column, minlength=n_inner).tobytes(),
    )  # fmt: skip
    check_options(options, StaticOptions, "a static sparse product")
    proportion = options.get("available_memory_proportion", 0.6)
    check_memory_proportion(proportion)
    fixed = options.get("num_bands", 0), options.get("n_split", 0)
    return plan_static(problem, target.chip, proportion, *fixed), row, column, source


def _check_pattern(params: MatMulParams, element: Type, pattern: CSRMatrix) -> int:
    side, result = pattern.block[0], [pattern.num_rows, pattern.num_columns]
    wrong = ""
    if pattern.block[1] != side or side not in BLOCK_SIDES:
        wrong = f"blocks of {side} × {pattern.block[1]}, expected squares of {BLOCK_SIDES}"
    elif result != list(params.sparse_shape):
        wrong = f"a matrix of {result}, expected {list(params.sparse_shape)}"
    elif element not in (FLOAT, HALF):
        wrong = f"values of {element}, expected float or half"
    elif params.n < 1:
        wrong = f"a dense operand of {params.n} columns"
    if wrong:
        raise SparsityError(
            f"a static sparse product got {wrong}.",
            source=user_source(),
            hint="params, pattern and type must agree; with_block changes the size of blocks",
        )
    pattern.check_order()
    return side


@dataclass(frozen=True, slots=True)
class SparseTensor:
    """A sparse operand on tiles: its values in device order, and its product."""

    values: Tensor  # [number of values]
    product: StaticProduct

    def in_row_order(self, values: Tensor | None = None) -> Tensor:
        """A view of the values (or of their gradient) in the order of the CSR matrix."""
        flat = self.values if values is None else values
        p, area = self.product, self.product.side**2
        place = np.empty(p.n_blocks, np.int64)
        place[p.source] = np.arange(p.n_blocks)
        start = flat.offset + place * area
        if p.params.is_transposed or p.side == 1:
            count = np.full(p.n_blocks, area)
            return pieces_of(flat, Runs(start, count, np.ones_like(count)))
        start = (start[:, None] + np.arange(p.side)).reshape(-1)
        count = np.full(len(start), p.side)
        return pieces_of(flat, Runs(start, count, np.full(len(start), p.side)))


def pieces_of(flat: Tensor, runs: Runs) -> Tensor:
    """A view of runs of a flat variable, one behind the other."""
    n = int(runs.count.sum())
    if not n:
        return flat.slice(0, 0, 0)
    return Tensor(flat.variables, flat.type, 0, (n,), (1,), Pieces(runs))


# -- operands --------------------------------------------------------------------------------------


def create_sparse_dense_mat_mul_lhs(
    graph: Graph, type: Type | str, params: MatMulParams, pattern: CSRMatrix, name: str = "lhs",
    **options: Unpack[StaticOptions],
) -> SparseTensor:  # fmt: skip
    """The sparse operand of a product: room for the values of a pattern."""
    check_side(params, is_transposed=False)
    return _create_sparse(graph, as_type(type), params, pattern, name, options)


def create_dense_sparse_mat_mul_rhs(
    graph: Graph, type: Type | str, params: MatMulParams, pattern: CSRMatrix, name: str = "rhs",
    **options: Unpack[StaticOptions],
) -> SparseTensor:  # fmt: skip
    """The sparse operand [k, m] of a dense [n, k]."""
    check_side(params, is_transposed=True)
    return _create_sparse(graph, as_type(type), params, pattern, name, options)


def create_sparse_dense_mat_mul_rhs(
    graph: Graph, type: Type | str, params: MatMulParams, pattern: CSRMatrix, name: str = "rhs"
) -> Tensor:
    """The dense operand [k, n] of a sparse [m, k]."""
    check_side(params, is_transposed=False)
    return view_of(create_dense(graph, as_type(type), params.k, params.n, pattern.block[0], name))


def create_dense_sparse_mat_mul_lhs(
    graph: Graph, type: Type | str, params: MatMulParams, pattern: CSRMatrix, name: str = "lhs"
) -> Tensor:
    """The dense operand [n, k] of a sparse [k, m]."""
    check_side(params, is_transposed=True)
    stored = create_dense(graph, as_type(type), params.k, params.n, pattern.block[0], name)
    return view_of(stored).transpose()


def check_side(params: MatMulParams, *, is_transposed: bool) -> None:
    if params.is_transposed != is_transposed:
        forms = "sparse × dense", "dense × sparse"
        raise SparsityError(
            f"params are those of {forms[params.is_transposed]}, this is {forms[is_transposed]}.",
            source=user_source(),
            hint="create_for_sparse_dense and create_for_dense_sparse make params",
        )


def _create_sparse(
    graph: Graph, element: Type, params: MatMulParams, pattern: CSRMatrix, name: str,
    options: StaticOptions,
) -> SparseTensor:  # fmt: skip
    product = plan_product(params, element, pattern, graph.target, options)
    return SparseTensor(create_values(graph, product, name), product)


def create_values(graph: Graph, product: StaticProduct, name: str) -> Tensor:
    """Values on the tiles that multiply them; with several intervals all of those need them."""
    area = product.side**2
    values = graph.add_variable(product.element, [product.n_blocks * area], name)
    dealt, n_tiles = product.dealt, graph.target.n_tiles
    if product.n_intervals == 1:
        mapping = TileMapping(dealt.first * area, dealt.last * area, dealt.tile, n_tiles)
        graph.set_tile_mapping(values, mapping)
    else:
        graph.map_linearly(values, min_elems=1, grain=area)
    return values


def create_dense(graph: Graph, element: Type, n_rows: int, n: int, side: int, name: str) -> Tensor:
    """[rows of blocks, n, side], spread over all tiles."""
    stored = graph.add_variable(element, [n_rows // side, n, side], name)
    graph.map_linearly(stored, min_elems=1, grain=_dense_grain(element, side))
    return stored


def _dense_grain(element: Type, side: int) -> int:
    return n_grain(element) * (1 if side == 1 else n_grain(element))


def view_of(stored: Tensor) -> Tensor:
    n_blocks, n, side = stored.shape
    return stored.dim_shuffle([0, 2, 1]).reshape((n_blocks * side, n))


def stored_blocks(graph: Graph, tensor: Tensor, side: int, sequence: Sequence, name: str) -> Tensor:
    """A dense operand [rows, n] as a flat [rows of blocks, n, side]: itself if it is stored so."""
    n_rows, n = tensor.shape
    turned = tensor.reshape((n_rows // side, side, n)).dim_shuffle([0, 2, 1])
    runs = turned.runs()
    if len(runs.start) == 1 and (runs.stride[0] == 1 or runs.count[0] == 1):
        return Tensor(tensor.variables, tensor.type, int(runs.start[0]), (turned.n_elems,), (1,))
    stored = create_dense(graph, tensor.type, n_rows, n, side, f"{name}/rearranged")
    sequence.add(Copy(turned, stored))
    return stored.flatten()
