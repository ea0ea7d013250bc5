"""Joules of what ran: what chips draw anyway, and what flops and bytes cost on top of it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import StepCosts
from tremula.compiler.passes.exchange import ExchangePhase
from tremula.compiler.program_ir import HOST_KINDS
from tremula.compiler.report.intervals import energy_interval
from tremula.hardware import Chip, Fact

Ints = np.ndarray
PARTS = ("idle", "compute", "exchange", "links", "outside")
# The constants each part rests on; its provenance is that of the least certain one.
_CONSTANTS = {
    "idle": ("idle_watts",),
    "compute": ("energy_pj_per_flop_half", "energy_pj_per_flop_float"),
    "exchange": ("energy_pj_per_byte_mm", "die_area_mm2"),
    "links": ("energy_pj_per_byte_link",),
    "outside": ("energy_pj_per_byte_dram",),
}
_CERTAINTY = ("stated", "derived", "fitted", "yours", "guessed")


@dataclass(frozen=True, slots=True)
class Energy:
    """Joules of everything that ran, on all chips of all replicas, by part.

    `idle` is what the chips draw while they are on, whatever they do; the others are dynamic:
    `compute` by flops, `exchange` by bytes over the chip, `links` by bytes over each link,
    `outside` by bytes of hosts and streaming memory.
    """

    idle: float
    compute: float
    exchange: float
    links: float
    outside: float
    seconds: float
    n_chips: int
    provenances: dict[str, str]  # of each part: stated, derived, guessed or yours

    @property
    def total(self) -> float:
        return sum(getattr(self, part) for part in PARTS)

    @property
    def watts(self) -> float:
        """Mean power of all chips."""
        return self.total / self.seconds if self.seconds else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Joules between which a measurement would be, nine times in ten.

        From powers that were stated of machines under load; no program's energy was published.
        """
        return energy_interval(self.total)

    @property
    def guessed_share(self) -> float:
        """The part of the total that rests on guesses."""
        guessed = sum(getattr(self, p) for p, s in self.provenances.items() if s == "guessed")
        return guessed / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """Bytes of everything that ran, of all replicas: between tiles, over links, and outside."""

    inside: int
    links: int
    outside: int


def moved_bytes(executable: Executable, costs: StepCosts, executed: Ints) -> MovedBytes:
    """What a program moved whose step i ran executed[i] times."""
    n_replicas = executable.replication_factor
    inside, outside = _bytes_of_steps(executable)
    assert executable.target.system is not None, "a target always gets a system"
    on_links = costs.link_loads.totals(executed, len(executable.target.system.links)).sum()
    return MovedBytes(
        n_replicas * int(executed @ inside), int(on_links), n_replicas * int(executed @ outside)
    )


def energy_of(
    executable: Executable, costs: StepCosts, executed: Ints, seconds: float, chip: Chip
) -> Energy:
    """The energy of a program whose step i ran executed[i] times, in `seconds` in all."""
    n_replicas = executable.replication_factor
    n_chips = executable.target.n_ipus * n_replicas
    moved = moved_bytes(executable, costs, executed)
    picojoules = n_replicas * float(executed @ _step_picojoules(costs, chip))
    moved_mm = moved.inside * mean_way_mm(chip)
    return Energy(
        idle=chip.idle_watts * seconds * n_chips,
        compute=picojoules * 1e-12,
        exchange=moved_mm * chip.energy_pj_per_byte_mm * 1e-12,
        links=moved.links * chip.energy_pj_per_byte_link * 1e-12,
        outside=moved.outside * chip.energy_pj_per_byte_dram * 1e-12,
        seconds=seconds,
        n_chips=n_chips,
        provenances={part: _provenance(chip, names) for part, names in _CONSTANTS.items()},
    )


def mean_way_mm(chip: Chip) -> float:
    """Between two places of a square die, at random: two thirds of its side."""
    return 2 / 3 * float(np.sqrt(chip.die_area_mm2))


def _step_picojoules(costs: StepCosts, chip: Chip) -> np.ndarray:
    """float64[n_steps]: the flops of each step at the energy of the unit that computes them."""
    of_set = np.array([sum(_table_picojoules(s.tables, chip)) for s in costs.compute_sets] + [0.0])
    return of_set[costs.compute_set_of_step]  # -1, no compute set, is the last


def _table_picojoules(tables: tuple, chip: Chip) -> Iterator[float]:
    for table in tables:
        if table.n_flops:
            yield table.n_flops * flop_picojoules(chip, table.n_flops / max(1, table.peak_cycles))


def flop_picojoules(chip: Chip, flops_per_cycle: float) -> float:
    """Energy of one flop, on the unit whose peak rate is nearest."""
    units = (
        (chip.flops_per_cycle_quarter_half, chip.energy_pj_per_flop_quarter),
        (chip.flops_per_cycle_half_half, chip.energy_pj_per_flop_half),
        (chip.flops_per_cycle_vector_half, chip.energy_pj_per_flop_half),
        (chip.flops_per_cycle_half_float, chip.energy_pj_per_flop_half_float),
        (chip.flops_per_cycle_float_float, chip.energy_pj_per_flop_float),
        (chip.flops_per_cycle_vector_float, chip.energy_pj_per_flop_float),
    )
    known = [(rate, energy) for rate, energy in units if rate and energy]
    # Of equal rates the last, which takes more, counts.
    return min(reversed(known), key=lambda unit: abs(np.log(unit[0] / flops_per_cycle)))[1]


def _bytes_of_steps(executable: Executable) -> tuple[Ints, Ints]:
    """int64[n_steps] each: bytes that tiles receive from tiles, and bytes from or to outside."""
    exchanges = executable.analysis.exchanges
    of_row = np.array(
        [_received(moved.before) + _received(moved.after) for moved in exchanges.distinct] + [0],
        np.int64,
    )
    sent = np.array([_sent(moved.before) for moved in exchanges.distinct] + [0], np.int64)
    row = exchanges.row_of_step  # -1, nothing moves, is the last
    is_outside = np.array([step.kind in HOST_KINDS for step in executable.steps], bool)
    inside = np.where(is_outside, 0, of_row[row])
    return inside, np.where(is_outside, of_row[row] + sent[row], 0)


def _received(phase: ExchangePhase | None) -> int:
    return 0 if phase is None else int(phase.received.sum())


def _sent(phase: ExchangePhase | None) -> int:
    return 0 if phase is None else int(phase.sent.sum())


def _provenance(chip: Chip, names: tuple[str, ...]) -> str:
    facts: list[Fact] = [chip.facts[name] for name in names]
    return max((fact.provenance for fact in facts), key=_CERTAINTY.index)
