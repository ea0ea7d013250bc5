"""Constants of the cost model that were fitted to measurements: value, source, and rows used.

A module that has one registers it where it is defined, so that the list is complete by
construction: `tremula validate --constants` prints it, and a test looks for others.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class FittedConstant:
    """A constant, what it rests on, and the rows of measurements that it was fitted to.

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
