"""How far a number can be trusted: one scale, worded for costs and for constants of a machine.

| costs of vertices | constants | |
|---|---|---|
| published | stated | a public source gives the number |
| fitted | fitted | fitted to measurements |
| derived | derived | computed from what sources give |
| placeholder | guessed | our guess, and where a total rests on it a report says so |
| yours | yours | you said so: an estimate given to a vertex, a constant that was changed |
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar, get_args


class Provenance(Enum):
    """How far a cost can be trusted."""

    PUBLISHED = "published"
    FITTED = "fitted"
    DERIVED = "derived"
    PLACEHOLDER = "placeholder"
    YOURS = "yours"


ConstantProvenance = Literal["stated", "derived", "fitted", "guessed", "yours"]
CONSTANT_PROVENANCES: tuple[str, ...] = get_args(ConstantProvenance)

# -- constants that were fitted --------------------------------------------------------------------

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A constant of the cost model, what it rests on, and the measured rows it was fitted to.

    A module that has one registers it where it is defined, so the list is complete by construction:
    `tremula validate --constants` prints it, and a test looks for others.

    `rows` are identifiers of rows, with * for any letters; none: rows that are not among the files
    that come with Tremula, and `source` names them.
    """

    name: str
    value: float
    unit: str
    source: str
    rows: tuple[str, ...]
    module: str


FITTED: dict[str, FittedConstant] = {}


def fitted(name: str, value: Number, unit: str, source: str, rows: Iterable[str] = ()) -> Number:
    """The value, which is put on the list under its name."""
    module = sys._getframe(1).f_globals["__name__"]  # whoever defines it
    FITTED[name] = FittedConstant(name, float(value), unit, source, tuple(rows), module)
    return value
