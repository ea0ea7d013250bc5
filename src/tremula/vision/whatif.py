"""What if the chip were another: costs from the tile program of a report, or of a script run again.

A report's tile program is fixed: its tiles, vertices and what each vertex computes. On it,
everything outside the vertices is costed again: clock, sync, exchange, links, host, and memory
against another capacity. What would change the program or its vertices (tiles, workers, arithmetic)
needs the script.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np

from tremula.base.errors import InvalidOption, MissingProfileData, suggest
from tremula.compiler.cost import StepCosts, recost_steps
from tremula.compiler.executable import Executable
from tremula.hardware import Chip, chip_from_toml, single
from tremula.hardware.facts import quantities
from tremula.poplar.target import Target, machine_changed
from tremula.vision.report_reader import ReportReader, open_report
from tremula.vision.schema import FILE_NAME
from tremula.vision.scripts import reporting_to, run_script

Number = int | float
_AS_REPORTED = "as reported"

# Short names of a sweep.
ALIASES = {
    "tiles": "n_tiles", "sram": "n_bytes_per_tile", "clock": "clock_hz", "workers": "n_workers",
    "sync": "sync_cycles", "exchange": "exchange_bytes_per_cycle",
}  # fmt: skip
# Constants that a fixed tile program can be costed with again.
RECOSTED = (
    "clock_hz", "sync_cycles", "external_sync_cycles", "exchange_bytes_per_cycle",
    "exchange_fragment_cycles", "n_bytes_per_tile", "n_bytes_reserved_per_tile",
    "n_bytes_region0", "n_bytes_region1", "ipu_link_gbytes_per_s", "ipu_link_efficiency",
    "ipu_link_packet_bytes", "ipu_link_latency_s", "host_link_gbytes_per_s", "host_latency_s",
    "tdp_watts", "energy_pj_per_flop_half",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Point:
    """One chip and what the program takes on it."""

    label: str
    changes: dict[str, Number]
    total_cycles: int
    microseconds: float
    largest_tile_bytes: int
    available_bytes: int
    fits: bool


def parse_sweep(texts: Sequence[str]) -> dict[str, list[Number]]:
    """`tiles=736,1472 sram=…` as constants of a chip and their values."""
    known = [*ALIASES, *quantities(Chip)]
    found: dict[str, list[Number]] = {}
    for text in (part for given in texts for part in given.split()):
        name, sign, values = text.partition("=")
        if not sign or name not in known:
            raise InvalidOption(
                f"cannot read the sweep {text!r}.",
                mend=f"write tiles=736,1472; {suggest(name, known)}",
            )
        found[ALIASES.get(name, name)] = [_number(name, value) for value in values.split(",")]
    return found


def _number(name: str, text: str) -> Number:
    try:
        number = float(text.replace("_", ""))
    except ValueError:
        raise InvalidOption(
            f"{name} of a sweep must be numbers, got {text!r}.", mend=f"write {name}=1,2,3"
        ) from None
    return int(number) if number.is_integer() and "e" not in text.lower() else number


def points_of(sweep: Mapping[str, Sequence[Number]]) -> list[dict[str, Number]]:
    """All combinations of a sweep's values."""
    return [dict(zip(sweep, values, strict=True)) for values in product(*sweep.values())]


def changed_chip(chip: Chip, changes: Mapping[str, Number]) -> Chip:
    """A chip with other constants; with other memory, its regions keep their shares."""
    return chip.replace(name=f"{chip.name}, changed", **changes) if changes else chip  # pyright: ignore[reportArgumentType]


# -- from a report ---------------------------------------------------------------------------------


def whatif_report(
    report: ReportReader, chip: Chip | None, sweep: Mapping[str, Sequence[Number]]
) -> list[Point]:
    """The report's own chip first, then every other one, on the same tile program."""
    executable = report.executable()
    own = executable.target.chip
    executed = report.table("steps")["executed"]
    base = chip or own
    chips = [(dict(changes), changed_chip(base, changes)) for changes in points_of(sweep)]
    if chip is None and not sweep:
        raise InvalidOption(
            "nothing to vary.", mend="give --chip my.toml, or --sweep clock=1.5e9,2e9"
        )
    points = [_recosted(report, executable, own, {}, executed, _AS_REPORTED)]
    for changes, other in chips:
        _check_recostable(own, other)
        label = ", ".join(f"{k}={v:g}" for k, v in changes.items()) or other.name
        points.append(_recosted(report, executable, other, changes, executed, label))
    return points


def _check_recostable(own: Chip, other: Chip) -> None:
    differing = [name for name in quantities(Chip) if getattr(own, name) != getattr(other, name)]
    fixed = [name for name in differing if name not in RECOSTED]
    if fixed:
        raise MissingProfileData(
            f"a report's tile program is fixed, so {', '.join(fixed)} cannot change.",
            mend="give the script instead: tremula whatif script.py --sweep …; a report can be "
            f"costed again with other {', '.join(RECOSTED[:6])}, …",
        )


def _recosted(
    report: ReportReader,
    executable: Executable,
    chip: Chip,
    changes: dict[str, Number],
    executed: np.ndarray,
    label: str,
) -> Point:
    costs = recosted(executable, chip)
    counted = report.by_ipu("compute")  # includes steps that were counted while they ran
    cycles = costs.sync + costs.exchange + counted
    total = _total_cycles(report, costs, cycles, executed)
    largest, available = (
        report.table("tiles")["including_gaps"].max(),
        report.info["available_bytes"],
    )
    largest += report.table("tiles")["overflowed"].max()
    if changes or label != _AS_REPORTED:
        available = chip.n_bytes_available_per_tile
    return Point(
        label, changes, total, total / chip.clock_hz * 1e6, int(largest), int(available),
        bool(largest <= available),
    )  # fmt: skip


def _total_cycles(
    report: ReportReader, costs: StepCosts, cycles: np.ndarray, executed: np.ndarray
) -> int:
    """Of the slowest chip. Chips that wait for each other wait as long as they did."""
    takes_part = costs.is_active | costs.joins[:, None]
    busy = (cycles * takes_part * executed[:, None]).sum(axis=0)
    return int((busy + report.table("ipus")["waiting"]).max())


def recosted(executable: Executable, chip: Chip) -> StepCosts:
    """Costs of all steps on another chip, compute left as it is."""
    mine = executable.target
    assert mine.system is not None, "a target always gets a system"
    is_ad_hoc = not executable.machine.system_name
    system = single(chip, mine.system.n_ipus) if is_ad_hoc else replace(mine.system, chip=chip)
    target = Target(chip, mine.n_ipus, mine.tiles_per_ipu, mine.type, system)
    return recost_steps(executable, target)


# -- from a script ---------------------------------------------------------------------------------


def whatif_script(
    script: Path,
    arguments: Sequence[str],
    chip: Chip | None,
    sweep: Mapping[str, Sequence[Number]],
    keep: Path | None = None,
) -> list[Point]:
    """Run a script once for every chip and read the reports its engines leave."""
    points = []
    with tempfile.TemporaryDirectory() as folder:
        for number, changes in enumerate(points_of(sweep)):
            where = (keep or Path(folder)) / str(number)
            with machine_changed(chip, changes), reporting_to(where):
                run_script(script, arguments)
            label = ", ".join(f"{k}={v:g}" for k, v in changes.items()) or "the script's chip"
            points.append(_reported(where, label, dict(changes)))
    return points


def _check_took(report: ReportReader, changes: Mapping[str, Number]) -> None:
    chip = chip_from_toml(report.target["chip_toml"])
    ignored = [name for name, value in changes.items() if getattr(chip, name) != value]
    if ignored:
        raise MissingProfileData(
            f"the script made its own target and took no notice of {', '.join(ignored)}.",
            mend="let it make its device with IPUModel(…).create_device() or a DeviceManager",
        )


def _reported(folder: Path, label: str, changes: dict[str, Number]) -> Point:
    """The sum of all engines' cycles, and the fullest tile of any."""
    paths = sorted(folder.rglob(FILE_NAME))
    if not paths:
        raise MissingProfileData(
            f"the script left no report for {label}.", mend="let it make and run an Engine"
        )
    total, microseconds, largest, available, fits = 0, 0.0, 0, 0, True
    for path in paths:
        with open_report(path) as report:
            _check_took(report, changes)
            total += int(report.info["total_cycles"])
            microseconds += 1e6 * report.info["total_seconds"]
            largest = max(largest, int(report.table("tiles")["including_gaps"].max()))
            available = int(report.info["available_bytes"])
            fits = fits and not bool(report.table("tiles")["overflowed"].any())
    return Point(label, changes, total, microseconds, largest, available, fits)
