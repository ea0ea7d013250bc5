"""Gather and scatter with XLA's meaning: windows of a tensor at places given by index vectors."""

import math
from collections.abc import Sequence

from tremula.base.errors import suggest
from tremula.base.source import user_source
from tremula.base.types import Type
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence as ProgramSequence
from tremula.poplar.tensors.tensor import Tensor, concat
from tremula.poplibs.popops.slicing.embedding_plan import SlicePlan
from tremula.poplibs.popops.slicing.layout import (
    checked_indices,
    create_sliceable_tensor,
    to_matrix,
)
from tremula.poplibs.popops.slicing.multi_slice import multi_slice
from tremula.poplibs.popops.slicing.multi_update import (
    multi_update,
    multi_update_add,
    multi_update_max,
    multi_update_mul,
)
from tremula.poplibs.popops.slicing.window_rows import window_rows
from tremula.poplibs.registry import PoplibsError

_COMBINERS = {
    "set": multi_update,
    "add": multi_update_add,
    "max": multi_update_max,
    "mul": multi_update_mul,
}


def create_gather_input(
    graph: Graph,
    type: Type | str,
    shape: Sequence[int],
    slice_sizes: Sequence[int],
    start_index_map: Sequence[int],
    name: str = "",
) -> Tensor:
    """A tensor to gather from: its indexed dimensions sliceable without exchange."""
    dims = tuple(sorted(start_index_map))
    if len(slice_sizes) != len(shape) or any(not 0 <= d < len(shape) for d in dims):
        raise PoplibsError(
            f"windows of {list(slice_sizes)} along dimensions {list(dims)} of a tensor of shape "
            f"{list(shape)}.",
            source=user_source(),
            hint="give a size for each dimension, and dimensions that the tensor has",
        )
    sizes = [slice_sizes[d] for d in dims]
    return create_sliceable_tensor(graph, type, shape, dims, sizes, name or "gatherInput")


def gather(  # noqa: PLR0913 - XLA's own options
    graph: Graph,
    operand: Tensor,
    indices: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    index_vector_dim: int,
    offset_dims: Sequence[int],
    slice_sizes: Sequence[int],
    collapsed_slice_dims: Sequence[int],
    start_index_map: Sequence[int],
    plan: SlicePlan | None = None,
) -> Tensor:
    """Windows of `slice_sizes`, one per index vector; those that stick out are moved inside.

    Dimensions `offset_dims` of the result are the window's, without `collapsed_slice_dims` (of size
    1); the others are the indices', without `index_vector_dim`. Element k of an index vector
    counts in dimension start_index_map[k]. A plan is for rows of the dimensions that are not
    indexed.
    """
    name = name or "gather"
    corners = _index_vectors("gather", indices, index_vector_dim, len(start_index_map))
    sizes = tuple(slice_sizes)
    _check_window("gather", operand.shape, sizes, collapsed_slice_dims, start_index_map)
    dims, order = _sorted_dims(start_index_map)
    operand = _cut(operand, sizes, dims)
    shape = tuple(operand.shape[d] for d in dims)
    window = tuple(sizes[d] for d in dims)
    corners = _reordered(corners, order)
    rows = window_rows(graph, corners, shape, window, sequence, name)
    result = multi_slice(graph, to_matrix(operand, dims), rows, sequence, name, plan=plan)
    batch = _without(indices.shape, index_vector_dim)
    spread = _windows_in_order(result, batch, sizes, dims)
    return _placed(spread, len(batch), offset_dims, collapsed_slice_dims)


def scatter(  # noqa: PLR0913 - XLA's own options
    graph: Graph,
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    sequence: ProgramSequence,
    name: str = "",
    *,
    index_vector_dim: int,
    update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int],
    scatter_dims_to_operand_dims: Sequence[int],
    combine: str = "set",
    plan: SlicePlan | None = None,
) -> None:
    """Windows of `updates` set in, or combined into, `operand`, in place.

    Dimensions `update_window_dims` of the updates are the window's; `inserted_window_dims` of the
    operand have size 1 there. A window that sticks out changes nothing. `combine` is "set" (of
    windows at one place the last wins), "add", "max" or "mul".
    """
    name = name or "scatter"
    if combine not in _COMBINERS:
        raise PoplibsError(
            f"scatter got combine {combine!r}.",
            source=user_source(),
            hint=suggest(str(combine), _COMBINERS),
        )
    n_index = len(scatter_dims_to_operand_dims)
    corners = _index_vectors("scatter", indices, index_vector_dim, n_index)
    window_dims = [d for d in range(operand.rank) if d not in set(inserted_window_dims)]
    _check_updates(operand, indices, updates, index_vector_dim, update_window_dims, window_dims)
    sizes = [1] * operand.rank
    for d, from_dim in zip(window_dims, sorted(update_window_dims), strict=True):
        sizes[d] = updates.shape[from_dim]
    _check_window(
        "scatter", operand.shape, tuple(sizes), inserted_window_dims, scatter_dims_to_operand_dims
    )
    dims, order = _sorted_dims(scatter_dims_to_operand_dims)
    target = _cut(operand, tuple(sizes), dims)
    shape = tuple(target.shape[d] for d in dims)
    window = tuple(sizes[d] for d in dims)
    rows = window_rows(
        graph, _reordered(corners, order), shape, window, sequence, name, clamps=False
    )
    new = _update_rows(updates, update_window_dims, sizes, dims)
    matrix = to_matrix(target, dims)
    _COMBINERS[combine](graph, matrix, new.expand([1]), rows, sequence, name, plan=plan)


# -- views -----------------------------------------------------------------------------------------


def _index_vectors(what: str, indices: Tensor, index_vector_dim: int, n_index: int) -> Tensor:
    """UNSIGNED_INT [n, n_index]."""
    indices = checked_indices(what, indices)
    if index_vector_dim == indices.rank:
        indices = indices.expand([indices.rank])
    if not 0 <= index_vector_dim < indices.rank or indices.shape[index_vector_dim] != n_index:
        raise PoplibsError(
            f"{what} got indices of shape {list(indices.shape)} with index vectors in dimension "
            f"{index_vector_dim}, expected {n_index} elements there.",
            source=user_source(),
            hint="give one element per indexed dimension",
        )
    last = indices.dim_roll(index_vector_dim, indices.rank - 1)
    return last.reshape((last.n_elems // max(n_index, 1), n_index))


def _sorted_dims(index_map: Sequence[int]) -> tuple[tuple[int, ...], list[int]]:
    """(indexed dimensions ascending, which element of an index vector counts in each)."""
    order = sorted(range(len(index_map)), key=lambda k: index_map[k])
    return tuple(index_map[k] for k in order), order


def _reordered(corners: Tensor, order: list[int]) -> Tensor:
    if order == sorted(order):
        return corners
    return concat([corners[:, k : k + 1] for k in order], 1)


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return tuple(n for d, n in enumerate(shape) if d != dim)


def _cut(tensor: Tensor, sizes: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    """Dimensions that are not indexed begin at 0, so only that part of them is touched."""
    for d, size in enumerate(sizes):
        if d not in dims and size != tensor.shape[d]:
            tensor = tensor.slice(0, size, d)
    return tensor


def _windows_in_order(
    windows: Tensor, batch: tuple[int, ...], sizes: tuple[int, ...], dims: tuple[int, ...]
) -> Tensor:
    """[*batch, *window] from rows [n * places, 1, others]."""
    others = [d for d in range(len(sizes)) if d not in dims]
    order = [*dims, *others]
    spread = windows.reshape((*batch, *(sizes[d] for d in order)))
    n = len(batch)
    return spread.dim_shuffle([*range(n), *(n + order.index(d) for d in range(len(sizes)))])


def _placed(
    spread: Tensor, n_batch: int, offset_dims: Sequence[int], collapsed: Sequence[int]
) -> Tensor:
    """Window dimensions moved from the end to `offset_dims`."""
    window = spread.squeeze([n_batch + d for d in collapsed])
    rank = window.rank
    batch_dims = [d for d in range(rank) if d not in set(offset_dims)]
    if len(set(offset_dims)) != rank - n_batch or len(batch_dims) != n_batch:
        raise PoplibsError(
            f"gather got offset_dims {list(offset_dims)} for a result of rank {rank} with "
            f"{rank - n_batch} window dimensions.",
            source=user_source(),
            hint="name a dimension of the result for each window dimension that is kept",
        )
    source = {d: i for i, d in enumerate(batch_dims)}
    source |= {d: n_batch + i for i, d in enumerate(sorted(offset_dims))}
    return window.dim_shuffle([source[d] for d in range(rank)])


def _update_rows(
    updates: Tensor,
    window_dims: Sequence[int],
    sizes: Sequence[int],
    dims: tuple[int, ...],
) -> Tensor:
    """[n * places, others]: updates as rows of the operand's dimensions that are not indexed."""
    window = sorted(window_dims)
    batch = [d for d in range(updates.rank) if d not in window]
    last = updates.dim_shuffle([*batch, *window])
    n = math.prod(updates.shape[d] for d in batch)
    full = last.reshape((n, *sizes))  # inserted dimensions have size 1
    others = [d for d in range(len(sizes)) if d not in dims]
    rows = full.dim_shuffle([0, *(1 + d for d in dims), *(1 + d for d in others)])
    n_places = math.prod(sizes[d] for d in dims)
    return rows.reshape((n * n_places, math.prod(sizes[d] for d in others)))


# -- checks ----------------------------------------------------------------------------------------


def _check_window(
    what: str,
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    collapsed: Sequence[int],
    index_map: Sequence[int],
) -> None:
    problem = ""
    if len(sizes) != len(shape) or any(not 0 < s <= n for s, n in zip(sizes, shape, strict=False)):
        problem = f"windows of {list(sizes)} in shape {list(shape)}"
    elif any(not 0 <= d < len(shape) or sizes[d] != 1 for d in collapsed):
        problem = f"collapsed dimensions {list(collapsed)} of windows of {list(sizes)}"
    elif len(set(index_map)) != len(index_map) or any(not 0 <= d < len(shape) for d in index_map):
        problem = f"indexed dimensions {list(index_map)} of shape {list(shape)}"
    if problem:
        raise PoplibsError(
            f"{what} got {problem}.",
            source=user_source(),
            hint="a window has a size for every dimension, at most the dimension's own; collapsed "
            "ones are 1; name each indexed dimension once",
        )


def _check_updates(
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    index_vector_dim: int,
    window_dims: Sequence[int],
    dims: list[int],
) -> None:
    batch = tuple(n for d, n in enumerate(updates.shape) if d not in set(window_dims))
    expected = _without(indices.shape, index_vector_dim)
    if batch != expected or len(set(window_dims)) != len(dims) or updates.type != operand.type:
        raise PoplibsError(
            f"scatter got updates of {updates.type} {list(updates.shape)} with window dims "
            f"{list(window_dims)}; the other dims must be {list(expected)}, the type "
            f"{operand.type}, and there must be {len(dims)} window dims.",
            source=user_source(),
            hint="give one window per index vector",
        )
