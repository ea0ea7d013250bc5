"""Steps whose cost depends on data: what the interpreter reads and fills when it counts them.

Such a step runs its counting kernels every time, so its cycles follow the data. A *slot* is such a
step; its tiles are those its vertices or inserted copies keep busy.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tremula.codelets.spec import Codelet
from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.vertex_costs import ComputeSetCost
from tremula.compiler.report.report import CountedStep

Ints = np.ndarray


@dataclass(slots=True)
class Counts:
    """What was counted since load, all executions together, but for `last`."""

    times: Ints  # int64[n_slots]
    chips: Ints  # int64[n_slots, n_chips]: cycles of the slowest tile of each
    last: Ints  # int64[n_slot_tiles]: tile cycles of the last execution
    tiles: Ints  # int64[n_slot_tiles]: tile cycles
    busy: Ints  # the same without idle workers
    tables: Ints  # int64[n_slot_tables]: cycles of vertices that had to be counted

    def copy(self) -> "Counts":
        return Counts(*(getattr(self, name).copy() for name in self.__slots__))

    def plus(self, other: "Counts", sign: int = 1) -> "Counts":
        """Both together, or with sign -1 what was counted after the other."""
        parts = (getattr(self, n) + sign * getattr(other, n) for n in self.__slots__)
        return Counts(*parts)


@dataclass
class CountedSteps:
    """All steps of a program that are counted while they run."""

    executable: Executable
    slot_of_step: Ints = field(init=False)  # int64[n_steps], -1: the cost is known
    counts: Counts = field(init=False)

    def __post_init__(self) -> None:
        costs = self.executable.analysis.costs
        self.steps = np.flatnonzero(costs.needs_count)
        self.slot_of_step = np.full(len(costs.needs_count), -1, np.int64)
        self.slot_of_step[self.steps] = np.arange(len(self.steps))
        self.is_ready = np.ones(len(self.slot_of_step), bool)  # to run natively
        self.is_ready[self.steps] = False
        self.sets = costs.compute_set_of_step[self.steps].tolist()
        n_tables = [len(cs.tables) for cs in self.executable.compute_sets]
        self._table_start = np.concatenate(([0], np.cumsum(n_tables))).astype(np.int64)
        self._lay_out_rows([costs.compute_sets[s] for s in range(len(n_tables))])
        self._lay_out_slots([costs.compute_sets[s] for s in self.sets])

    def _lay_out_rows(self, sets: list[ComputeSetCost]) -> None:
        """Rows of the tables of counted compute sets: known cycles, and the place of the tile."""
        n = int(self._table_start[-1])
        self.kernel, self.row_first = np.zeros(n, np.int64), np.zeros(n, np.int64)
        self.is_worker = np.zeros(n, np.int64)
        known: list[Ints] = [np.empty(0, np.int64)]
        places: list[Ints] = [np.empty(0, np.int64)]
        self.tiles_of_set: dict[int, Ints] = {}
        n_rows = 0
        for number in dict.fromkeys(self.sets):
            tables, cost = self.executable.compute_sets[number].tables, sets[number]
            tiles = np.unique(
                np.concatenate([np.flatnonzero(cost.tile_cycles), *(t.tile for t in tables)])
            ).astype(np.int64)
            self.tiles_of_set[number] = tiles
            for i, (table, table_cost) in enumerate(zip(tables, cost.tables, strict=True)):
                at = int(self._table_start[number]) + i
                self.row_first[at], self.is_worker[at] = n_rows, table_cost.is_worker
                known.append(np.asarray(table_cost.cycles, np.int64))
                places.append(np.searchsorted(tiles, table.tile).astype(np.int64))
                n_rows += table.n_rows
        self.known, self.place = np.concatenate(known), np.concatenate(places)
        self.cycles = np.zeros(max(1, n_rows), np.int64)

    def _lay_out_slots(self, sets: list[ComputeSetCost]) -> None:
        tiles = [self.tiles_of_set[number] for number in self.sets]
        n_tables = [len(cost.tables) for cost in sets]
        nothing = np.empty(0, np.int64)
        self.tile_first = np.cumsum([0, *map(len, tiles)]).astype(np.int64)
        self.tile = np.concatenate([nothing, *tiles])
        self.copies = np.concatenate(
            [nothing, *(c.tile_cycles[t] for c, t in zip(sets, tiles, strict=True))]
        ).astype(np.int64)
        self.table_first = np.cumsum([0, *n_tables]).astype(np.int64)
        n_workers = self.executable.target.chip.n_workers
        most = max(map(len, tiles), default=0)
        # Scratch: cycles of each worker of a tile, and of vertices that have the tile alone.
        self.workers, self.alone = np.zeros((most, n_workers), np.int64), np.zeros(most, np.int64)
        n, n_slots = len(self.tile), len(self.steps)
        self.counts = Counts(
            times=np.zeros(n_slots, np.int64),
            chips=np.zeros((n_slots, self.executable.target.n_ipus), np.int64),
            last=np.zeros(n, np.int64),
            tiles=np.zeros(n, np.int64),
            busy=np.zeros(n, np.int64),
            tables=np.zeros(sum(n_tables), np.int64),
        )

    def prepare(self, step: int, *, has_modes: bool) -> None:
        """Compile the counting kernels of a step, which takes a while: so not before it runs."""
        number, n_workers = (
            self.sets[self.slot_of_step[step]],
            self.executable.target.chip.n_workers,
        )
        for i, record in enumerate(self.executable.compute_sets[number].tables):
            if not record.is_costed:
                codelet = self.executable.codelets[record.codelet]
                self.kernel[self._table_start[number] + i] = codelet.counted_kernel_address(
                    has_modes=has_modes and codelet.spec.rounds_to_half, n_workers=n_workers
                )
        self.is_ready[self.steps[np.array(self.sets) == number]] = True

    def _counted_codelets(self) -> Iterator[Codelet]:
        """Of all steps: C++ compiles many together as fast as one."""
        for number in dict.fromkeys(self.sets):
            for record in self.executable.compute_sets[number].tables:
                if not record.is_costed:
                    yield self.executable.codelets[record.codelet]

    def forget_kernels(self) -> None:
        """The rounding mode changed: other kernels count."""
        self.kernel[:] = 0
        self.is_ready[self.steps] = False

    def columns(self) -> tuple[Ints, ...]:
        """What the interpreter reads and fills; see interpreter/record.py."""
        counts = self.counts
        return (
            self.kernel, self.row_first, self.known, self.place, self.cycles,
            self.is_worker, self.workers, self.alone, self.tile_first, self.tile, self.copies,
            self.table_first, counts.times, counts.chips, counts.last, counts.tiles, counts.busy,
            counts.tables,
        )  # fmt: skip

    def counted(self, counts: Counts) -> dict[int, CountedStep]:
        """By step, what was counted of it."""
        result: dict[int, CountedStep] = {}
        for slot in np.flatnonzero(counts.times).tolist():
            rows = slice(self.tile_first[slot], self.tile_first[slot + 1])
            tables = slice(self.table_first[slot], self.table_first[slot + 1])
            records = self.executable.compute_sets[self.sets[slot]].tables
            result[int(self.steps[slot])] = CountedStep(
                int(counts.times[slot]),
                counts.chips[slot],
                self._on_all_tiles(slot, counts.tiles[rows]),
                self._on_all_tiles(slot, counts.busy[rows]),
                tuple(
                    -1 if table.is_costed else int(n)
                    for table, n in zip(records, counts.tables[tables], strict=True)
                ),
            )
        return result

    def _on_all_tiles(self, slot: int, values: Ints) -> Ints:
        tiles = np.zeros(self.executable.target.n_tiles, np.int64)
        tiles[self.tiles_of_set[self.sets[slot]]] = values
        return tiles
