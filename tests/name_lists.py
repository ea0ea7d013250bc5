"""Lists of a library's public names and arguments, as text, and what of them is missing here.

popxl.ops.add          a module
  add(lhs, rhs)        a function of it, with its arguments
  class Graph()        a class, and
      @inputs          its members
  from .add: add       what it imports, which is not checked
"""

import importlib
import inspect
import re
from dataclasses import dataclass, field
from pathlib import Path

_UNCHECKED = {"__init__", "__call__", "__getitem__"}


@dataclass
class Differences:
    """Entries of a list, names that are missing, and functions that lack arguments."""

    n_entries: int = 0
    missing: list[str] = field(default_factory=list)
    lacking: list[tuple[str, list[str]]] = field(default_factory=list)


def differences(path: Path) -> Differences:
    result = Differences()
    module: object = None
    owner: object = None
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.strip() or line.startswith(("#", "  from ")):
            continue
        result.n_entries += 1
        if not line.startswith(" "):
            owner, module = None, _imported(line.split(":")[0].strip())
            if module is None:
                result.missing.append(line)
        elif line.startswith("      "):
            if not _has_member(owner, line):
                result.missing.append(f"{getattr(owner, '__name__', '?')}.{line.strip()}")
        else:
            owner = _check(result, module, line)
    return result


def _imported(name: str) -> object:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _has_member(owner: object, line: str) -> bool:
    match = re.match(r"\s+@?(\w+)", line)
    assert match is not None, line
    name = match[1]
    if owner is None:
        return False
    return (
        name in _UNCHECKED
        or hasattr(owner, name)
        or name in getattr(owner, "__annotations__", {})
        or name in getattr(owner, "__dataclass_fields__", {})
    )


def _check(result: Differences, module: object, line: str) -> object:
    """Check a class or function of a module; gives the class."""
    match = re.match(r"  (class )?(\w+)", line)
    assert match is not None, line
    found = getattr(module, match[2], None)
    if found is None:
        result.missing.append(f"{getattr(module, '__name__', '?')}.{match[2]}")
        return None
    if match[1]:
        return found
    arguments = re.search(r"\((.*)\)$", line)
    if callable(found) and arguments is not None:
        lacking = _lacking(found, arguments[1])
        if lacking:
            result.lacking.append((match[2], lacking))
    return None


def _lacking(function: object, arguments: str) -> list[str]:
    words = [word.split("=")[0].strip() for word in arguments.split(", ") if word]
    wanted = [word for word in words if word.isidentifier()]
    try:
        parameters = inspect.signature(function).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return []
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return []
    return [name for name in wanted if name not in parameters]
