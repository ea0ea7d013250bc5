"""A batch as a flat list of tensors and back: tuples, lists, dicts, objects with a parser."""

from collections.abc import Callable, Iterator, MutableMapping
from copy import copy
from itertools import islice
from typing import Any

import torch

from tremula.frontends.torch.arg_parsers import parser_for
from tremula.frontends.torch.exceptions import createPoptorchError

__all__ = ["concatenated", "pattern_of", "rebuilt", "tensors_of"]


def tensors_of(value: Any, like: Any) -> list[torch.Tensor]:  # noqa: ANN401 — any user's class
    """The tensors of a batch, in the order of `like`, the first batch of its data set."""
    found: list[torch.Tensor] = []
    _collect(value, like, found)
    return found


def _collect(value: Any, like: Any, found: list[torch.Tensor]) -> None:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        _check_tensor(value, like)
        found.append(value)
        return
    if type(value) is not type(like):
        raise createPoptorchError(
            f"The structure of the data changed: expected {type(like).__name__} as in the first "
            f"batch, got {type(value).__name__}."
        )
    parser = parser_for(value)
    if parser is not None:
        found.extend(parser.yieldTensors(value))
    elif isinstance(value, MutableMapping):
        _check_same("keys", sorted(map(str, like)), sorted(map(str, value)))
        for key in like:
            _collect(value[key], like[key], found)
    elif isinstance(value, tuple | list):
        _check_same("length", len(like), len(value))
        for item, item_like in zip(value, like, strict=True):
            _collect(item, item_like, found)
    else:
        raise createPoptorchError(
            "Data must be a tensor, a tuple, list or dict of tensors, or an object whose class "
            "was registered with poptorch.registerCustomArgParser: got "
            f"{type(value).__module__}.{type(value).__qualname__}."
        )


def _check_tensor(value: torch.Tensor, like: Any) -> None:  # noqa: ANN401
    if not isinstance(like, torch.Tensor):
        raise createPoptorchError(
            f"The structure of the data changed: expected {type(like).__name__} as in the first "
            "batch, got a tensor."
        )
    if value.layout is not torch.strided:
        raise createPoptorchError(f"Data must be dense tensors: got the layout {value.layout}.")


def _check_same(what: str, expected: object, got: object) -> None:
    if expected != got:
        raise createPoptorchError(
            f"The structure of the data changed: expected {what} {expected} as in the first "
            f"batch, got {got}."
        )


def rebuilt(like: Any, tensors: Iterator[torch.Tensor]) -> Any:  # noqa: ANN401
    """A batch of the structure of `like` from the next tensors: the inverse of `tensors_of`."""
    if isinstance(like, torch.Tensor):
        return next(tensors)
    parser = parser_for(like)
    if parser is not None:
        # Parsers may take all they are given: they get no more than their own.
        n_tensors = sum(1 for _ in parser.yieldTensors(like))
        return parser.reconstruct(like, islice(tensors, n_tensors))
    return _mapped(like, lambda item: rebuilt(item, tensors))


def pattern_of(like: Any) -> Any:  # noqa: ANN401
    """What `rebuilt` needs of a batch: its containers, without the weight of its tensors.

    An object with a parser stays whole: only its parser knows what it is made of.
    """
    if isinstance(like, torch.Tensor):
        return torch.empty(0)
    return like if parser_for(like) is not None else _mapped(like, pattern_of)


def _mapped(like: Any, function: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """A container of the same class with each item replaced."""
    if isinstance(like, MutableMapping):
        # A copy keeps the class and what belongs to it: order, the default of a defaultdict.
        mapping = copy(like)
        for key in like:
            mapping[key] = function(like[key])
        return mapping
    items = [function(item) for item in like]
    if isinstance(like, list):
        return items
    return type(like)(*items) if hasattr(like, "_fields") else tuple(items)


def concatenated(batches: list[Any]) -> Any:  # noqa: ANN401
    """One batch made of several, joined along dimension 0."""
    if len(batches) == 1:
        return batches[0]
    columns = zip(*(tensors_of(batch, batches[0]) for batch in batches), strict=True)
    return rebuilt(batches[0], iter([torch.cat(column) for column in columns]))
