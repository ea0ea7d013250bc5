"""pva's execution: steps in order, runs, blocks and cycles per tile and chip."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tremula.vision.lazy_list import LazyList
from tremula.vision.pva.programs import ComputeSet, Program, program_of_step
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.time_totals import (
    interval_of_total,
    machine_split,
    path_of_types,
    total_cycles,
)

if TYPE_CHECKING:  # walking a timeline is compiled code, loaded on first use
    from tremula.vision.report.timeline.timeline import TimelineEntries

Ints = np.ndarray


class TotalCycles(int):
    """An int that also has `.total`: SDK versions differed, and scripts use both."""

    @property
    def total(self) -> int:
        return int(self)


@dataclass(frozen=True)
class Range:
    min: int
    max: int


@dataclass(frozen=True)
class ActiveCycles:
    cyclesFrom: Range
    cyclesTo: Range


@dataclass(frozen=True)
class StepComputeSet:
    name: str
    cyclesByTile: Ints


@dataclass(frozen=True)
class StepIpu:
    """A step on a chip."""

    _reader: ReportReader
    _entry: int
    _ipu: int

    @property
    def _at(self) -> "TimelineEntries":
        return self._reader.entries(self._entry, self._entry + 1)

    def _of(self, column: str) -> float:
        return self._reader.by_ipu(column)[int(self._at.step[0]), self._ipu].item()

    def _phase(self, name: str) -> int:
        """Cycles of a phase, of all executions the entry stands for."""
        return int(self._of(name)) * int(self._at.times[0])

    @property
    def cycles(self) -> int:
        """All five phases together; 0 if the chip takes no part."""
        at = self._at
        return int(at.end[0, self._ipu] - at.start[0, self._ipu])

    @property
    def computeCycles(self) -> int:
        """Cycles in which its slowest tile computes (this and the next four are not in pva)."""
        others = self.exchangeCycles + self.linkCycles + self.hostCycles + self.syncCycles
        return self.cycles - others  # as it ran, where data decides

    @property
    def exchangeCycles(self) -> int:
        """Cycles of exchange between its tiles."""
        return self._phase("exchange")

    @property
    def linkCycles(self) -> int:
        """Cycles of exchange with other chips."""
        return self._phase("links")

    @property
    def hostCycles(self) -> int:
        """Cycles of exchange with the host."""
        return self._phase("host")

    @property
    def syncCycles(self) -> int:
        """Cycles of sync."""
        return self._phase("sync")

    @property
    def activeCycles(self) -> ActiveCycles:
        at = self._at
        start, end = int(at.start[0, self._ipu]), int(at.end[0, self._ipu])
        return ActiveCycles(Range(start, start), Range(end, end))

    @property
    def tileBalance(self) -> float:
        return self._of("tile_balance")

    @property
    def activeTileBalance(self) -> float:
        return self._of("active_tile_balance")

    @property
    def activeTiles(self) -> int:
        return int(self._of("active_tiles"))

    @property
    def dataIn(self) -> int:
        return int(self._of("data_in")) * int(self._at.times[0])

    @property
    def dataOut(self) -> int:
        return int(self._of("data_out")) * int(self._at.times[0])


@dataclass(frozen=True)
class ExecutionStep:
    """An entry of the trace; `times` (not in pva) is more than 1 where a loop is folded."""

    _reader: ReportReader
    _entry: int

    @property
    def _step(self) -> int:
        return int(self._at.step[0])

    @property
    def _at(self) -> "TimelineEntries":
        return self._reader.entries(self._entry, self._entry + 1)

    @property
    def times(self) -> int:
        """How many executions it stands for."""
        return int(self._at.times[0])

    @property
    def stage(self) -> int:
        """The stage of a pipeline, or -1; not in pva."""
        return int(self._at.stage[0])

    @property
    def microBatch(self) -> int:
        """The micro-batch that the stage works on, or -1; not in pva."""
        return int(self._at.micro_batch[0])

    @property
    def program(self) -> Program:
        """The program that ran."""
        return program_of_step(self._reader, self._step)

    @property
    def cyclesByTile(self) -> Ints:
        """int64[n_tiles]: compute and exchange of all executions the step stands for."""
        compute, exchange = (
            self._reader.matrix(name).row(self._step) for name in ("compute", "exchange")
        )
        return (compute + exchange) * self.times

    @property
    def computeSets(self) -> list[StepComputeSet]:
        """Compute sets that ran."""
        number = int(self._reader.table("steps")["compute_set"][self._step])
        if number < 0:
            return []
        cycles = self._reader.matrix("compute").row(self._step) * self.times
        return [StepComputeSet(ComputeSet(self._reader, number).name, cycles)]

    @property
    def ipus(self) -> list[StepIpu]:
        """What each chip did meanwhile."""
        return [StepIpu(self._reader, self._entry, ipu) for ipu in range(self._reader.n_ipus)]

    def __repr__(self) -> str:
        return f"ExecutionStep({self.program!r})"


@dataclass(frozen=True)
class Microseconds:
    start: int
    end: int


@dataclass(frozen=True)
class Run:
    _reader: ReportReader
    _id: int

    def _of(self, column: str) -> int:
        return int(self._reader.table("runs")[column][self._id])

    @property
    def name(self) -> str:
        """The name of the program."""
        return self._reader.table("runs")["name"][self._id]

    @property
    def program(self) -> int:
        """The program that ran."""
        return self._of("program")

    @property
    def steps(self) -> LazyList[ExecutionStep]:
        """Its steps, in the order they ran."""
        first = self._of("first_entry")
        return LazyList(self._of("n_entries"), lambda i: ExecutionStep(self._reader, first + i))

    @property
    def microseconds(self) -> Microseconds:
        """Begin and end in microseconds."""
        return Microseconds(self._of("host_start_us"), self._of("host_end_us"))

    @property
    def cycles(self) -> int:
        """Begin and end in cycles."""
        return self._of("cycles_to") - self._of("cycles_from")


@dataclass(frozen=True)
class Block:
    """A stretch of a tile's time. The model knows every step, so each is a separate block."""

    program: Program
    tile: int
    cyclesFrom: int
    cyclesTo: int
    isCommon: bool
    isStreamCopy: bool
    isBlockFlush: bool = False
    isOverflow: bool = False


@dataclass(frozen=True)
class Execution:
    _reader: ReportReader

    def __call__(self) -> "Execution":
        """C++ writes `report.execution()`."""
        return self

    @property
    def steps(self) -> LazyList[ExecutionStep]:
        """Steps in the order they ran."""
        return LazyList(self._reader.n_entries, lambda i: ExecutionStep(self._reader, i))

    @property
    def runs(self) -> LazyList[Run]:
        """Runs of programs, one a call of the host."""
        n = len(self._reader.table("runs")["id"])
        return LazyList(n, lambda i: Run(self._reader, i))

    @property
    def totalCycles(self) -> TotalCycles:
        """Cycles from the first step to the last."""
        return TotalCycles(total_cycles(self._reader))

    @property
    def cycleInterval(self) -> Range | None:
        """Cycles between which real hardware would be, nine times in ten; not in pva.

        None in reports of versions before 0.3.
        """
        interval = interval_of_total(self._reader)
        return None if interval is None else Range(*interval)

    def blocks(self, tile: int) -> LazyList[Block]:
        """The steps that a tile's chip takes part in."""
        ipu, trace = tile // self._reader.tiles_per_ipu, self._reader.trace
        mine = np.flatnonzero(trace.end[:, ipu] > trace.start[:, ipu])
        return LazyList(len(mine), lambda i: self._block(int(mine[i]), tile, ipu))

    def _block(self, entry: int, tile: int, ipu: int) -> Block:
        at, steps = self._reader.entries(entry, entry + 1), self._reader.table("steps")
        step = int(at.step[0])
        is_stream = steps["type"][step].startswith("StreamCopy")
        return Block(
            Program(self._reader, int(steps["program"][step])),
            tile,
            int(at.start[0, ipu]),
            int(at.end[0, ipu]),
            not is_stream,
            is_stream,
        )

    def cyclesByStep(self) -> Ints:
        """int64[n_entries, n_ipus]: of all steps at once, 0 where a chip takes no part."""
        return self._reader.trace.end - self._reader.trace.start

    def cyclesByTypeName(self) -> dict[str, int]:
        """Cycles on the critical path by program type; they add up to `totalCycles`."""
        return path_of_types(self._reader)

    def cyclesByPhase(self) -> dict[str, int]:
        """Where `totalCycles` go, on average over chips: five phases and waiting; not in pva."""
        return machine_split(self._reader)
