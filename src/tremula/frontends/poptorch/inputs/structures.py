"""Nested values as a list of tensors and a structure: taken apart, compared, put together again."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from tremula.frontends.poptorch.exceptions import createPoptorchError

# -- parsers for classes of the user ---------------------------------------------------------------


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
    """Allow objects of a class and its subclasses in inputs and outputs of models and loaders."""
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


# -- structures ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """A tensor stands here."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value that is not a tensor."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and _is_same(self.value, other.value)

    __hash__ = None  # pyright: ignore[reportAssignmentType] (a value may be anything)


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple, list or named tuple."""

    kind: type
    items: tuple["Structure", ...]


@dataclass(frozen=True, slots=True)
class Entries:
    """A dictionary. `original` makes another one of its class."""

    kind: type
    keys: tuple[Any, ...]
    items: tuple["Structure", ...]
    original: Any = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CustomObject:
    """An object whose class has a parser."""

    kind: type
    items: tuple["Structure", ...]
    parser: ICustomArgParser = field(compare=False, repr=False)
    original: Any = field(compare=False, repr=False)


Structure = TensorPlace | Constant | Items | Entries | CustomObject
OnTensor = Callable[[torch.Tensor], None]


def _is_same(value: object, other: object) -> bool:
    if value is other:
        return True
    if type(value) is not type(other):
        return False
    try:
        return bool(value == other)
    except (RuntimeError, TypeError, ValueError):  # arrays, and objects that cannot be compared
        return False


def take_apart(value: Any, on_tensor: OnTensor) -> Structure:  # noqa: ANN401
    """The structure of a value; `on_tensor` gets each tensor, in order."""
    if isinstance(value, torch.Tensor):
        on_tensor(value)
        return TensorPlace(value.shape, value.dtype)
    if value is None or isinstance(value, int | float | str):
        return Constant(value)
    parser = parser_for(value)
    if parser is not None:
        items = tuple(take_apart(item, on_tensor) for item in parser.yieldTensors(value))
        return CustomObject(type(value), items, parser, value)
    if isinstance(value, tuple | list):
        return Items(type(value), tuple(take_apart(item, on_tensor) for item in value))
    if isinstance(value, Mapping):
        items = tuple(take_apart(item, on_tensor) for item in value.values())
        original = None if type(value) is dict else value
        return Entries(type(value), tuple(value), items, original)
    return Constant(value)


def put_together(structure: Structure, tensors: Iterator[torch.Tensor]) -> Any:  # noqa: ANN401
    """A value of this structure with the next tensors of the iterator."""
    if isinstance(structure, TensorPlace):
        return next(tensors)
    if isinstance(structure, Constant):
        return structure.value
    if isinstance(structure, CustomObject):
        inner = iter([put_together(item, tensors) for item in structure.items])
        return structure.parser.reconstruct(structure.original, inner)
    items = [put_together(item, tensors) for item in structure.items]
    if isinstance(structure, Items):
        make = getattr(structure.kind, "_make", structure.kind)
        return items if structure.kind is list else make(items)
    if structure.original is None:
        return dict(zip(structure.keys, items, strict=True))
    made = copy.copy(structure.original)
    for key, item in zip(structure.keys, items, strict=True):
        made[key] = item
    return made


def tensor_names(structure: Structure, name: str) -> Iterator[str]:
    """A name for each tensor, such as `x[1]['key']`."""
    if isinstance(structure, TensorPlace):
        yield name
    elif not isinstance(structure, Constant):
        for inner, item in _named_items(structure, name):
            yield from tensor_names(item, inner)


def _named_items(
    structure: Items | Entries | CustomObject, name: str
) -> Iterator[tuple[str, Structure]]:
    keys = structure.keys if isinstance(structure, Entries) else range(len(structure.items))
    for key, item in zip(keys, structure.items, strict=True):
        yield f"{name}[{key!r}]", item


def mismatch(expected: Structure, got: Structure, name: str) -> str | None:
    """The first difference between two structures, in words; None if there is none."""
    if _type_of(expected) is not _type_of(got):
        return f"Type mismatch for {name}: expected {_type_of(expected)} but got {_type_of(got)}."
    if isinstance(expected, TensorPlace) and isinstance(got, TensorPlace):
        return _tensor_mismatch(expected, got, name)
    if isinstance(expected, Constant) and isinstance(got, Constant):
        if expected == got:
            return None
        return f"Value mismatch for {name}: expected {expected.value} but got {got.value}."
    if isinstance(expected, Entries) and isinstance(got, Entries):
        return entries_mismatch(expected, got, name)
    assert isinstance(expected, Items | CustomObject), f"not a structure: {expected}"
    assert isinstance(got, Items | CustomObject), f"not a structure: {got}"
    if len(expected.items) != len(got.items):
        return (
            f"Length mismatch for {name}: expected {len(expected.items)} elements but got "
            f"{len(got.items)}."
        )
    pairs = zip(_named_items(expected, name), got.items, strict=True)
    return _first(mismatch(item, other, inner) for (inner, item), other in pairs)


def entries_mismatch(
    expected: Entries, got: Entries, name: str, are_arguments: bool = False
) -> str | None:
    """The same for dictionaries, in which the order of keys does not matter."""
    missing = [str(key) for key in expected.keys if key not in got.keys]
    unexpected = [str(key) for key in got.keys if key not in expected.keys]
    if missing or unexpected:
        parts = [f"Keys mismatch for {name}:"]
        parts += [f"Missing arguments: {', '.join(missing)}."] if missing else []
        parts += [f"Unexpected arguments: {', '.join(unexpected)}."] if unexpected else []
        return " ".join(parts)
    other = dict(zip(got.keys, got.items, strict=True))
    return _first(
        mismatch(item, other[key], str(key) if are_arguments else f"{name}[{key!r}]")
        for key, item in zip(expected.keys, expected.items, strict=True)
    )


def _first(texts: Iterator[str | None]) -> str | None:
    return next((text for text in texts if text is not None), None)


def _type_of(structure: Structure) -> type:
    if isinstance(structure, TensorPlace):
        return torch.Tensor
    return type(structure.value) if isinstance(structure, Constant) else structure.kind


def _tensor_mismatch(expected: TensorPlace, got: TensorPlace, name: str) -> str | None:
    if expected.dtype != got.dtype:
        return f"Data type mismatch for {name}: expected {expected.dtype} but got {got.dtype}."
    if expected.shape != got.shape:
        return f"Shape mismatch for {name}: expected {expected.shape} but got {got.shape}."
    return None


def in_order_of(first: Structure, got: Structure, tensors: Iterator[Any]) -> list[Any]:
    """Tensors of `got` in the order of `first`; the two differ only in the order of keys."""
    if isinstance(first, TensorPlace):
        return [next(tensors)]
    if isinstance(first, Constant) or not isinstance(got, Items | Entries | CustomObject):
        return []
    other = list(first.items)
    if isinstance(first, Entries) and isinstance(got, Entries):
        other = [first.items[first.keys.index(key)] for key in got.keys]
    parts = [in_order_of(a, b, tensors) for a, b in zip(other, got.items, strict=True)]
    if isinstance(first, Entries) and isinstance(got, Entries):
        parts = [parts[got.keys.index(key)] for key in first.keys]
    return [tensor for part in parts for tensor in part]


def flatten_outputs(value: Any) -> tuple[list[torch.Tensor], Callable[[Sequence], Any]]:  # noqa: ANN401
    """The tensors a model returned, and a function that puts others in their places.

    A tensor that is returned twice is listed twice; other values come back unchanged.
    """
    tensors: list[torch.Tensor] = []
    structure = take_apart(value, tensors.append)

    def rebuild(others: Sequence[torch.Tensor]) -> Any:  # noqa: ANN401
        assert len(others) == len(tensors), f"expected {len(tensors)} tensors, got {len(others)}"
        return put_together(structure, iter(others))

    return tensors, rebuild


# -- batches: all of a data set are built like its first one ---------------------------------------


# Shapes and dtypes are checked where the tensors are stored.
ANY_TENSOR = TensorPlace(torch.Size(), torch.float32)


def structure_and_tensors(batch: Any) -> tuple[Structure, list[torch.Tensor]]:  # noqa: ANN401
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


def tensors_like(batch: Any, first: Structure) -> list[torch.Tensor]:  # noqa: ANN401
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
    if isinstance(structure, Constant):
        return structure
    return replace(structure, items=tuple(map(_without_shapes, structure.items)))


def _constants(structure: Structure) -> Iterator[object]:
    """Values that are not tensors; objects with a parser may hold any."""
    if isinstance(structure, Constant):
        yield structure.value
    elif not isinstance(structure, TensorPlace | CustomObject):
        for item in structure.items:
            yield from _constants(item)
