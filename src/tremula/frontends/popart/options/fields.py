"""A field of an options object: its default, what it changes, and which settings it drives.

`SessionOptions` and its groups are dataclasses whose fields are made by `option`. The table of all
options (`table.py`) is read off them, so that a name, its type and its default are written once.
"""

import copy
from dataclasses import Field, field
from typing import Any

# What an option can change; the text of an effect begins with one of these.
RESULTS, TILES, SESSION = "results: ", "the tile program: ", "the session: "

_EFFECT, _DRIVES, _BY_NAME = "effect", "drives", "is_set_by_name"
_IMMUTABLE = (bool, int, float, str, type(None))  # enumerations are integers


class OptionGroup:
    """Base of the dataclasses that hold several options of one subject."""


def option(default: object, effect: str = "", drives: str = "", *, by_name: bool = True) -> Any:
    """A field with a default that each object has a copy of.

    `effect` is empty if the option changes nothing; `drives` are the fields of `StepSettings` that
    it changes, separated by blanks; `by_name` says whether PopTorch takes it by name.
    """
    metadata = {_EFFECT: effect, _DRIVES: tuple(drives.split()), _BY_NAME: by_name}
    if isinstance(default, _IMMUTABLE):
        return field(default=default, metadata=metadata)
    return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)


def default_of(item: Field) -> Any:
    """The default of a field; a new object each time where it can be changed."""
    return item.default_factory() if callable(item.default_factory) else item.default


def effect_of(item: Field) -> str:
    """What an option changes; empty if it changes nothing."""
    return item.metadata.get(_EFFECT, "")


def driven_by(item: Field) -> tuple[str, ...]:
    """The fields of `StepSettings` that an option changes, with dots."""
    return item.metadata.get(_DRIVES, ())


def is_set_by_name(item: Field) -> bool:
    """Whether PopTorch's scripts can set the option by its name."""
    return item.metadata.get(_BY_NAME, True)
