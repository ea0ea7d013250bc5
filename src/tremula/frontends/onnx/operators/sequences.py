"""Sequences and optional values: lists of tensors, and None for what is absent."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tremula.frontends.onnx.context import BodyGraph, NodeContext, known
from tremula.frontends.onnx.table import operator


@operator("SequenceEmpty", since=11)
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:
    """A sequence of nothing."""
    del dtype
    return []


@operator("SequenceConstruct", since=11)
def sequence_construct(*items: Tensor) -> list[Tensor]:
    """A sequence of its operands."""
    return list(items)


@operator("SequenceAt", since=11, static=("position",))
def sequence_at(items: list[Tensor], position: Tensor) -> Tensor:
    """One item; negative positions count from the end."""
    return items[int(position)]


@operator("SequenceInsert", since=11, static=("position",))
def sequence_insert(
    items: list[Tensor], item: Tensor, position: Tensor | None = None
) -> list[Tensor]:
    """With one item more, by default at the end."""
    place = len(items) if position is None else int(position)
    place = place + len(items) if place < 0 else place
    return [*items[:place], item, *items[place:]]


@operator("SequenceErase", since=11, static=("position",))
def sequence_erase(items: list[Tensor], position: Tensor | None = None) -> list[Tensor]:
    """With one item less, by default without the last."""
    place = -1 if position is None else int(position)
    return [item for i, item in enumerate(items) if i != place % len(items)]


@operator("SequenceLength", since=11, folds=False)
def sequence_length(items: list[Tensor]) -> Tensor:
    """The number of items; a constant."""
    return known(np.array(len(items), np.int64))


@operator("SplitToSequence", since=11, static=("split",))
def split_to_sequence(
    x: Tensor, split: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> list[Tensor]:
    """Parts along an axis, as a sequence."""
    if split is None:
        parts = list(torch.split(x, 1, axis))
        return parts if keepdims else [part.squeeze(axis) for part in parts]
    sizes = split.tolist()
    return list(torch.split(x, sizes, axis))


@operator("ConcatFromSequence", since=11)
def concat_from_sequence(items: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    """The items joined along an axis, or along a new one."""
    return torch.stack(items, axis) if new_axis else torch.cat(items, axis)


@operator("SequenceMap", since=17)
def sequence_map(
    items: list[Tensor], *others: object, body: BodyGraph, context: NodeContext
) -> tuple[list[Tensor], ...]:
    """A graph for each item."""
    results: list[list[Tensor]] = [[] for _ in body.outputs]
    for i, item in enumerate(items):
        more = [other[i] if isinstance(other, list) else other for other in others]
        matches = context.run_body(body, [item, *more])
        for result, value in zip(results, matches, strict=True):
            result.append(value)
    return tuple(results)


@operator("Optional", since=15)
def optional(value: object = None, *, type: object = None) -> Any:  # noqa: ANN401
    """Its operand, or nothing."""
    del type
    return value


@operator("OptionalHasElement", since=15, folds=False)
def optional_has_element(value: object = None) -> Tensor:
    """Whether there is a value; a constant."""
    return known(np.array(value is not None))


@operator("OptionalGetElement", since=15)
def optional_get_element(value: object) -> Any:  # noqa: ANN401
    """The value of an optional that has one."""
    if value is None:
        raise ValueError("the optional has no value")
    return value
