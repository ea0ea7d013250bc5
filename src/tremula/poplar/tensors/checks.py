"""Checks of the views a user asks for: indices, slices, shapes, and their errors."""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence, Set

from tremula.base.errors import TensorCreationError, TensorIndexError, TypeMismatch
from tremula.base.source import user_source
from tremula.base.types import Type

Shape = tuple[int, ...]


def whole_sizes(sizes: object) -> Shape | None:
    """Sizes or dimensions as a tuple of ints; None if they are not a list of whole numbers."""
    if not isinstance(sizes, Iterable) or isinstance(sizes, str | bytes | Mapping | Set):
        return None
    try:
        return tuple(map(operator.index, sizes))
    except TypeError:
        return None


def out_of_range(shape: Shape, index: object, dim: int) -> TensorIndexError:
    """The error for an index that a dimension does not have."""
    limit = shape[dim] if shape else 0
    kind = "empty" if shape else "a scalar"
    return TensorIndexError(
        f"index {index} of dimension {dim} is out of range for a tensor of shape {list(shape)}.",
        source=user_source(),
        hint=f"use 0 to {limit - 1}" if limit else f"the tensor is {kind}: do not index it",
    )


def no_dimension(shape: Shape, dim: object) -> TensorIndexError:
    """The error for a dimension that a tensor does not have."""
    rank = len(shape)
    return TensorIndexError(
        f"dimension {dim} is out of range for a tensor of shape {list(shape)}.",
        source=user_source(),
        hint=f"use 0 to {rank - 1}" if rank else "the tensor is a scalar: do not index it",
    )


def bad_slice(shape: Shape, begin: object, end: object, dim: int) -> TensorIndexError:
    """The error for a slice that a tensor does not have."""
    if not 0 <= dim < len(shape):
        return no_dimension(shape, dim)
    return TensorIndexError(
        f"slice [{begin}, {end}) of dimension {dim} is out of range for a tensor of shape "
        f"{list(shape)}.",
        source=user_source(),
        hint=f"use 0 <= begin <= end <= {shape[dim]}",
    )


def whole_index(index: object) -> int:
    """An index as an int, or an error if it is not one."""
    try:
        return operator.index(index)  # pyright: ignore[reportArgumentType]
    except TypeError:
        raise TensorIndexError(
            f"a tensor cannot be indexed with {index!r}.",
            source=user_source(),
            hint="use whole numbers, slices, or one ...",
        ) from None


def whole_indices(shape: Shape, index: tuple) -> tuple:
    """One index for each of the first dimensions, with `...` spelled out."""
    if Ellipsis in index:
        at = index.index(Ellipsis)
        n_full = len(shape) - (len(index) - 1)
        index = index[:at] + (slice(None),) * n_full + index[at + 1 :]
    if len(index) > len(shape):
        raise TensorIndexError(
            f"{len(index)} indices for a tensor of shape {list(shape)}.",
            source=user_source(),
            hint=f"give at most {len(shape)}",
        )
    return index


def check_slice_ends(rank: int, begins: Sequence, ends: Sequence) -> None:
    if not len(begins) == len(ends) == rank:
        raise TensorIndexError(
            f"slice of a rank-{rank} tensor got {len(begins)} begins, {len(ends)} ends.",
            source=user_source(),
            hint="give one begin and one end per dimension",
        )


def check_reshape(shape: Shape, new_shape: Shape) -> None:
    n_elems = math.prod(shape)
    if math.prod(new_shape) != n_elems or any(s < 0 for s in new_shape):
        raise TensorCreationError(
            f"cannot reshape {list(shape)} ({n_elems} elements) to {list(new_shape)} "
            f"({math.prod(new_shape)} elements).",
            source=user_source(),
            hint="keep the number of elements",
        )


def reshape_sizes(sizes: object) -> Shape:
    """The sizes to reshape to, or an error if they are not a list of whole numbers."""
    result = whole_sizes(sizes)
    if result is None:
        raise TensorCreationError(
            f"cannot reshape to {sizes!r}.", source=user_source(), hint="use a list of sizes"
        )
    return result


def checked_dims(rank: int, dims: object) -> Shape:
    """Dimensions, or places between them, as a tuple; an error if they are not whole numbers."""
    result = whole_sizes(dims)
    if result is None:
        raise TensorIndexError(
            f"{dims!r} is not a list of dimensions.",
            source=user_source(),
            hint=f"use a list of whole numbers from 0 to {rank}",
        )
    return result


def repeat_count(count: object) -> int:
    """How often a tensor is repeated, which must be a whole number of 0 or more."""
    (result,) = whole_sizes([count]) or (-1,)
    if result < 0:
        raise TensorCreationError(
            f"cannot repeat a tensor {count!r} times.",
            source=user_source(),
            hint="use a whole number, 0 or more",
        )
    return result


def check_permutation(rank: int, permutation: Sequence[int]) -> None:
    sizes = whole_sizes(permutation)
    if sizes is None or sorted(sizes) != list(range(rank)):
        shown = list(permutation) if isinstance(permutation, Iterable) else permutation
        raise TensorCreationError(
            f"{shown} is not a permutation of the {rank} dimensions.",
            source=user_source(),
            hint=f"use each of {list(range(rank))} once",
        )


def check_moves(source: Sequence[int], destination: Sequence[int]) -> None:
    if not len(source) == len(destination) == len(set(source)) == len(set(destination)):
        raise TensorCreationError(
            f"dim_shuffle_partial got sources {list(source)} and destinations {list(destination)}.",
            source=user_source(),
            hint="give as many destinations as sources, each once",
        )


def check_squeeze(shape: Shape, dims: Iterable[int]) -> None:
    for dim in dims:
        if not 0 <= dim < len(shape):
            raise no_dimension(shape, dim)
        if shape[dim] != 1:
            raise TensorCreationError(
                f"cannot squeeze dimension {dim} of size {shape[dim]}.",
                source=user_source(),
                hint="only dimensions of size 1 can go",
            )


def check_reinterpret(old: Type, new: Type) -> None:
    if new.n_bytes != old.n_bytes:
        raise TypeMismatch(
            f"cannot reinterpret {old} ({old.n_bytes} bytes) as {new} ({new.n_bytes} bytes).",
            source=user_source(),
            hint="both types must have the same size",
        )
