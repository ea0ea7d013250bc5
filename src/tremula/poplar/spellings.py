"""Poplar's own spellings of methods, generated from the table of C++ names.

`graph.add_variable` is also `graph.addVariable`, and a getter that is a property here can be called
as in C++, in both styles: `target.getNumTiles()` and `target.get_num_tiles()` are `target.n_tiles`.
A class lists what it got in `cpp_spellings`; pages and stubs have one name of each method.
"""

import re
from collections.abc import Callable
from typing import Any

from tremula.poplar.cpp_names import sections

# Methods of Poplar whose value is not that of the name next to them in the table.
_CONVERTED: dict[str, Callable[[Any], object]] = {
    "Tensor::shapeToString": lambda tensor: "{" + ",".join(map(str, tensor.shape)) + "}",
    "Tensor::hasMetadata": lambda tensor: tensor.metadata is not None,
    "Target::getTargetSystemString": lambda target: target.system.name,
}
_ELSEWHERE = ("Target::getNumConvUnits",)  # `target.chip` has it for each type


def add_cpp_spellings(cls: type, fields: tuple[str, ...] = ()) -> None:
    """Give a class the spellings of Poplar's class of its name; `fields` can be assigned to."""
    prefix = f"{cls.__name__}::"
    added: set[str] = set()
    for row in (row for rows in sections().values() for row in rows):
        theirs = row.theirs.removeprefix("program::")
        owner, _, attribute = row.ours.partition(".")
        is_method = theirs.startswith(prefix) and "operator" not in theirs
        if not is_method or owner != cls.__name__ or theirs in _ELSEWHERE:
            continue
        spelling = theirs.removeprefix(prefix)
        value = _spelled(cls, theirs, attribute, is_field=attribute in fields)
        for name in (spelling, snake_case(spelling)):
            if not hasattr(cls, name):
                setattr(cls, name, value)
                added.add(name)
    cls.cpp_spellings = frozenset(added)  # pyright: ignore[reportAttributeAccessIssue]


def snake_case(name: str) -> str:
    """`getDriverIDs` → `get_driver_ids`."""
    plurals = name.replace("IDs", "Ids").replace("IPUs", "Ipus")
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", plurals)
    return words.lower()


def _spelled(cls: type, theirs: str, attribute: str, *, is_field: bool) -> object:
    if theirs in _CONVERTED:
        return _getter(_CONVERTED[theirs], theirs)
    if is_field:
        return property(
            lambda self: getattr(self, attribute),
            lambda self, value: setattr(self, attribute, value),
        )
    ours = next((vars(base)[attribute] for base in cls.__mro__ if attribute in vars(base)), None)
    if callable(ours) or isinstance(ours, staticmethod | classmethod):
        return ours
    return _getter(lambda self: getattr(self, attribute), theirs)


def _getter(read: Callable[[Any], object], theirs: str) -> Callable[[Any], object]:
    def get(self: object) -> object:
        return read(self)

    get.__name__ = theirs.rpartition("::")[2]
    get.__doc__ = f"Poplar's `{theirs}`."
    return get
