"""What one asks of a node of a captured graph: its operation, its operands, what it does."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import fx
from torch._ops import OpOverload

from tremula.ir.bodies import BODY_ARGUMENTS, bodies_in
from tremula.ir.errors import CaptureError

aten = torch.ops.aten
R = TypeVar("R")

_SEEDED = torch.Tag.nondeterministic_seeded
_UNTAGGED = frozenset({"aten::empty", "aten::normal_functional"})  # random, but PyTorch forgot


def _by_identity(query: Callable[[Any], R]) -> Callable[[Any], R]:
    """Remember what a query says of each operation, by the object: an overload's hash is slow."""
    known: dict[int, tuple[object, R]] = {}  # with the object, so that its id stays its own

    @wraps(query)
    def answer(func: object) -> R:
        entry = known.get(id(func))
        if entry is None:
            entry = known[id(func)] = (func, query(func))
        return entry[1]

    return answer


def schema_name(node: fx.Node) -> str:
    """`aten::add` for a call of any of its overloads; empty for non-operations."""
    schema = getattr(node.target, "_schema", None)
    return schema.name if schema is not None else ""


@_by_identity
def overload_name(target: object) -> str:
    """'aten::add.Tensor'; the overload 'default' is left out: 'aten::mm'."""
    schema = getattr(target, "_schema", None)
    if schema is None:
        return str(getattr(target, "__name__", target))
    return f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name


def overload_of(node: fx.Node) -> OpOverload:
    """The operation a node calls."""
    assert isinstance(node.target, OpOverload), f"{node.name} calls {node.target}, not an operation"
    return node.target


def operand(node: fx.Node, position: int = 0) -> fx.Node:
    """An argument that is a node itself."""
    result = node.args[position]
    assert isinstance(result, fx.Node), (
        f"argument {position} of {node.name} is {result}, not a node"
    )
    return result


def ints(argument: object) -> list[int]:
    """An argument that is a list of whole numbers: sizes, dimensions."""
    assert isinstance(argument, list | tuple), f"{argument} is not a list"
    return [int(n) for n in argument]


def whole(argument: object) -> int:
    """An argument that is one whole number."""
    assert isinstance(argument, int | torch.SymInt), f"{argument} is not a whole number"
    return int(argument)


def type_name(dtype: torch.dtype) -> str:
    """How errors of PyTorch call a type: 'Float'."""
    return _TYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))


_TYPE_NAMES = {
    torch.float64: "Double",
    torch.float32: "Float",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}
HALF_TYPES = (torch.float16, torch.bfloat16)

# -- what an operation does ------------------------------------------------------------------------


def is_random(node: fx.Node) -> bool:
    """Whether a call gives another value each time, so that two equal calls are not one."""
    is_seeded, is_untagged, has_bodies = _randomness(node.target)
    if is_untagged:
        return True
    if has_bodies and any(is_random(n) for body in bodies_in(node) for n in body.graph.nodes):
        return True
    return is_seeded and _drops(node)


@_by_identity
def _randomness(func: object) -> tuple[bool, bool, bool]:
    """Whether an operation draws by a tag, draws without one, or takes bodies that may draw."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return False, False, False
    is_seeded = isinstance(func, OpOverload) and _SEEDED in func.tags
    has_bodies = any(argument.name in BODY_ARGUMENTS for argument in schema.arguments)
    return is_seeded, schema.name in _UNTAGGED, has_bodies


def _drops(node: fx.Node) -> bool:
    """False for attention and recurrent nets whose dropout drops nothing: nothing is drawn."""
    for index, argument in enumerate(overload_of(node)._schema.arguments):
        if argument.name in ("dropout_p", "dropout"):
            default = node.args[index] if index < len(node.args) else argument.default_value
            return bool(node.kwargs.get(argument.name, default) != 0)
    return True


@_by_identity
def is_view(func: object) -> bool:
    """Whether every result of an operation is a view of its first argument."""
    schema = getattr(func, "_schema", None)
    if schema is None or schema.is_mutable or not schema.returns:
        return False
    info = schema.returns[0].alias_info
    if info is not None and not info.is_write:
        return True
    return func in _UNANNOTATED_VIEWS


# Views whose schema does not say so.
_UNANNOTATED_VIEWS = {aten._unsafe_view.default, aten._reshape_alias.default}


@_by_identity
def written_arguments(func: object) -> list[int]:
    """Positions of the arguments an operation writes: its first one, or those of `out=`."""
    schema = getattr(func, "_schema", None)
    if schema is None or not schema.is_mutable:
        return []
    result = [place for place, a in enumerate(schema.arguments) if is_written(a)]
    if any(place > 0 and not schema.arguments[place].kwarg_only for place in result):
        raise CaptureError(f"{func} writes several of its arguments, which is not supported.")
    return result


def is_written(argument: torch.Argument) -> bool:
    """Whether an operation writes what it is given for an argument."""
    return argument.alias_info is not None and argument.alias_info.is_write


def is_view_in_place(func: OpOverload) -> bool:
    """Whether an operation turns a tensor into a view of itself: squeeze_, t_, transpose_."""
    return torch.Tag.inplace_view in func.tags and func._schema.name not in _RESIZES


# They change what a tensor holds, not how it is seen.
_RESIZES = {"aten::resize_", "aten::resize_as_", "aten::set_"}


def functional_overload(func: OpOverload) -> OpOverload:
    """add_.Tensor and add.out -> add.Tensor: the one that takes the same and writes nothing."""
    name = func._schema.name.removeprefix("aten::").removesuffix("_")
    packet = getattr(aten, name, None)
    wanted = _read_types(func)
    overload = next(
        (o for o in _overloads(packet) if not o._schema.is_mutable and _read_types(o) == wanted),
        None,
    )
    if overload is None:
        raise CaptureError(
            f"{func} has no functional form, so a static program cannot hold it.",
            hint="write the value into a new tensor",
        )
    return overload


def _overloads(packet: torch._ops.OpOverloadPacket | None) -> list[OpOverload]:
    return [getattr(packet, name) for name in packet.overloads()] if packet is not None else []


def _read_types(func: OpOverload) -> list[tuple[str, str]]:
    """Names and types of what an operation takes, but for the result of `out=` and its kind."""
    arguments = [a for a in func._schema.arguments if not (a.kwarg_only and is_written(a))]
    return [(a.name, str(a.type)) for a in arguments if a.name not in _KINDS_OF_RESULT]


# Factories take them where no tensor to write is given.
_KINDS_OF_RESULT = {"dtype", "layout", "device", "pin_memory"}


def call_like(graph: fx.Graph, target: Callable[..., Any], args: tuple, like: fx.Node) -> fx.Node:
    """A new call that belongs to the layer of another node, with the value that it has."""
    node = graph.call_function(target, args)
    node.meta = {**like.meta, "val": target(*fx.map_arg(args, lambda x: x.meta["val"]))}
    return node
