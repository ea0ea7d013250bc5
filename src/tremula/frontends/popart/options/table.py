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


def session_options_markdown() -> str:
    """The page docs/session-options.md."""
    with_effect = [row for row in OPTIONS.values() if row.effect or row.drives]
    others = [row for row in OPTIONS.values() if not (row.effect or row.drives)]
    return "\n".join(
        [
            "# Session options",
            "",
            "Made from the fields of `popart.SessionOptions`; `make docs` renews it.",
            "",
            "PopART's scripts set these as attributes: `options.enableOutlining = False`,",
            "`options.batchSerializationSettings.factor = 4`. PopTorch's scripts set the same ones",
            'by name: `options._Popart.set("batchSerializationSettings.factor", 4)`, except those',
            "marked *PopART only*, for which PopTorch has setters or nothing. Choices are",
            "enumerations of `popart` or their numbers.",
            "",
            "## With an effect",
            "",
            "The last column names the fields of `StepSettings` that an option changes; a test",
            "changes each option and compares.",
            "",
            "| option | value | default | effect | settings |",
            "|---|---|---|---|---|",
            *map(_row_with_effect, with_effect),
            "",
            "## Accepted without effect",
            "",
            "These are checked and stored, and change neither results nor the tile program.",
            "",
            "| option | value | default |",
            "|---|---|---|",
            *map(_cells, others),
            "",
        ]
    )


def _cells(row: SessionOption) -> str:
    """The columns name, value and default of a row."""
    note = "" if row.is_set_by_name else " *(PopART only)*"
    kind = _code(row.choices.__name__) if row.choices else row.kind
    is_object = row.kind == "object"  # its own defaults are on its page
    default = f"{type(row.default).__name__}()" if is_object else repr(row.default)
    default = str(row.default) if row.choices else default
    return f"| {_code(row.name)}{note} | {kind} | {_code(default)} |"


def _row_with_effect(row: SessionOption) -> str:
    effect = row.effect or "is named in the log as not modelled"
    return f"{_cells(row)} {effect} | {', '.join(map(_code, row.drives))} |"


def _code(text: str) -> str:
    return f"`{text}`"
