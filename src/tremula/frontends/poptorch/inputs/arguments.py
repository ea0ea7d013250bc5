"""The codec of arguments: nested values as flat tensors, compared with the first call's, cut.

args, kwargs ─► ArgsParser.parse ─► ParsedArgs: tensors and a structure ─► InputCutter ─► rows
ParsedArgs.rebuild ◄─ flat tensors of the recorded step
"""

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeGuard, TypeVar

import torch

from tremula.base.errors import suggest
from tremula.frontends.poptorch.enums import CommGroupType
from tremula.frontends.poptorch.exceptions import createPoptorchError
from tremula.frontends.poptorch.logging import LOGGER
from tremula.frontends.poptorch.options.options import Options

# -- parsers for classes of the user ---------------------------------------------------------------


Struct = TypeVar("Struct")  # the class that a parser is registered for


class ICustomArgParser(ABC, Generic[Struct]):
    """Takes the tensors out of objects of a class, and makes such objects from tensors."""

    @abstractmethod
    def yieldTensors(self, struct: Struct) -> Iterator[torch.Tensor]:  # noqa: N802
        """The tensors of an object, always in the same order."""

    @abstractmethod
    def reconstruct(
        self,
        original_structure: Struct,
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
    """The parser of a value: that of its class, else the first registered for a base."""
    if not _parsers:
        return None
    own = _parsers.get(type(value))
    if own is not None:
        return own
    return next((p for kind, p in _parsers.items() if isinstance(value, kind)), None)


# -- structures ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """Where a structure has a tensor."""

    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, eq=False)
class ConstantLeaf:
    """A value that is not a tensor."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantLeaf) and _is_same(self.value, other.value)

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
    keys: tuple[Hashable, ...]
    items: tuple["Structure", ...]
    original: Any = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CustomObject:
    """An object whose class has a parser."""

    kind: type
    items: tuple["Structure", ...]
    parser: ICustomArgParser = field(compare=False, repr=False)
    original: Any = field(compare=False, repr=False)


Structure = TensorPlace | ConstantLeaf | Items | Entries | CustomObject
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


def take_apart(value: object, on_tensor: OnTensor) -> Structure:
    """The structure of a value; `on_tensor` gets each tensor, in order."""
    if isinstance(value, torch.Tensor):
        on_tensor(value)
        return TensorPlace(value.shape, value.dtype)
    if value is None or isinstance(value, int | float | str):
        return ConstantLeaf(value)
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
    return ConstantLeaf(value)


def put_together(structure: Structure, tensors: Iterator[torch.Tensor]) -> Any:  # noqa: ANN401
    """A value of this structure with the next tensors of the iterator."""
    if isinstance(structure, TensorPlace):
        return next(tensors)
    if isinstance(structure, ConstantLeaf):
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
    elif not isinstance(structure, ConstantLeaf):
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
    if isinstance(expected, ConstantLeaf) and isinstance(got, ConstantLeaf):
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
    """What differs between two dictionaries, in which the order of keys does not matter."""
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
    return type(structure.value) if isinstance(structure, ConstantLeaf) else structure.kind


def _tensor_mismatch(expected: TensorPlace, got: TensorPlace, name: str) -> str | None:
    if expected.dtype != got.dtype:
        return f"Data type mismatch for {name}: expected {expected.dtype} but got {got.dtype}."
    if expected.shape != got.shape:
        return f"Shape mismatch for {name}: expected {expected.shape} but got {got.shape}."
    return None


def in_order_of(
    first: Structure, got: Structure, tensors: Iterator[torch.Tensor]
) -> list[torch.Tensor]:
    """Tensors of `got` in the order of `first`; the two differ only in the order of keys."""
    if isinstance(first, TensorPlace):
        return [next(tensors)]
    if isinstance(first, ConstantLeaf) or not isinstance(got, Items | Entries | CustomObject):
        return []
    other = list(first.items)
    if isinstance(first, Entries) and isinstance(got, Entries):
        other = [first.items[first.keys.index(key)] for key in got.keys]
    parts = [in_order_of(a, b, tensors) for a, b in zip(other, got.items, strict=True)]
    if isinstance(first, Entries) and isinstance(got, Entries):
        parts = [parts[got.keys.index(key)] for key in first.keys]
    return [tensor for part in parts for tensor in part]


def flatten_outputs(value: object) -> tuple[list[torch.Tensor], Callable[[Sequence], Any]]:
    """The tensors a model returned, and a function that puts others in their places.

    A tensor that is returned twice is listed twice; other values come back unchanged.
    """
    tensors: list[torch.Tensor] = []
    structure = take_apart(value, tensors.append)

    def rebuild(others: Sequence[torch.Tensor]) -> Any:  # noqa: ANN401
        assert len(others) == len(tensors), f"expected {len(tensors)} tensors, got {len(others)}"
        return put_together(structure, iter(others))

    return tensors, rebuild


# -- arguments of a call ---------------------------------------------------------------------------


# Types the device does not have, and their replacements.
NARROWER = {
    torch.int64: torch.int32,
    torch.float64: torch.float32,
    torch.bfloat16: torch.float32,
}


def narrower_types(model: Callable) -> Mapping[torch.dtype, torch.dtype]:
    """Types of tensors that become others: bfloat16 stays what it is in a model made of it."""
    tensors = (*model.parameters(), *model.buffers()) if isinstance(model, torch.nn.Module) else ()
    if any(tensor.dtype is torch.bfloat16 for tensor in tensors):
        return {wide: narrow for wide, narrow in NARROWER.items() if wide is not torch.bfloat16}
    return NARROWER


_HINT = (
    "\nThe model was compiled for different inputs. To compile it for these, call "
    "destroy() on it and run it again, or wrap the model in a new "
    "inferenceModel / trainingModel."
)
_Kind = inspect.Parameter


class ParsedArgs:
    """The arguments of one call.

    `tensors` are ready to be used: detached and contiguous; `originals` are the caller's own, for
    results that are written back into them.
    """

    def __init__(self, names: Sequence[str], args: Sequence[object], kwargs: Mapping[str, object]):
        self.names = names
        self.originals: list[torch.Tensor] = []
        collect = self.originals.append
        self.args: tuple[Structure, ...] = tuple(take_apart(arg, collect) for arg in args)
        items = tuple(take_apart(value, collect) for value in kwargs.values())
        self.kwargs = Entries(dict, tuple(kwargs), items, None)
        self.tensors = list(self.originals)

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> "ParsedArgs":
        """Arguments of the same form with other tensors of the same shapes and types."""
        made = ParsedArgs.__new__(ParsedArgs)
        made.names, made.args, made.kwargs = self.names, self.args, self.kwargs
        made.originals, made.tensors = list(tensors), list(tensors)
        return made

    def check_same(self, first: "ParsedArgs") -> None:
        """Raise unless these arguments fit a model compiled for `first`.

        Dictionaries may have their keys in another order: the tensors then take that of `first`.
        """
        if self.args == first.args and self.kwargs == first.kwargs:
            return
        difference = self._difference(first)
        if difference is not None:
            raise createPoptorchError(difference + _HINT)
        self.originals = self._in_order_of(first, self.originals)
        self.tensors = self._in_order_of(first, self.tensors)
        self.args, self.kwargs = first.args, first.kwargs

    def _difference(self, first: "ParsedArgs") -> str | None:
        if len(self.args) != len(first.args):
            return (
                f"Number of positional arguments mismatch: expected {len(first.args)} arguments "
                f"but got {len(self.args)}."
            )
        for name, expected, got in zip(first.names, first.args, self.args, strict=True):
            difference = mismatch(expected, got, name)
            if difference is not None:
                return difference
        return entries_mismatch(first.kwargs, self.kwargs, "keyword arguments", True)

    def _in_order_of(self, first: "ParsedArgs", tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        flat = iter(tensors)
        ordered = []
        for expected, got in zip(first.args, self.args, strict=True):
            ordered += in_order_of(expected, got, flat)
        return ordered + in_order_of(first.kwargs, self.kwargs, flat)

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple, dict]:
        """Arguments like these, to call forward with, but with other tensors."""
        assert len(tensors) == len(self.tensors), (
            f"expected {len(self.tensors)} tensors, got {len(tensors)}"
        )
        flat = iter(tensors)
        args = tuple(put_together(structure, flat) for structure in self.args)
        return args, put_together(self.kwargs, flat)

    def tensor_names(self) -> list[str]:
        """A name for each tensor: its parameter, and the place in it, such as `x[1]`."""
        named = [*zip(self.names, self.args, strict=True)]
        named += zip(map(str, self.kwargs.keys), self.kwargs.items, strict=True)
        return [inner for name, item in named for inner in tensor_names(item, name)]


class ArgsParser:
    """Brings the arguments of forward into one form, however they are passed."""

    def __init__(self, model: torch.nn.Module | Callable):
        forward = model.forward if isinstance(model, torch.nn.Module) else model
        parameters = list(inspect.signature(forward).parameters.values())
        by_position = (_Kind.POSITIONAL_ONLY, _Kind.POSITIONAL_OR_KEYWORD)
        self._positional = [p for p in parameters if p.kind in by_position]
        self._by_name = [p for p in parameters if p.kind is _Kind.KEYWORD_ONLY]
        self._rest = next((p.name for p in parameters if p.kind is _Kind.VAR_POSITIONAL), None)
        self._takes_any_name = any(p.kind is _Kind.VAR_KEYWORD for p in parameters)
        self._names = tuple(p.name for p in self._positional)
        self._narrower = narrower_types(model)
        self._said: set[str] = set()

    def parse(self, args: Sequence[object], kwargs: Mapping[str, object]) -> ParsedArgs:
        """The arguments in the order of the signature, defaults filled in, tensors cleaned."""
        names: Sequence[str] = self._names
        if kwargs or self._by_name or len(args) != len(names):
            names, args, kwargs = self._normal_form(args, dict(kwargs))
        parsed = ParsedArgs(names, args, kwargs)
        self._clean(parsed)
        if any(isinstance(arg, Entries) for arg in (*parsed.args, *parsed.kwargs.items)):
            self._warn_once("Dicts as inputs have only partial support: their keys are fixed.")
        return parsed

    def parse_again(
        self, args: Sequence[object], kwargs: Mapping[str, object], first: ParsedArgs
    ) -> ParsedArgs:
        """The arguments of a later call; raises unless they fit a model compiled for `first`."""
        if not kwargs and not first.kwargs.keys and _are_clean_tensors(args, first.args):
            return first.with_tensors(args)
        parsed = self.parse(args, kwargs)
        parsed.check_same(first)
        return parsed

    def warn_about_types(self, parsed: ParsedArgs) -> None:
        """Warn about tensors of types the device does not have, and name the replacements."""
        if not any(tensor.dtype in self._narrower for tensor in parsed.tensors):
            return
        for tensor, name in zip(parsed.tensors, parsed.tensor_names(), strict=True):
            if tensor.dtype in self._narrower:
                self._warn_once(
                    f"Input {name} has the type {tensor.dtype}, which the IPU does not have: it is "
                    f"converted to {self._narrower[tensor.dtype]}."
                )

    def _normal_form(
        self, args: Sequence[object], kwargs: dict[str, object]
    ) -> tuple[list[str], list[object], dict[str, object]]:
        n_given = len(args)
        assert self._rest is not None or n_given <= len(self._positional), (
            f"forward takes {len(self._positional)} positional arguments, but {n_given} were given"
        )
        names, values = list(self._names), list(args[: len(self._positional)])
        for parameter in self._positional[:n_given]:
            if parameter.name in kwargs and parameter.kind is not _Kind.POSITIONAL_ONLY:
                raise TypeError(f"forward() got multiple values for argument '{parameter.name}'")
        values += [_take(p, kwargs) for p in self._positional[n_given:]]
        rest = args[len(self._positional) :]
        names += [f"{self._rest}[{i}]" for i in range(len(rest))]
        named = {p.name: _take(p, kwargs) for p in self._by_name}
        if kwargs and not self._takes_any_name:
            self._reject(next(iter(kwargs)))
        return names, [*values, *rest], {**named, **kwargs}

    def _reject(self, name: str) -> None:
        known = [p.name for p in (*self._positional, *self._by_name)]
        raise TypeError(
            f"forward() got an unexpected keyword argument '{name}': {suggest(name, known)}"
        )

    def _clean(self, parsed: ParsedArgs) -> None:
        for i, tensor in enumerate(parsed.tensors):
            if tensor.requires_grad:
                self._warn_once(
                    "Input tensor has requires_grad=True set. This tensor will be detached because "
                    "backward pass via inputs is not supported."
                )
                tensor = tensor.detach()
            if not tensor.is_contiguous():
                self._warn_once(
                    "At least one input tensor is not contiguous: it is copied in each call."
                )
                tensor = tensor.contiguous()
            parsed.tensors[i] = tensor

    def _warn_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            LOGGER.warning(text)


def _are_clean_tensors(
    args: Sequence[object], places: Sequence[Structure]
) -> TypeGuard[Sequence[torch.Tensor]]:
    """Whether arguments are plain tensors of the shapes and types expected: the usual case."""
    return len(args) == len(places) and all(
        type(tensor) is torch.Tensor
        and type(place) is TensorPlace
        and tensor.shape == place.shape
        and tensor.dtype is place.dtype
        and not tensor.requires_grad
        and tensor.is_contiguous()
        for tensor, place in zip(args, places, strict=True)
    )


def _take(parameter: inspect.Parameter, kwargs: dict[str, object]) -> object:
    """The value given for a parameter by name, or its default."""
    if parameter.name in kwargs and parameter.kind is not _Kind.POSITIONAL_ONLY:
        return kwargs.pop(parameter.name)
    if parameter.default is _Kind.empty:
        raise createPoptorchError(f"Mandatory parameter {parameter.name} missing")
    return parameter.default


def n_batches_to_combine(options: Options) -> int:
    """The number of micro-batches that one call consumes."""
    n_groups = options.replication_factor // options.input_group_size
    return options.device_iterations * n_groups * options.Training.gradient_accumulation


def micro_batch(tensor: torch.Tensor, options: Options) -> torch.Tensor:
    """The first micro-batch of an input; raises if the input cannot be cut evenly."""
    n_batches = n_batches_to_combine(options)
    size = tensor.shape[0] if tensor.ndim else 1
    assert size % n_batches == 0, (
        f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension ({size}) must "
        f"be a multiple of Options.deviceIterations({options.device_iterations}) * "
        f"(Options.replicationFactor({options.replication_factor}) / "
        f"Options.inputReplicaGrouping.input_group_size({options.input_group_size})) * "
        f"Options.Training.gradientAccumulation({options.Training.gradient_accumulation}) = "
        f"{n_batches}, the number of micro-batches of one call."
    )
    return tensor if n_batches == 1 else tensor[: size // n_batches]


# -- micro-batches ---------------------------------------------------------------------------------


def slice_order(options: Options) -> list[int]:
    """Which slice of its inputs each micro-batch reads, [iteration][accumulation][replica]."""
    n_iterations, n_accumulation = options.device_iterations, options.Training.gradient_accumulation
    size, n_replicas = options.input_group_size, options.replication_factor
    n_groups, n_steps = n_replicas // size, n_iterations * n_accumulation
    if CommGroupType(options.input_cgt) is CommGroupType.Orthogonal and size > 1:
        # Each group has a contiguous part of the data of the whole call.
        return [(r % n_groups) * n_steps + s for s in range(n_steps) for r in range(n_replicas)]
    return [s * n_groups + r // size for s in range(n_steps) for r in range(n_replicas)]


class InputCutter:
    """Cuts the inputs of each call the way those of the first call were cut."""

    def __init__(self, first: Sequence[torch.Tensor], options: Options):
        self.order = slice_order(options)
        micro = [micro_batch(tensor, options) for tensor in first]
        self._sizes = [m.shape[0] if m.dim() else 0 for m in micro]
        self._is_whole = self.order == [0]
        self._in_turn = self.order == list(range(len(self.order)))

    def cut(self, tensors: Sequence[torch.Tensor]) -> list[Sequence[torch.Tensor]]:
        """The inputs of every micro-batch, in the order they run; all are views."""
        if self._is_whole:
            return [tensors]
        if not tensors:
            return [()] * len(self.order)
        parts = [
            tensor.split(size) if size else (tensor,) * (max(self.order) + 1)
            for tensor, size in zip(tensors, self._sizes, strict=True)
        ]
        slices: list[Sequence[torch.Tensor]] = list(zip(*parts, strict=True))
        return slices if self._in_turn else [slices[i] for i in self.order]
