"""The table of session options by name: what PopTorch's scripts set, and where each one goes.

    SessionOptions.autoRecomputation                        autoRecomputation
    SessionOptions.batchSerializationSettings.factor        batchSerializationSettings.factor

Rows are made from the fields of `SessionOptions` and its groups; nothing is listed twice.
"""

from collections.abc import Iterator
from dataclasses import Field, dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from tremula.base.errors import suggest
from tremula.frontends.popart.enums import OptionEnum
from tremula.frontends.popart.exceptions import popart_exception
from tremula.frontends.popart.options.fields import (
    OptionGroup,
    default_of,
    driven_by,
    effect_of,
    is_set_by_name,
)
from tremula.frontends.popart.options.options import SessionOptions

# The kind of a value by its type, in the words of PopTorch's error messages.
_KINDS: dict[type, str] = {
    bool: "bool",
    int: "uint64",
    float: "floating point",
    str: "string",
    list: "set / vector",
    set: "set / vector",
    dict: "map",
}
# A method of SessionOptions that PopTorch calls as if it were an option.
EXPLICIT_IR = "enableExplicitIR"


@dataclass(frozen=True)
class SessionOption:
    """A row: one option of a session, or one field of a group of options."""

    name: str  # with a dot for a field of a group
    kind: str
    default: Any
    effect: str  # empty: it changes nothing
    drives: tuple[str, ...]  # fields of StepSettings, with dots
    choices: type[OptionEnum] | None  # the enumeration of its values
    is_set_by_name: bool  # by PopTorch


def _rows() -> Iterator[SessionOption]:
    for item in fields(SessionOptions):
        kind = _plain_type(item.type)
        if issubclass(kind, OptionGroup) and is_dataclass(kind):
            for part in fields(kind):
                yield _row(part, f"{item.name}.{part.name}")
        else:
            yield _row(item, item.name)
    explained = "the session: loops, copies and recomputation are operations of the graph"
    yield SessionOption(EXPLICIT_IR, "bool", False, explained, (), None, True)


def _row(item: Field, name: str) -> SessionOption:
    kind = _plain_type(item.type)
    choices = kind if issubclass(kind, OptionEnum) else None
    return SessionOption(
        name,
        _KINDS.get(int if choices else kind, "object"),  # such as a tensor's location
        default_of(item),
        effect_of(item),
        driven_by(item),
        choices,
        is_set_by_name(item),
    )


def _plain_type(annotation: Any) -> type:
    """`list` for `list[str] | None`."""
    if isinstance(annotation, UnionType):
        annotation = next(part for part in get_args(annotation) if part is not NoneType)
    return get_origin(annotation) or annotation


OPTIONS: dict[str, SessionOption] = {row.name: row for row in _rows()}


def set_option(options: SessionOptions, name: str, value: Any) -> None:
    """Set an option by its name, from a plain value such as the number of a choice."""
    if name not in OPTIONS:
        raise popart_exception(f"Unknown session option {name!r}: {suggest(name, OPTIONS)}")
    row = OPTIONS[name]
    if name == EXPLICIT_IR:
        options.enableExplicitIR(bool(value))
        return
    group, _, field_name = name.rpartition(".")
    owner = getattr(options, group) if group else options
    if row.choices is not None:
        value = row.choices(value)
    elif isinstance(row.default, set | list):
        value = type(row.default)(value)
    setattr(owner, field_name, value)
