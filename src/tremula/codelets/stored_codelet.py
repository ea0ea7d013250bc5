"""Codelets in files: a JSON-able form, and reading one back without trusting it.

A file is never executed. Its functions are parsed, must be in the subset of `python/subset.py`, may
only use numbers, element types and the functions listed in `python/function_source.py`, and kernels
are generated from them again. A `cycles` method is arbitrary Python and so is not stored.
"""

import math
import re
from collections.abc import Mapping
from typing import NamedTuple

from tremula.base.errors import GraphObjectLoadError
from tremula.base.provenance import Provenance
from tremula.base.source import Source, source_at
from tremula.base.types import ALL_TYPES, Type
from tremula.codelets.python import random
from tremula.codelets.python.function_source import (
    BUILTINS,
    MATH,
    NUMPY,
    Binding,
    FunctionSource,
    Known,
)
from tremula.codelets.spec import (
    LAYOUTS,
    CodeletSpec,
    Direction,
    FieldKind,
    FieldSpec,
    VertexBase,
)

_MAX_TEXT = 200_000
_MAX_DEPTH = 20
_TYPES = {t.name: t for t in ALL_TYPES}
_FUNCTIONS = {
    "builtin": BUILTINS, "math": MATH, "numpy": NUMPY, "random": random.FUNCTIONS,
}  # fmt: skip


# -- writing --------------------------------------------------------------------------------------


def codelet_as_dict(
    spec: CodeletSpec, compute: FunctionSource, provenance: Provenance, has_cost: bool,
    host_compute: FunctionSource | None = None,
) -> dict[str, object]:  # fmt: skip
    on_host = {} if host_compute is None else {"compute_on_host": function_as_dict(host_compute)}
    return {
        "language": "python",
        "name": spec.name,
        "base": spec.base.value,
        "provenance": provenance.value,
        "has_cost_method": has_cost,
        "fields": fields_as_list(spec.fields),
        "compute": function_as_dict(compute),
        **on_host,
        "source": _source_as_list(compute.source),
    }


def fields_as_list(fields: tuple[FieldSpec, ...]) -> list[dict[str, object]]:
    return [_field_as_dict(f) for f in fields]


def _field_as_dict(field: FieldSpec) -> dict[str, object]:
    return {
        "name": field.name,
        "kind": field.kind.name,
        "type": field.type.name,
        "direction": field.direction.value if field.direction else None,
        "layout": field.layout,
        "min_align": field.min_align,
        "is_interleaved": field.is_interleaved,
    }


def function_as_dict(function: FunctionSource) -> dict[str, object]:
    bindings = {name: _binding_as_dict(b) for name, b in sorted(function.bindings.items())}
    return {"name": function.name, "text": function.text, "bindings": bindings}


def _source_as_list(source: Source) -> list[object]:
    return [source.file, source.line]


def _binding_as_dict(binding: Binding) -> dict[str, object]:
    if isinstance(binding, Type):
        return {"type": binding.name}
    if isinstance(binding, Known):
        return {"known": [binding.where, binding.name]}
    if isinstance(binding, FunctionSource):
        return {"function": function_as_dict(binding)}
    if isinstance(binding, tuple):
        return {"tuple": [_number_as_json(v) for v in binding]}
    return {"number": _number_as_json(binding)}


def _number_as_json(value: bool | int | float) -> object:
    """Floats as hexadecimal text: exact, and JSON has no infinity."""
    return float(value).hex() if isinstance(value, float) else value


# -- reading --------------------------------------------------------------------------------------


DAMAGES = (KeyError, TypeError, ValueError, SyntaxError, RecursionError, MemoryError)


class StoredCodelet(NamedTuple):
    """What a file says about a codelet, well-formed but not yet checked."""

    name: str
    compute: FunctionSource
    fields: tuple[FieldSpec, ...]
    base: VertexBase
    provenance: Provenance
    has_cost: bool  # it had a `cycles` method
    host_compute: FunctionSource | None


def _provenance_of(stored: Mapping[str, object]) -> object:
    """The provenance of a stored codelet's cost, which files before 0.2 call its standing."""
    return stored["provenance"] if "provenance" in stored else stored["standing"]


def read_codelet(stored: Mapping[str, object]) -> StoredCodelet:
    """The parts of a codelet that `codelet_as_dict` described, or an error."""
    try:
        return StoredCodelet(
            _text(stored, "name"),
            _read_function(_dict(stored, "compute"), _read_source(stored), 0),
            _read_fields(_list(stored, "fields")),
            VertexBase(stored["base"]),
            Provenance(_provenance_of(stored)),
            stored["has_cost_method"] is True,
            _read_host_compute(stored),
        )
    except DAMAGES as error:
        raise refused(f"{type(error).__name__}: {error}") from None


def _read_host_compute(stored: Mapping[str, object]) -> FunctionSource | None:
    if "compute_on_host" not in stored:
        return None
    return _read_function(_dict(stored, "compute_on_host"), _read_source(stored), 0)


def refused(reason: str) -> GraphObjectLoadError:
    """The error for a file whose codelet cannot be used."""
    return GraphObjectLoadError(
        f"a stored codelet is refused: {reason}",
        hint="the file is damaged or was altered: build the program again",
    )


def _text(stored: Mapping[str, object], key: str) -> str:
    value = stored[key]
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"{key!r} is not a text")
    return value


def _list(stored: Mapping[str, object], key: str) -> list:
    value = stored[key]
    if not isinstance(value, list):
        raise TypeError(f"{key!r} is not a list")
    return value


def _dict(stored: Mapping[str, object], key: str) -> dict:
    value = stored[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key!r} is not a table")
    return value


def _read_source(stored: Mapping[str, object]) -> Source:
    file, line = _list(stored, "source")
    if not isinstance(file, str) or not isinstance(line, int):
        raise TypeError("its source is not a file and line")
    return source_at(file, line)


def _read_fields(stored: list) -> tuple[FieldSpec, ...]:
    fields = tuple(_read_field(f) for f in stored)
    if len({f.name for f in fields}) != len(fields):
        raise ValueError("two fields have the same name")
    return fields


def _read_field(stored: object) -> FieldSpec:
    if not isinstance(stored, dict):
        raise TypeError("a field is not a table")
    direction = stored["direction"]
    kind, name, layout = FieldKind[stored["kind"]], stored["name"], stored["layout"]
    is_edge = kind not in (FieldKind.STATE, FieldKind.STATE_VECTOR)
    if is_edge != (direction is not None):
        raise ValueError("a field's kind and direction contradict each other")
    if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
        raise ValueError(f"{name!r} is not a field name")
    if name == "n_workers":
        raise ValueError("'n_workers' is a constant of the chip, not a field")
    if layout not in LAYOUTS or type(stored["min_align"]) is not int:
        raise ValueError(f"unknown layout {layout!r}")
    return FieldSpec(
        name=name, kind=kind, type=_TYPES[stored["type"]], layout=layout,
        direction=Direction(direction) if is_edge else None, min_align=stored["min_align"],
        is_interleaved=stored["is_interleaved"] is True,
    )  # fmt: skip


def _read_function(stored: Mapping[str, object], source: Source, depth: int) -> FunctionSource:
    name, text = _text(stored, "name"), _text(stored, "text")
    if depth > _MAX_DEPTH or not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)?", name):
        raise ValueError(f"{name!r} is not a function name")
    bindings = {
        key: _read_binding(value, source, depth) for key, value in _dict(stored, "bindings").items()
    }
    return FunctionSource(name, text, source, bindings)


def _read_binding(stored: object, source: Source, depth: int) -> Binding:
    if not isinstance(stored, dict) or len(stored) != 1:
        raise ValueError("a name must have exactly one meaning")
    ((what, value),) = stored.items()
    if what == "type":
        return _TYPES[value]
    if what == "function":
        return _read_function(_dict(stored, "function"), source, depth + 1)
    if what == "known":
        where, name = value
        if name not in _FUNCTIONS[where]:
            raise ValueError(f"{name!r} is not a function of {where}")
        return Known(where, name)
    if what == "tuple":
        return tuple(_read_number(v) for v in value)
    if what == "number":
        return _read_number(value)
    raise ValueError(f"unknown meaning {what!r}")


def _read_number(value: object) -> bool | int | float:
    if isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return math.nan if value == "nan" else float.fromhex(value)
    raise ValueError(f"{value!r} is not a number")
