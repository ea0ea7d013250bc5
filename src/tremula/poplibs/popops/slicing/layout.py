"""Where sliced tensors live: tables, slices and indices in the layout a plan wants."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import INT, QUARTER, UNSIGNED_INT, Type, as_type
from tremula.base.wording import counted
from tremula.poplar.graph import Graph
from tremula.poplar.tensors.blocks import BlockCuts
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popops.slicing.embedding_plan import MIN_INDICES_PER_TILE, SlicePlan
from tremula.poplibs.popops.slicing.row_blocks import (
    add_blocked_matrix,
    even_cuts,
    in_blocks,
    map_flat,
)
from tremula.poplibs.registry import PoplibsError

Ints = np.ndarray


class Parts(NamedTuple):
    """All combinations of (group, lookup part, row part, column part), the last running fastest."""

    group: Ints
    lookup: Ints
    row: Ints
    column: Ints

    def take(self, index: Ints) -> "Parts":
        return Parts(*(column[index] for column in self))


def parts_of(plan: SlicePlan) -> Parts:
    sizes = (plan.n_groups, plan.lookup_split, plan.sliced_dim_split, plan.unsliced_dim_split)
    return Parts(*(axis.ravel() for axis in np.indices(sizes, np.int64)))


def tile_of_parts(plan: SlicePlan, parts: Parts) -> Ints:
    """Groups outermost, then lookups, rows, columns: neighbouring tiles need the same indices."""
    groups_per_tile = -(-plan.n_groups // plan.group_split)
    tile = parts.group // groups_per_tile * plan.lookup_split + parts.lookup
    tile = tile * plan.sliced_dim_split + parts.row
    return tile * plan.unsliced_dim_split + parts.column


def column_cuts(plan: SlicePlan) -> Ints:
    grain = min(plan.row_size, plan.vector_width(plan.type))
    return np.minimum(
        even_cuts(-(-plan.row_size // grain), plan.unsliced_dim_split) * grain, plan.row_size
    )


def table_cuts(plan: SlicePlan) -> BlockCuts:
    """Blocks of the table, groups below each other; row part p of group g is g * split + p."""
    one = even_cuts(plan.n_entries, plan.sliced_dim_split)
    return BlockCuts(_per_group(plan, plan.n_entries, one), column_cuts(plan))


def lookup_cuts(plan: SlicePlan, n_lookups: int) -> BlockCuts:
    """Blocks of slices or updates: groups, in each the rounds, in each the lookup parts."""
    rounds = even_cuts(n_lookups, plan.lookup_serial_split)
    size = -(-int(rounds[1]) // plan.lookup_split)  # of a part in a full round
    within = np.arange(plan.lookup_split, dtype=np.int64) * size
    one = np.minimum(rounds[:-1, None] + within[None, :], rounds[1:, None]).ravel()
    return BlockCuts(_per_group(plan, n_lookups, np.append(one, n_lookups)), column_cuts(plan))


def lookup_block(plan: SlicePlan, parts: Parts, a_round: int) -> Ints:
    """The row part of `lookup_cuts` that a part works on in a round."""
    in_group = parts.group * plan.lookup_serial_split + a_round
    return in_group * plan.lookup_split + parts.lookup


def _per_group(plan: SlicePlan, n_rows: int, cuts: Ints) -> Ints:
    first = np.arange(plan.n_groups, dtype=np.int64) * n_rows
    rows = (first[:, None] + cuts[None, :-1]).ravel()
    return np.append(rows, plan.n_groups * n_rows)


# -- making tensors --------------------------------------------------------------------------------


def create_sliceable_tensor(
    graph: Graph,
    type: Type | str,
    shape: Sequence[int],
    dims: Sequence[int] = (0,),
    sizes: Sequence[int] = (1,),
    name: str = "",
    *,
    plan: SlicePlan | None = None,
    min_grain: int = 0,
) -> Tensor:
    """A tensor to slice in `dims`: as a plan wants it, or each slice spread over many tiles."""
    type, shape, dims = as_type(type), tuple(shape), tuple(dims)
    check_dims("create_sliceable_tensor", shape, dims, tuple(sizes))
    n_rows = math.prod(shape[d] for d in dims)
    if plan is None:
        matrix = _unplanned_table(graph, type, n_rows, math.prod(shape) // max(n_rows, 1), name,
                                  min_grain)  # fmt: skip
    else:
        check_plan("create_sliceable_tensor", plan, shape, dims)
        matrix = planned_table(graph, type, plan, name or "sliceable")
    return from_matrix(matrix, shape, dims)


def _unplanned_table(
    graph: Graph, type: Type, n_rows: int, n_columns: int, name: str, min_grain: int
) -> Tensor:
    grain = max(min_grain, graph.target.vector_width(type))
    n_grains = -(-n_columns // grain)
    n_parts = max(1, min(n_grains, graph.target.n_tiles))
    n_parts = max(1, -(-n_grains // max(1, -(-n_grains // n_parts))))
    columns = np.minimum(even_cuts(n_grains, n_parts) * grain, n_columns)
    cuts = BlockCuts(np.array([0, n_rows], np.int64), columns)
    matrix = add_blocked_matrix(graph, type, cuts, name or "sliceable")
    q = np.arange(n_parts)
    begin = cuts.begin(np.zeros_like(q), q)
    map_flat(graph, in_blocks(matrix, cuts), begin, begin + n_rows * cuts.width(q), q)
    return matrix


def planned_table(graph: Graph, type: Type, plan: SlicePlan, name: str) -> Tensor:
    """[n_groups * n_entries, row_size]: blocks, each spread over the tiles that look it up."""
    cuts = table_cuts(plan)
    matrix = add_blocked_matrix(graph, type, cuts, name)
    parts, begin, end = table_shares(plan, cuts, type)
    map_flat(graph, in_blocks(matrix, cuts), begin, end, tile_of_parts(plan, parts))
    return matrix


def table_shares(plan: SlicePlan, cuts: BlockCuts, type: Type) -> tuple[Parts, Ints, Ints]:
    """(parts, begin, end): the elements of its block that each part keeps."""
    parts = parts_of(plan)
    p = parts.group * plan.sliced_dim_split + parts.row
    first, size = cuts.begin(p, parts.column), cuts.height(p) * cuts.width(parts.column)
    # Whole data paths, so that two tiles on one exchange bus can receive together.
    grain = plan.vector_width(type)
    share = ceil_div(ceil_div(size, grain), plan.lookup_split) * grain
    begin = first + np.minimum(size, parts.lookup * share)
    return parts, begin, first + np.minimum(size, (parts.lookup + 1) * share)


def create_slice_tensor(
    graph: Graph,
    type: Type | str,
    shape: Sequence[int],
    dims: Sequence[int],
    sizes: Sequence[int],
    n_lookups: int,
    name: str = "",
    *,
    plan: SlicePlan | None = None,
) -> Tensor:
    """[n_lookups, *slice]: what a multi-slice of a tensor of `shape` gives and an update takes."""
    type, shape, dims, sizes = as_type(type), tuple(shape), tuple(dims), tuple(sizes)
    check_dims("create_slice_tensor", shape, dims, sizes)
    one = slice_shape(shape, dims, sizes)
    if plan is None:
        whole = (n_lookups, *one)
        rows = (0, *(d + 1 for d in dims))
        return create_sliceable_tensor(graph, type, whole, rows, (1,) * len(rows), name)
    check_plan("create_slice_tensor", plan, shape, dims)
    return planned_slices(graph, type, plan, n_lookups, name or "slices").reshape((n_lookups, *one))


def planned_slices(graph: Graph, type: Type, plan: SlicePlan, n_lookups: int, name: str) -> Tensor:
    """[n_groups * n_lookups, row_size]: each block on the tiles that look up or collect it."""
    cuts = lookup_cuts(plan, n_lookups)
    matrix = add_blocked_matrix(graph, type, cuts, name)
    flat = in_blocks(matrix, cuts)
    for a_round in range(plan.lookup_serial_split):
        parts, first_row, n_rows = collected_rows(plan, cuts, a_round)
        width = cuts.width(parts.column)
        begin = cuts.begin(lookup_block(plan, parts, a_round), parts.column) + first_row * width
        map_flat(graph, flat, begin, begin + n_rows * width, tile_of_parts(plan, parts))
    return matrix


def collected_rows(plan: SlicePlan, cuts: BlockCuts, a_round: int) -> tuple[Parts, Ints, Ints]:
    """(parts, first row, rows): the rows of its lookup part that each part ends up with.

    A part that ends up with any has as many as in a full block, as in PopLibs, or the rest.
    """
    parts = parts_of(plan)
    height = cuts.height(lookup_block(plan, parts, a_round))
    share = -(-int(np.diff(cuts.row).max(initial=0)) // plan.sliced_dim_split)
    first = np.minimum(height, parts.row * share)
    return parts, first, np.minimum(height, first + share) - first


def create_indices_tensor(
    graph: Graph, n_lookups: int, n_dims: int = 1, name: str = "", *, n_groups: int | None = None
) -> Tensor:
    """UNSIGNED_INT [n_lookups, n_dims] (or [n_groups, n_lookups, n_dims])."""
    shape = (n_lookups, n_dims) if n_groups is None else (n_groups, n_lookups, n_dims)
    indices = graph.add_variable(UNSIGNED_INT, shape, name or "indices")
    graph.map_linearly(indices, MIN_INDICES_PER_TILE, 1)
    return indices


# -- views and checks ------------------------------------------------------------------------------


def from_matrix(matrix: Tensor, shape: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    """A matrix [sliced dims, other dims] as a tensor of `shape`."""
    others = [d for d in range(len(shape)) if d not in dims]
    order = [*dims, *others]
    spread = matrix.reshape([shape[d] for d in order])
    return spread.dim_shuffle([order.index(d) for d in range(len(shape))])


def to_matrix(tensor: Tensor, dims: tuple[int, ...]) -> Tensor:
    """A tensor as a matrix [sliced dims, other dims]."""
    others = [d for d in range(tensor.rank) if d not in dims]
    n_rows = math.prod(tensor.shape[d] for d in dims)
    n_columns = math.prod(tensor.shape[d] for d in others)
    return tensor.dim_shuffle([*dims, *others]).reshape((n_rows, n_columns))


def slice_shape(
    shape: tuple[int, ...], dims: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...]:
    return tuple(sizes[dims.index(d)] if d in dims else n for d, n in enumerate(shape))


def check_dims(
    what: str, shape: tuple[int, ...], dims: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    problem = ""
    if len(dims) != len(sizes):
        problem = f"{len(dims)} dims and {len(sizes)} sizes"
    elif len(set(dims)) != len(dims) or any(not 0 <= d < len(shape) for d in dims):
        problem = f"dims {list(dims)} of a tensor of shape {list(shape)}"
    elif any(not 0 <= size <= shape[d] for d, size in zip(dims, sizes, strict=True)):
        problem = f"a slice of sizes {list(sizes)} in dims {list(dims)} of shape {list(shape)}"
    if problem:
        raise PoplibsError(
            f"{what} got {problem}.",
            source=user_source(),
            hint="name each dimension once, each with a size of 0 to the dimension's own",
        )


def check_plan(
    what: str, plan: SlicePlan, shape: tuple[int, ...], dims: tuple[int, ...], n_groups: int = 1
) -> None:
    """Raise unless the plan was made for such a table."""
    got = (n_groups, shape[dims[0]] if len(dims) == 1 else 0)
    got = (*got, math.prod(shape) // max(got[1], 1))
    wanted = (plan.n_groups, plan.n_entries, plan.row_size)
    if len(dims) != 1 or got != wanted:
        raise PoplibsError(
            f"{what}: the plan is for {counted(wanted[0], 'table')} of {wanted[1]} rows of "
            f"{wanted[2]}, got a tensor of shape {list(shape)} sliced in dims {list(dims)}.",
            source=user_source(),
            hint="make the plan with the table's own sizes, and slice one dimension",
        )


def checked_indices(what: str, indices: Tensor) -> Tensor:
    """Indices as UNSIGNED_INT; negative ones are out of range then."""
    if indices.type not in (UNSIGNED_INT, INT):
        raise PoplibsError(
            f"{what} got indices of type {indices.type}, expected UNSIGNED_INT or INT.",
            source=user_source(),
            hint="cast them first",
        )
    return indices.reinterpret(UNSIGNED_INT)


def check_copyable(what: str, type: Type) -> None:
    if type == QUARTER:
        raise PoplibsError(
            f"{what} does not support {type}.",
            source=user_source(),
            hint="slice the bytes, tensor.reinterpret(UNSIGNED_CHAR); the metadata stays the same",
        )
