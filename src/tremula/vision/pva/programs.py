"""pva's programs, compute sets, vertices and operations."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.vision.analysis.operations import operation_columns, operation_of_step
from tremula.vision.lazy_list import LazyList
from tremula.vision.pva.names import ProgramType
from tremula.vision.pva.variables import DebugContext, LoweredVariable, lowered_variables_of
from tremula.vision.report.reader import ReportReader

Ints = np.ndarray


@dataclass(frozen=True)
class VertexType:
    _reader: ReportReader
    _id: int

    @property
    def name(self) -> str:
        return self._reader.table("vertex_types")["name"][self._id]

    @property
    def size(self) -> int:
        """State bytes of one vertex, on average."""
        types = self._reader.table("vertex_types")
        return int(types["state_bytes"][self._id]) // max(1, int(types["n_vertices"][self._id]))


@dataclass(frozen=True)
class VertexInstances:
    """All vertices of one type in a compute set."""

    _reader: ReportReader
    _row: int

    @property
    def type(self) -> VertexType:
        return VertexType(
            self._reader, int(self._reader.table("vertices")["vertex_type"][self._row])
        )

    @property
    def count(self) -> int:
        return int(self._reader.table("vertices")["n_vertices"][self._row])

    @property
    def countByTile(self) -> Ints:
        """int64[n_tiles]."""
        start = self._reader.column("vertices.start")
        mine = slice(start[self._row], start[self._row + 1])
        result = np.zeros(self._reader.n_tiles, np.int64)
        result[self._reader.column("vertices.tile")[mine]] = self._reader.column("vertices.count")[
            mine
        ]
        return result


@dataclass(frozen=True)
class ComputeSet:
    _reader: ReportReader
    _id: int

    @property
    def name(self) -> str:
        """As the program calls it."""
        return self._reader.table("compute_sets")["name"][self._id]

    @property
    def vertices(self) -> list[VertexInstances]:
        """Vertex types, with how many of each."""
        rows = np.flatnonzero(self._reader.table("vertices")["compute_set"] == self._id)
        return [VertexInstances(self._reader, row) for row in rows.tolist()]

    @property
    def estimatedCyclesByTile(self) -> Ints:
        """int64[n_tiles]: compute cycles of one execution."""
        steps = np.flatnonzero(self._reader.table("steps")["compute_set"] == self._id)
        if not len(steps):
            return np.zeros(self._reader.n_tiles, np.int64)
        return self._reader.matrix("compute").row(int(steps[0]))

    def __repr__(self) -> str:
        return f"ComputeSet({self.name!r})"


@dataclass(frozen=True)
class Program:
    """A node of a program tree."""

    Type = ProgramType

    _reader: ReportReader
    _id: int

    def _of(self, column: str) -> object:
        return self._reader.table("programs")[column][self._id]

    @property
    def name(self) -> str:
        """As the program calls it."""
        return str(self._of("name"))

    @property
    def step(self) -> int:
        """The static step, or -1; not in pva."""
        return int(self._of("step"))  # pyright: ignore[reportArgumentType]

    @property
    def count(self) -> int:
        """How often a Repeat runs its body."""
        return int(self._of("n_times"))  # pyright: ignore[reportArgumentType]

    @property
    def cycles(self) -> int:
        """Cycles on the critical path, of everything in it; not in pva."""
        return int(self._of("total_cycles"))  # pyright: ignore[reportArgumentType]

    @property
    def type(self) -> ProgramType:  # pyright: ignore[reportInvalidTypeForm]
        """What kind of program it is."""
        kind = str(self._of("kind"))
        if self.step >= 0:
            kind = self._reader.table("steps")["type"][self.step]
        return ProgramType.__members__.get(kind, ProgramType.Unknown)  # pyright: ignore[reportAttributeAccessIssue]

    @property
    def children(self) -> list["Program"]:
        """The programs inside it."""
        mine = np.flatnonzero(self._reader.table("programs")["parent"] == self._id)
        return [Program(self._reader, child) for child in mine.tolist()]

    @property
    def debugContext(self) -> DebugContext | None:
        """Where in the program it was made."""
        if self.step < 0:
            return None
        return DebugContext(
            self._reader, int(self._reader.table("steps")["debug_context"][self.step])
        )

    @property
    def vars(self) -> list[LoweredVariable]:
        """Variables a step reads or writes, on all their tiles."""
        # The compiler is loaded only for questions about the tile program itself.
        from tremula.vision.pva.tile_program import variables_of_step

        if self.step < 0:
            return []
        executable = self._reader.kept_executable
        return lowered_variables_of(self._reader, variables_of_step(executable, self.step))

    @property
    def controlCodeByTile(self) -> Ints:
        """int64[n_tiles]: control code, that of children included."""
        from tremula.vision.pva.tile_program import control_code_bytes

        if self.step >= 0:
            n_bytes = control_code_bytes(self._reader.target["chip_toml"])
            takes_part = self._reader.takes_part[self.step]
            return np.repeat(n_bytes * takes_part, self._reader.n_tiles // len(takes_part))
        nothing = np.zeros(self._reader.n_tiles, np.int64)
        return sum((child.controlCodeByTile for child in self.children), nothing)

    @property
    def estimatedCyclesByTile(self) -> Ints:
        """int64[n_tiles]: of an exchange, its cycles; of a compute set, its compute."""
        if self.step < 0:
            raise AttributeError(f"a {self.type.name} has no estimatedCyclesByTile")
        name = "compute" if self.type is ProgramType.OnTileExecute else "exchange"  # pyright: ignore[reportAttributeAccessIssue]
        return self._reader.matrix(name).row(self.step)

    @property
    def codeBytesByTile(self) -> Ints:
        """int64[n_tiles]: code of the step's exchanges."""
        if self.step < 0:
            raise AttributeError(f"a {self.type.name} has no codeBytesByTile")
        from tremula.vision.pva.tile_program import exchange_code_of_step

        return exchange_code_of_step(self._reader.kept_executable, self.step)

    @property
    def computeset(self) -> ComputeSet:
        """The compute set it runs."""
        number = self._reader.table("steps")["compute_set"][self.step] if self.step >= 0 else -1
        if number < 0:
            raise AttributeError(f"a {self.type.name} has no computeset")
        return ComputeSet(self._reader, int(number))

    def accept(self, visitor: "ProgramVisitor") -> None:
        """Call the visitor's method for this program, then for its children."""
        getattr(visitor, f"visit{self.type.name}", visitor.visitDefault)(self)
        for child in self.children:
            child.accept(visitor)

    def __repr__(self) -> str:
        return f"Program({self.type.name}, {self.name!r})"


def program_of_step(reader: ReportReader, step: int) -> Program:
    """The program that a static step is."""
    return Program(reader, int(reader.table("steps")["program"][step]))


class ProgramVisitor:
    """Override `visit<Type>(self, program)` for the types you want; others go to visitDefault."""

    def __init__(self) -> None:
        """Nothing to prepare; pva's subclasses call it."""

    def visitDefault(self, program: Program) -> None:
        """Called for types without a specific method."""


@dataclass(frozen=True)
class Operation:
    """Steps that belong together, by name."""

    _reader: ReportReader
    name: str
    firstStepIndex: int
    lastStepIndex: int
    _steps: tuple[int, ...]

    @property
    def debugContext(self) -> DebugContext:
        """Where in the program it was made."""
        contexts = self._reader.table("debug_contexts")["path"]
        if self.name in contexts:
            return DebugContext(self._reader, contexts.index(self.name))
        first = self._reader.table("steps")["debug_context"][self._steps[0]]
        return DebugContext(self._reader, int(first))

    @property
    def replacedDebugContext(self) -> list[DebugContext]:
        """Nothing is outlined here, so nothing is replaced."""
        return []

    def programs(self) -> list[Program]:
        """The programs it consists of."""
        numbers = self._reader.table("steps")["program"][list(self._steps)]
        return [Program(self._reader, number) for number in numbers.tolist()]

    @property
    def vars(self) -> list[LoweredVariable]:
        """The variables it uses."""
        return [variable for program in self.programs() for variable in program.vars]

    def __repr__(self) -> str:
        return f"Operation({self.name!r}, {len(self._steps)} steps)"


class OperationAnalysis:
    """`OperationAnalysis(report).operations`: the report's steps by operation."""

    def __init__(self, report: object):
        self._reader: ReportReader = report.reader  # pyright: ignore[reportAttributeAccessIssue]
        self._names, self._operation = operation_of_step(self._reader)

    @cached_property
    def _order(self) -> tuple[Ints, Ints]:
        order = np.argsort(self._operation, kind="stable")
        return order, np.searchsorted(self._operation[order], np.arange(len(self._names) + 1))

    @property
    def operations(self) -> LazyList[Operation]:
        """All operations, the most expensive first."""
        return LazyList(len(self._names), self._make)

    def _make(self, number: int) -> Operation:
        order, start = self._order
        mine = tuple(order[start[number] : start[number + 1]].tolist())
        return Operation(self._reader, self._names[number], mine[0], mine[-1], mine)

    def columns(self) -> dict:
        """All operations at once: columns of cycles, flops, efficiency and more."""
        return operation_columns(self._reader)
