"""A compiled program costed on other chips of the same design: nothing is built or planned again.

What a program moves and computes does not depend on the constants that are fitted, with two
exceptions that are followed here: cycles of copies within tiles, and latencies of the exchange.
A latency is that of a tile's longest path; which path is longest is taken from the chip that the
program was compiled for, so far changes of a path's parts are followed along that path.
"""

from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from tremula.compiler.passes.cost import (
    CostedMachine,
    StepCosts,
    cost_steps,
    cost_with,
    tile_of_predicate,
)
from tremula.compiler.passes.exchange import (
    ExchangePhase,
    StepExchange,
    StepExchanges,
    exchanges_of,
)
from tremula.compiler.passes.on_tile_copies import LOAD_AND_STORE, TileCopies
from tremula.compiler.passes.vertex_costs import ComputeSetCost
from tremula.compiler.program_ir import LoweredPrograms
from tremula.hardware import Chip
from tremula.poplar.target import Target
from tremula.validate.timing import Timing, timing_of

# Constants that decide which of a tile's paths is the longest one.
PATH_CONSTANTS = (
    "exchange_latency_cycles_per_row",
    "exchange_latency_cycles_per_column",
    "exchange_latency_cycles_across",
)
Ints = np.ndarray
Columns = tuple[tuple[Ints | None, Ints | None], ...]  # of each exchange, before and after


class RecostableLowering:
    """A lowered program, its exchanges on its own chip, and its cost on any similar chip."""

    def __init__(self, programs: LoweredPrograms):
        self.programs = programs
        self.chip = programs.graph.target.chip
        self._exchanges = exchanges_of(programs)
        self._sets = cost_steps(programs, self._exchanges).compute_sets
        self._slopes: dict[str, Columns] = {}

    def timing_on(self, chip: Chip) -> Timing:
        """What the program takes on a chip that differs in constants of cost alone."""
        target = _target_on(chip, self.programs.graph.target)
        graph = replace(self.programs.graph, target=target)
        programs = replace(self.programs, graph=graph)
        return timing_of(programs, self._costs_on(target))

    def _costs_on(self, target: Target) -> StepCosts:
        exchanges = self._exchanges_on(target.chip)
        graph = self.programs.graph
        sets = tuple(
            self._set_with_copies(number, cost, exchanges) for number, cost in enumerate(self._sets)
        )
        return cost_with(
            CostedMachine(target, graph.replication_factor),
            self.programs.steps,
            exchanges,
            sets,
            partial(tile_of_predicate, graph.tile_map),
        )

    def _set_with_copies(
        self, number: int, cost: ComputeSetCost, exchanges: StepExchanges
    ) -> ComputeSetCost:
        """A compute set whose copies within tiles take another time."""
        row = int(exchanges.row_of_set[number])
        own, other = self._exchanges.distinct[row], exchanges.distinct[row]
        further = [
            new.cycles - old.cycles
            for old, new in ((own.gather, other.gather), (own.scatter, other.scatter))
            if old is not None and new is not None and old is not new
        ]
        if not further:
            return cost
        change = np.sum(further, axis=0)
        return replace(
            cost, tile_cycles=cost.tile_cycles + change, busy_cycles=cost.busy_cycles + change
        )

    # -- exchange and copies -----------------------------------------------------------------------

    def _exchanges_on(self, chip: Chip) -> StepExchanges:
        own = self.chip
        more = chip.exchange_latency_cycles - own.exchange_latency_cycles
        further = {
            name: getattr(chip, name) - getattr(own, name)
            for name in PATH_CONSTANTS
            if getattr(chip, name) != getattr(own, name)
        }
        slopes = [(change, self._slopes_of(name)) for name, change in further.items()]
        distinct = []
        for row, one in enumerate(self._exchanges.distinct):
            before, after = (
                _with_latency(phase, more, [(change, of[row][side]) for change, of in slopes])
                for side, phase in enumerate((one.before, one.after))
            )
            gather, scatter = (_copies_on(c, own, chip) for c in (one.gather, one.scatter))
            distinct.append(
                replace(one, before=before, after=after, gather=gather, scatter=scatter)
            )
        return replace(self._exchanges, distinct=tuple(distinct))

    def _slopes_of(self, name: str) -> Columns:
        """By how much latencies grow with one constant, along the longest paths."""
        if name not in self._slopes:
            chip = self.chip.replace(**{name: getattr(self.chip, name) + 1})
            target = _target_on(chip, self.programs.graph.target)
            graph = replace(self.programs.graph, target=target)
            other = exchanges_of(replace(self.programs, graph=graph))
            pairs = zip(self._exchanges.distinct, other.distinct, strict=True)
            self._slopes[name] = tuple(_latency_change(old, new) for old, new in pairs)
        return self._slopes[name]


@lru_cache(maxsize=1024)  # a row is tried on some eighty chips, on few sizes of machines
def _target_on(chip: Chip, own: Target) -> Target:
    return Target(chip, own.n_ipus, own.tiles_per_ipu, own.type)


def _latency_change(old: StepExchange, new: StepExchange) -> tuple[Ints | None, Ints | None]:
    before, after = (
        None if a is None or b is None else b.latency - a.latency
        for a, b in ((old.before, new.before), (old.after, new.after))
    )
    return before, after


def _with_latency(
    phase: ExchangePhase | None, more: int, slopes: list[tuple[int, Ints | None]]
) -> ExchangePhase | None:
    if phase is None or not (more or slopes):
        return phase
    latency = phase.latency + more * (phase.latency > 0)
    for change, slope in slopes:
        if slope is not None:
            latency = latency + change * slope
    return replace(phase, latency=np.maximum(latency, 0))


def _copies_on(copies: TileCopies | None, own: Chip, chip: Chip) -> TileCopies | None:
    """Copies within tiles on another chip; `copies_of_pieces` has the rule."""
    names = ("on_tile_copy_setup_cycles", "one_word_copy_cycles", "memcpy_bytes_per_cycle")
    if copies is None or all(getattr(own, n) == getattr(chip, n) for n in names):
        return copies
    slots, n = LOAD_AND_STORE * own.n_workers, copies.n_copies
    # Cycles are the smaller of two growing functions of accesses, so accesses follow from them.
    by_all = copies.cycles - own.on_tile_copy_setup_cycles
    by_one = (copies.cycles - own.one_word_copy_cycles * n) // slots + n
    accesses = np.maximum(by_all, by_one)
    further = (accesses - n) * own.memcpy_bytes_per_cycle / chip.memcpy_bytes_per_cycle
    further = np.ceil(further).astype(np.int64)
    all_together = n + further + chip.on_tile_copy_setup_cycles
    one_by_one = chip.one_word_copy_cycles * n + slots * further
    cycles = np.where(n > 0, np.minimum(all_together, one_by_one), 0)
    return replace(copies, cycles=cycles)
