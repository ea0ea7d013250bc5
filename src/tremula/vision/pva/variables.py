"""pva's variables, on tiles and as the program declared them, and debug contexts."""

import json
from dataclasses import dataclass

import numpy as np

from tremula.vision.lazy_list import LazyList
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray


@dataclass(frozen=True)
class SourceLocation:
    fileName: str
    lineNumber: int


@dataclass(frozen=True)
class DebugContext:
    _reader: ReportReader
    id: int

    def _of(self, column: str) -> object:
        return self._reader.table("debug_contexts")[column][self.id]

    @property
    def name(self) -> str:
        """The last part of its path."""
        return str(self._of("path"))

    @property
    def layer(self) -> str:
        """The library or front end that made it."""
        return str(self._of("layer"))

    @property
    def location(self) -> SourceLocation:
        """The line of the user's source."""
        return SourceLocation(str(self._of("file")), int(self._of("line")))  # pyright: ignore[reportArgumentType]

    @property
    def parents(self) -> list["DebugContext"]:
        """The contexts it is in."""
        parent = int(self._of("parent"))  # pyright: ignore[reportArgumentType]
        return [DebugContext(self._reader, parent)] if parent >= 0 else []

    @property
    def json(self) -> str:
        """Everything known about it, as JSON."""
        where = self.location
        return json.dumps(
            {
                "layer": self.layer,
                "name": self.name,
                "file": where.fileName,
                "line": where.lineNumber,
            }
        )


@dataclass(frozen=True)
class Variable:
    """A name and bytes: of a variable, or of something else that takes memory."""

    name: str
    size: int


@dataclass(frozen=True)
class StepInterval:
    start: int
    end: int  # the first step after it


@dataclass(frozen=True)
class EquivalenceClass:
    """Variables that are live at the same steps."""

    id: int
    steps: tuple[StepInterval, ...]


@dataclass(frozen=True)
class UnloweredVariable:
    _reader: ReportReader
    id: int

    @property
    def name(self) -> str:
        return self._reader.table("variables")["name"][self.id]

    @property
    def type(self) -> str:
        return self._reader.table("variables")["type"][self.id]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(json.loads(self._reader.table("variables")["shape"][self.id]))

    @property
    def debugContext(self) -> DebugContext:
        return DebugContext(
            self._reader, int(self._reader.table("variables")["debug_context"][self.id])
        )


@dataclass(frozen=True)
class LoweredVariable:
    """The part of a variable on one tile: entry `id` of the report's variable × tile pairs."""

    _reader: ReportReader
    id: int

    @property
    def _id(self) -> int:
        return self.id

    @property
    def _variable(self) -> int:
        start = self._reader.column("variable.tile_start")
        return int(np.searchsorted(start, self.id, side="right")) - 1

    @property
    def name(self) -> str:
        """As the program calls it."""
        return self._reader.table("variables")["name"][self._variable]

    @property
    def bytes(self) -> int:
        """Its size on this tile."""
        return int(self._reader.column("variable.tile_bytes")[self.id])

    @property
    def tileId(self) -> int:
        """The tile that holds it."""
        return int(self._reader.column("variable.tile")[self.id])

    @property
    def alwaysLive(self) -> bool:
        """Does it live all the time?"""
        return bool(self._reader.table("variables")["always_live"][self._variable])

    @property
    def hasUnloweredVar(self) -> bool:
        """Does it belong to a variable of the program?"""
        return True

    @property
    def unloweredVar(self) -> UnloweredVariable:
        """The variable of the program it belongs to."""
        return UnloweredVariable(self._reader, self._variable)

    @property
    def equivalenceClass(self) -> EquivalenceClass:
        """A number that equal variables share."""
        return _classes(self._reader)[self._variable]

    def __repr__(self) -> str:
        return f"LoweredVariable({self.name!r}, tile {self.tileId}, {self.bytes} B)"


def _classes(reader: ReportReader) -> list[EquivalenceClass]:
    """The class of each variable, made once per report."""
    cached = getattr(reader, "_cached_classes", None)
    if cached is None:
        cached = _make_classes(reader)
        reader._cached_classes = cached  # pyright: ignore[reportAttributeAccessIssue]
    return cached


def _make_classes(reader: ReportReader) -> list[EquivalenceClass]:
    at = reader.table("steps")["instruction"]
    first = np.searchsorted(at, reader.column("live.first")).tolist()
    last = np.searchsorted(at, reader.column("live.last"), side="right").tolist()
    ranges: dict[int, list[tuple[int, int]]] = {}
    for variable, a, b in zip(reader.column("live.variable").tolist(), first, last, strict=True):
        ranges.setdefault(variable, []).append((a, b))
    always = reader.table("variables")["always_live"]
    result: dict[tuple, EquivalenceClass] = {}
    classes = []
    for variable in range(len(always)):
        key = ((0, reader.n_steps),) if always[variable] else tuple(ranges.get(variable, ()))
        if key not in result:
            result[key] = EquivalenceClass(len(result), tuple(StepInterval(a, b) for a, b in key))
        classes.append(result[key])
    return classes


def lowered_variables_of(reader: ReportReader, variables: Ints) -> list[LoweredVariable]:
    start = reader.column("variable.tile_start")
    return [
        LoweredVariable(reader, entry)
        for v in variables.tolist()
        for entry in range(int(start[v]), int(start[v + 1]))
    ]


@dataclass(frozen=True)
class LoweredVariables:
    _reader: ReportReader

    @property
    def allBriefVars(self) -> LazyList[LoweredVariable]:
        n = len(self._reader.column("variable.tile"))
        return LazyList(n, lambda i: LoweredVariable(self._reader, i))

    def forTile(self, tile: int) -> LazyList[LoweredVariable]:
        entries = np.flatnonzero(self._reader.column("variable.tile") == tile)
        return LazyList(len(entries), lambda i: LoweredVariable(self._reader, int(entries[i])))

    def columns(self) -> dict[str, Ints]:
        """All at once: variable, tile, bytes and whether it is always live."""
        start = self._reader.column("variable.tile_start")
        variable = np.repeat(np.arange(len(start) - 1), np.diff(start))
        return {
            "variable": variable,
            "tile": self._reader.column("variable.tile"),
            "bytes": self._reader.column("variable.tile_bytes"),
            "alwaysLive": self._reader.table("variables")["always_live"][variable].astype(bool),
        }
