"""Batches of a data set: all are built like the first one, and can be joined."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.inputs.arguments import (
    ConstantLeaf,
    CustomObject,
    Structure,
    TensorPlace,
    in_order_of,
    mismatch,
    put_together,
    take_apart,
)

# Shapes and dtypes are checked where the tensors are stored.
ANY_TENSOR = TensorPlace(torch.Size(), torch.float32)


def structure_and_tensors(batch: object) -> tuple[Structure, list[torch.Tensor]]:
    """How a batch is built, without shapes, and its tensors."""
    tensors: list[torch.Tensor] = []
    structure = _without_shapes(take_apart(batch, tensors.append))
    for value in _constants(structure):
        raise createPoptorchError(
            "Data must be a tensor, a tuple, list or dict of tensors, or an object whose class "
            "was registered with poptorch.registerCustomArgParser: got "
            f"{type(value).__module__}.{type(value).__qualname__}."
        )
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise createPoptorchError(f"Data must be dense tensors: got the layout {tensor.layout}")
    return structure, tensors


def tensors_like(batch: object, first: Structure) -> list[torch.Tensor]:
    """The tensors of a batch in the order of the first batch; raises if it is built differently."""
    structure, tensors = structure_and_tensors(batch)
    if structure == first:
        return tensors
    difference = mismatch(first, structure, "data")
    if difference is not None:
        raise createPoptorchError(
            f"A batch is not built like the first one of its data set. {difference}"
        )
    return in_order_of(first, structure, iter(tensors))


def concatenated(batches: list[Any]) -> Any:  # noqa: ANN401
    """One batch made of several, joined along dimension 0."""
    if len(batches) == 1:
        return batches[0]
    first, _ = structure_and_tensors(batches[0])
    columns = zip(*(tensors_like(batch, first) for batch in batches), strict=True)
    return put_together(first, iter([torch.cat(column) for column in columns]))


def _without_shapes(structure: Structure) -> Structure:
    if isinstance(structure, TensorPlace):
        return ANY_TENSOR
    if isinstance(structure, ConstantLeaf):
        return structure
    return replace(structure, items=tuple(map(_without_shapes, structure.items)))


def _constants(structure: Structure) -> Iterator[object]:
    """Values that are not tensors; objects with a parser may hold any."""
    if isinstance(structure, ConstantLeaf):
        yield structure.value
    elif not isinstance(structure, TensorPlace | CustomObject):
        for item in structure.items:
            yield from _constants(item)
