"""What a new variable is made of: checks of its shape, its metadata and its first values."""

from collections.abc import Sequence

import numpy as np

from tremula.base.errors import (
    OverflowInField,
    TensorCreationError,
    TensorMetadataError,
    TypeMismatch,
)
from tremula.base.source import user_source
from tremula.base.types import QUARTER, QUARTER_METADATA, Type
from tremula.poplar.tensors.checks import whole_sizes
from tremula.poplar.tensors.tensor import Tensor


def checked_shape(name: str, shape: Sequence[int]) -> tuple[int, ...]:
    """A shape as a tuple, or an error if it is not a list of sizes."""
    sizes = whole_sizes(shape)
    if sizes is None or any(s < 0 for s in sizes):
        shown = shape if sizes is None else list(sizes)
        raise TensorCreationError(
            f"variable {name!r} cannot have shape {shown!r}.",
            source=user_source(),
            hint="use a list of whole numbers of 0 or more",
        )
    return sizes


def check_metadata(type: Type, name: str, metadata: Tensor | None) -> None:
    """Raise unless 8-bit floats, and nothing else, come with a scalar of metadata."""
    is_scalar = metadata is None or metadata.n_elems == 1
    is_metadata = metadata is None or metadata.type == QUARTER_METADATA
    if (type == QUARTER) == (metadata is not None) and is_scalar and is_metadata:
        return
    raise TensorMetadataError(
        f"variable {name!r} of type {type} "
        + ("needs a metadata tensor." if type == QUARTER else "cannot have metadata."),
        source=user_source(),
        hint="give metadata=, a QUARTER_METADATA scalar, to QUARTER variables only",
    )


def initial_values(tensor: Tensor, value: object) -> np.ndarray:
    """One value for all elements of a tensor, or one for each, flat and in its type."""
    values = np.asarray(value)
    if values.dtype.kind == "f" and tensor.type.dtype.kind == "u" and not tensor.type.is_floating:
        values = np.asarray(values, np.int64)
    if values.size not in (1, tensor.n_elems):
        raise TensorCreationError(
            f"{values.size} values do not fill a tensor of shape {list(tensor.shape)}.",
            source=user_source(),
            hint=f"give one value or {tensor.n_elems}",
        )
    _check_numbers(tensor.type, values)
    try:
        return np.broadcast_to(values.ravel(), (tensor.n_elems,)).astype(tensor.type.dtype)
    except MemoryError:
        raise TensorCreationError(
            f"{tensor.n_elems:,} values of {tensor.type} do not fit into this computer's memory.",
            source=user_source(),
            hint="check the shape",
        ) from None


def _check_numbers(type: Type, values: np.ndarray) -> None:
    """Raise unless values are numbers that fit a type."""
    if values.dtype.kind not in "biuf":
        raise TypeMismatch(
            f"values of {values.dtype} cannot fill a tensor of {type}.",
            source=user_source(),
            hint="give numbers",
        )
    if type.dtype.kind in "iu" and values.size:
        limits = np.iinfo(type.dtype)
        low, high = values.min(), values.max()
        if low < limits.min or high > limits.max:
            raise OverflowInField(
                f"value {low if low < limits.min else high} does not fit a tensor of {type}.",
                source=user_source(),
                hint=f"use {limits.min} to {limits.max}, or a wider type",
            )
