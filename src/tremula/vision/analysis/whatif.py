"""What if the chip were different: costs from a report's tile program, or from a script run again.

A report's tile program is fixed: its tiles, vertices and what each vertex computes. On it,
everything outside the vertices is costed again: clock, sync, exchange, links, host, and memory
against a different capacity. Whatever changes the program or its vertices (tiles, workers,
arithmetic) needs the script.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tremula.base.errors import InvalidOption, MissingProfileData, suggest
from tremula.base.storage.strict_json import JsonObject
from tremula.compiler.executable.executable import Executable
from tremula.compiler.passes.cost import PhaseCycles, StepCosts, phase_tile_cycles
from tremula.compiler.passes.exchange import ExchangePhase
from tremula.compiler.passes.memory import placed_on
from tremula.compiler.program_ir import Step
from tremula.compiler.report.energy import energy_of
from tremula.compiler.report.phases import step_phases
from tremula.compiler.report.recost import recost_steps, steps_of
from tremula.hardware import Chip, chip_from_toml, single
from tremula.hardware.constant_records import quantities
from tremula.poplar.target import Target, machine_changed
from tremula.vision.analysis.scripts import reporting_to, run_script
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.report.schema import FILE_NAME
from tremula.vision.report.time_totals import PARTS, machine_split, mean_split
from tremula.vision.report.timeline.script import routes_of
from tremula.vision.report.timeline.timeline import end_of

Number = int | float
_AS_REPORTED = "as reported"
_MOST = 1e12  # of any constant: sums of cycles over a run stay within 64 bits

# Short names for sweeps.
ALIASES = {
    "tiles": "n_tiles", "sram": "n_bytes_per_tile", "clock": "clock_hz", "workers": "n_workers",
    "sync": "sync_cycles", "exchange": "exchange_bytes_per_cycle",
}  # fmt: skip
# Constants that a fixed tile program can be costed with again.
RECOSTED = (
    "clock_hz", "sync_cycles", "external_sync_cycles", "exchange_bytes_per_cycle",
    "exchange_fragment_cycles", "n_bytes_per_tile", "n_bytes_reserved_per_tile",
    "n_bytes_region0", "n_bytes_region1", "ipu_link_gbytes_per_s", "ipu_link_efficiency",
    "n_sends_in_flight", "ipu_link_latency_s", "host_link_gbytes_per_s", "host_latency_s",
    "tdp_watts", "idle_watts", "energy_pj_per_flop_half", "energy_pj_per_flop_half_float",
    "energy_pj_per_flop_float", "energy_pj_per_flop_quarter", "energy_pj_per_byte_mm",
    "energy_pj_per_byte_link", "energy_pj_per_byte_dram",
)  # fmt: skip


# Those that decide how long an exchange takes.
EXCHANGE = ("exchange_bytes_per_cycle", "exchange_fragment_cycles")
# Those that decide where on a tile things go.
MEMORY = (
    "n_bytes_per_tile", "n_bytes_reserved_per_tile", "n_bytes_region0", "n_bytes_region1",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ChipPoint:
    """One chip and what the program takes on it.

    The five phases and waiting are means over the chips of the machine; they add up to the total.
    """

    label: str
    changes: dict[str, Number]
    total_cycles: int
    microseconds: float
    compute_cycles: int
    exchange_cycles: int
    links_cycles: int
    host_cycles: int
    sync_cycles: int
    waiting_cycles: int
    joules: float
    largest_tile_bytes: int
    available_bytes: int
    overflowed_bytes: (
        int  # the most of any tile: bytes that do not fit, in all or in the region they must be in
    )

    @property
    def fits(self) -> bool:
        return self.overflowed_bytes == 0

    def as_dict(self) -> JsonObject:
        return {**asdict(self), "fits": self.fits}


def parse_sweep(texts: Sequence[str]) -> dict[str, list[Number]]:
    """`tiles=736,1472 sram=…` as constants of a chip and their values."""
    known = [*ALIASES, *quantities(Chip)]
    result: dict[str, list[Number]] = {}
    for text in (part for entry in texts for part in entry.split()):
        name, sign, values = text.partition("=")
        if not sign or name not in known:
            raise InvalidOption(
                f"cannot read the sweep {text!r}.",
                hint=f"write tiles=736,1472; {suggest(name, known)}",
            )
        result[ALIASES.get(name, name)] = [_number(name, value) for value in values.split(",")]
    return result


def _number(name: str, text: str) -> Number:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        raise InvalidOption(
            f"{name} of a sweep must be numbers, got {text!r}.", hint=f"write {name}=1,2,3"
        ) from None
    if not abs(number) <= _MOST:
        raise InvalidOption(
            f"{name} of a sweep is {text}, expected a number up to {_MOST:.0e}.",
            hint="values beyond that cannot be meant",
        )
    return int(number) if number.is_integer() else number


def points_of(sweep: Mapping[str, Sequence[Number]]) -> list[dict[str, Number]]:
    """All combinations of a sweep's values."""
    return [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]


def changed_chip(chip: Chip, changes: Mapping[str, Number]) -> Chip:
    """A chip with some constants changed.

    If its memory changes, regions keep their shares; if one region changes, the other is the rest.
    """
    rest = {"n_bytes_region0": "n_bytes_region1", "n_bytes_region1": "n_bytes_region0"}
    alone = {"n_bytes_per_tile", *rest} & changes.keys()
    if len(alone) == 1 and (name := alone.pop()) in rest:
        changes = {**changes, rest[name]: chip.n_bytes_per_tile - changes[name]}
    return chip.replace(name=f"{chip.name}, changed", **changes) if changes else chip  # pyright: ignore[reportArgumentType]


# -- from a report ---------------------------------------------------------------------------------


def whatif_report(
    report: ReportReader,
    chip: Chip | None,
    sweep: Mapping[str, Sequence[Number]],
    progress: Callable[[float], None] = lambda _: None,
) -> list[ChipPoint]:
    """The report's own chip first, then every other one, on the same tile program."""
    if chip is None and not sweep:
        raise InvalidOption(
            "nothing to vary.", hint="give --chip my.toml, or --sweep clock=1.5e9,2e9"
        )
    program, n_points = RecostableProgram(report), len(points_of(sweep))
    points = [program.as_reported()]
    for point in program.sweep(sweep, chip):
        points.append(point)
        progress((len(points) - 1) / n_points)
    return points


class RecostableProgram:
    """A report's tile program, to be costed on other chips."""

    def __init__(self, report: ReportReader):
        self.report, self.executable = report, report.kept_executable
        self.chip = self.executable.target.chip
        analysis: Any = self.executable.analysis
        self._memory, self._liveness = analysis.memory, analysis.liveness
        self._routes = routes_of(self.executable)[0]
        self._steps = steps_of(self.executable)
        self._own_phases: dict[int, np.ndarray] = {}
        self._known: dict[tuple[Number, ...], dict[str, int]] = {}

    def as_reported(self) -> ChipPoint:
        """What it takes on its own chip."""
        return self._point(self.chip, {}, _AS_REPORTED)

    def sweep(
        self, sweep: Mapping[str, Sequence[Number]], chip: Chip | None = None
    ) -> Iterator[ChipPoint]:
        """A point for every combination of values, on the program's own chip or on another."""
        base = chip or self.chip
        chips = [(changes, changed_chip(base, changes)) for changes in points_of(sweep)]
        for changes, other in chips:
            _check_recostable(self.chip, other)
            yield self._point(other, changes, label_of(changes) or other.name)

    def _point(self, chip: Chip, changes: dict[str, Number], label: str) -> ChipPoint:
        largest, overflowed = self._fullest(chip)
        parts = self._parts_of(chip)
        total = sum(parts.values())
        executed = self.report.table("steps")["executed"]
        costs = self.executable.analysis.costs  # what moves and computes stays the same
        energy = energy_of(self.executable, costs, executed, total / chip.clock_hz, chip)
        return ChipPoint(
            label=label,
            changes=changes,
            total_cycles=total,
            microseconds=total / chip.clock_hz * 1e6,
            **parts,
            joules=energy.total,
            largest_tile_bytes=largest,
            available_bytes=chip.n_bytes_available_per_tile,
            overflowed_bytes=overflowed,
        )

    def _parts_of(self, chip: Chip) -> dict[str, int]:
        """Cycles of five phases and waiting: where things lie in memory does not change them."""
        key = tuple(getattr(chip, name) for name in RECOSTED if name not in MEMORY)
        if key not in self._known:
            costs = recosted(self.executable, self._steps, chip, self._phase_cycles)
            self._known[key] = self._cycles(costs)
        return self._known[key]

    def _phase_cycles(self, phase: ExchangePhase, chip: Chip) -> np.ndarray:
        """Cycles of tiles in an exchange; those with the chip's own exchange are kept."""
        if any(getattr(chip, name) != getattr(self.chip, name) for name in EXCHANGE):
            return phase_tile_cycles(phase, chip)
        if id(phase) not in self._own_phases:  # the executable holds it, so the id stays
            self._own_phases[id(phase)] = phase_tile_cycles(phase, chip)
        return self._own_phases[id(phase)]

    def _cycles(self, costs: StepCosts) -> dict[str, int]:
        """Five phases and waiting: what ran, walked again with these costs."""
        report = self.report
        executed = report.table("steps")["executed"]
        phases = step_phases(costs, report.by_ipu("compute"))
        busy = phases * executed[:, None, None]
        # As recorded: it includes steps whose cycles were counted at run time.
        busy[:, :, 0] = report.by_ipu("total_compute")
        of_chip = busy.sum(axis=0)
        waiting = self._total(costs, phases) - of_chip.sum(axis=1)
        return _named(mean_split(np.column_stack([of_chip, waiting])))

    def _total(self, costs: StepCosts, phases: np.ndarray) -> int:
        """The engine's clock; of what was not recorded, as much as there was."""
        timeline = self.report.timeline
        is_counted = self.report.table("steps")["is_counted"].astype(bool)
        is_counted &= bool(self.report.info["timeline"]["counts_steps"])
        script = self._routes.script(phases, costs.joins, costs.takes_part, is_counted)
        walked = end_of(script, timeline.runs, timeline.events)
        return walked + int(self.report.info["estimated_cycles"])

    def _fullest(self, chip: Chip) -> tuple[int, int]:
        """Bytes of the fullest tile, and the most that do not fit on any."""
        tiles = self.report.table("tiles")
        including, overflowed = tiles["including_gaps"], tiles["overflowed"]
        if any(getattr(chip, name) != getattr(self.chip, name) for name in MEMORY):
            placement = placed_on(chip, self._memory, self._liveness)
            including, overflowed = placement.including_gaps, placement.overflowed
        return int(including.max()), max(0, int(overflowed.max()))


def _named(parts: Mapping[str, int]) -> dict[str, int]:
    """Five phases and waiting as fields of a point."""
    return {f"{name}_cycles": cycles for name, cycles in parts.items()}


def label_of(changes: Mapping[str, Number]) -> str:
    """The changes of a point, in words."""
    return ", ".join(f"{name}={value:g}" for name, value in changes.items())


def _check_recostable(own: Chip, other: Chip) -> None:
    differing = [name for name in quantities(Chip) if getattr(own, name) != getattr(other, name)]
    fixed = [name for name in differing if name not in RECOSTED]
    if fixed:
        raise MissingProfileData(
            f"a report's tile program is fixed, so {', '.join(fixed)} cannot change.",
            hint="give the script instead: tremula whatif script.py --sweep …; a report can be "
            f"costed again with other {', '.join(RECOSTED[:6])}, …",
        )


def recosted(
    executable: Executable,
    steps: Sequence[Step],
    chip: Chip,
    phase_cycles: PhaseCycles | None = None,
) -> StepCosts:
    """Costs of all steps on another chip, compute left as it is."""
    mine = executable.target
    assert mine.system is not None, "a target always gets a system"
    is_ad_hoc = not executable.machine.system_name
    n_ipus = mine.n_ipus * executable.replication_factor
    system = single(chip, n_ipus) if is_ad_hoc else mine.system.replace(chip=chip)
    target = Target(chip, mine.n_ipus, mine.tiles_per_ipu, mine.type, system)
    return recost_steps(executable, steps, target, phase_cycles)


# -- from a script ---------------------------------------------------------------------------------


def whatif_script(
    script: Path,
    arguments: Sequence[str],
    chip: Chip | None,
    sweep: Mapping[str, Sequence[Number]],
    keep: Path | None = None,
    progress: Callable[[float], None] = lambda _: None,
) -> list[ChipPoint]:
    """Run a script once for every chip and read the reports its engines leave."""
    points, combinations = [], points_of(sweep)
    with tempfile.TemporaryDirectory() as folder:
        for number, changes in enumerate(combinations):
            progress(number / len(combinations))
            where = (keep or Path(folder)) / str(number)
            with machine_changed(chip, changes), reporting_to(where):
                run_script(script, arguments)
            points.append(_reported(where, label_of(changes) or "the script's chip", changes))
    return points


def _check_took(report: ReportReader, changes: Mapping[str, Number]) -> None:
    chip = chip_from_toml(report.target["chip_toml"])
    ignored = [name for name, value in changes.items() if getattr(chip, name) != value]
    if ignored:
        raise MissingProfileData(
            f"the script made its own target and took no notice of {', '.join(ignored)}.",
            hint="let it make its device with IPUModel(…).create_device() or a DeviceManager",
        )


def _reported(folder: Path, label: str, changes: dict[str, Number]) -> ChipPoint:
    """The sum of all engines' cycles, and the fullest tile of any."""
    paths = sorted(folder.rglob(FILE_NAME))
    if not paths:
        raise MissingProfileData(
            f"the script left no report for {label}.", hint="let it make and run an Engine"
        )
    microseconds, joules, largest, available, overflowed = 0.0, 0.0, 0, 0, 0
    parts: dict[str, int] = dict.fromkeys(PARTS, 0)
    for path in paths:
        with open_report(path) as report:
            _check_took(report, changes)
            tiles = report.table("tiles")
            parts = {name: parts[name] + n for name, n in machine_split(report).items()}
            microseconds += 1e6 * report.info["total_seconds"]
            joules += report.info["joules"]
            largest = max(largest, int(tiles["including_gaps"].max()))
            available = int(report.info["available_bytes"])
            overflowed = max(overflowed, int(tiles["overflowed"].max()))
    return ChipPoint(
        label=label,
        changes=changes,
        total_cycles=sum(parts.values()),
        microseconds=microseconds,
        **_named(parts),
        joules=joules,
        largest_tile_bytes=largest,
        available_bytes=available,
        overflowed_bytes=overflowed,
    )
