"""Parsers for classes of the user: how tensors are taken out of an object and put back."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch

from tremula.frontends.poptorch.exceptions import createPoptorchError


class ICustomArgParser(ABC):
    """Takes the tensors out of objects of a class, and makes such objects from tensors."""

    @abstractmethod
    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:  # noqa: N802, ANN401
        """The tensors of an object, always in the same order."""

    @abstractmethod
    def reconstruct(
        self,
        original_structure: Any,  # noqa: ANN401
        tensor_iterator: Iterator[torch.Tensor],
    ) -> Any:  # noqa: ANN401
        """A new object like the original one, with the next tensors of the iterator."""


_parsers: dict[type, ICustomArgParser] = {}


def registerCustomArgParser(arg_type: type, arg_parser: ICustomArgParser) -> None:  # noqa: N802
    """Let objects of a class, or of one derived from it, go into and out of models and loaders."""
    if not isinstance(arg_parser, ICustomArgParser):
        raise createPoptorchError("arg_parser must inherit from ICustomArgParser")
    _parsers[arg_type] = arg_parser


def parser_for(value: object) -> ICustomArgParser | None:
    """The parser of a value: that of its own class, else the first registered for a base."""
    if not _parsers:
        return None
    own = _parsers.get(type(value))
    if own is not None:
        return own
    return next((p for kind, p in _parsers.items() if isinstance(value, kind)), None)
