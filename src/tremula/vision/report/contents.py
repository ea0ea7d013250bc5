"""What a report is made of: an executable and what ran of it; facts, tiles, chips, runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tremula.compiler.executable.executable import Analysis, Executable
from tremula.compiler.passes.memory import CATEGORIES
from tremula.compiler.report.report import Execution, Report, make_report
from tremula.hardware import chip_to_toml, tile_positions
from tremula.runtime.run_log import RunRecord
from tremula.vision.report.contexts import Contexts

Ints = np.ndarray
Columns = dict[str, Sequence[object] | Ints]


def execution_of(executable: Executable, given: Execution | Report | None) -> Execution:
    """What ran: as it was given, out of a forecast's report, or nothing."""
    costs = _analysis(executable).costs
    if isinstance(given, Execution):
        return given
    if isinstance(given, Report):
        steps = given.steps
        return Execution(steps.executed, given.cycles_of_chip, steps.compute, steps.is_known, {})
    n_steps, n_chips = costs.sync.shape
    nothing, chips = np.zeros(n_steps, np.int64), np.zeros(n_chips, np.int64)
    return Execution(nothing, chips, costs.compute, ~costs.needs_count, {})


def _analysis(executable: Executable) -> Analysis:
    return executable.analysis


@dataclass(frozen=True)
class Contents:
    """Everything a report file holds, table by table."""

    executable: Executable
    execution: Execution

    @cached_property
    def analysis(self) -> Analysis:
        return _analysis(self.executable)

    @cached_property
    def report(self) -> Report:
        return make_report(self.executable, self.execution)

    @cached_property
    def contexts(self) -> Contexts:
        return Contexts()

    @property
    def n_chips(self) -> int:
        return self.executable.target.n_ipus

    @property
    def n_tiles(self) -> int:
        return self.executable.target.n_tiles

    @cached_property
    def instruction_of_step(self) -> Ints:
        found = np.full(len(self.executable.steps), -1, np.int64)
        has_step = self.executable.step_of >= 0
        found[self.executable.step_of[has_step]] = np.flatnonzero(has_step)
        return found

    # -- facts -------------------------------------------------------------------------------------

    def graph_facts(self) -> dict[str, object]:
        report = self.report
        return {
            "has_run": report.has_run,
            "total_cycles": report.total_cycles if report.has_run else 0,
            "total_seconds": report.total_seconds if report.has_run else 0.0,
            "program_names": list(report.program_names),
            "n_vertices": report.n_vertices,
            "n_edges": report.n_edges,
            "n_variables": report.n_variables,
            "n_compute_sets": report.n_compute_sets,
            "n_steps": len(self.executable.steps),
            "standing_cycles": report.standing_cycles,
            "available_bytes": report.memory.available_bytes,
        }

    def target_facts(self) -> dict[str, object]:
        target, chip = self.executable.target, self.executable.target.chip
        return {
            "chip": chip.name,
            "arch": chip.arch,
            "type": target.type.value,
            "system": self.executable.machine.system_name,
            "n_ipus": target.n_ipus,
            "tiles_per_ipu": target.tiles_per_ipu,
            "n_tiles": target.n_tiles,
            "n_replicas": self.executable.replication_factor,
            "n_bytes_per_tile": chip.n_bytes_per_tile,
            "available_bytes_per_tile": chip.n_bytes_available_per_tile,
            "n_workers": chip.n_workers,
            "clock_hz": chip.clock_hz,
            "sync_cycles": chip.sync_cycles,
            "exchange_bytes_per_cycle": chip.exchange_bytes_per_cycle,
            "flops_per_cycle_half": chip.flops_per_cycle_half_half,
            "flops_per_cycle_half_float": chip.flops_per_cycle_half_float,
            "flops_per_cycle_float": chip.flops_per_cycle_float_float,
            "flops_per_cycle_vector_half": chip.flops_per_cycle_vector_half,
            "flops_per_cycle_vector_float": chip.flops_per_cycle_vector_float,
            "chip_toml": chip_to_toml(chip),
        }

    # -- tiles, chips, categories ------------------------------------------------------------------

    def tiles(self) -> Columns:
        target, memory, tiles = self.executable.target, self.report.memory, self.report.tiles
        x, y = tile_positions(target.chip)
        on_chip = np.arange(self.n_tiles) % target.tiles_per_ipu
        peak = memory.peak_at
        step_of = np.append(self.executable.step_of, -1)
        return {
            "replica": np.zeros(self.n_tiles, np.int64),
            "ipu": np.arange(self.n_tiles) // target.tiles_per_ipu,
            "tile": np.arange(self.n_tiles),
            "x_mm": x[on_chip],
            "y_mm": y[on_chip],
            "always_live": tiles.n_bytes_always_live,
            "temporary": tiles.n_bytes_temporary,
            "excluding_gaps": memory.excluding_gaps,
            "including_gaps": memory.including_gaps,
            "region0": memory.placement.region0,
            "region1": memory.placement.region1,
            "overflowed": memory.placement.overflowed,
            "peak_instruction": peak,
            "peak_step": step_of[peak],
            "compute": tiles.compute,
            "busy": tiles.busy,
            "exchange": tiles.exchange,
        }

    def ipus(self) -> Columns:
        costs, ran = self.analysis.costs, self.execution
        takes_part = (costs.is_active | costs.joins[:, None]) * ran.executed[:, None]
        sums = [
            (part * takes_part).sum(axis=0) for part in (ran.compute, costs.exchange, costs.sync)
        ]
        return {
            "replica": np.zeros(self.n_chips, np.int64),
            "ipu": np.arange(self.n_chips),
            "cycles": ran.cycles_of_chip,
            "compute": sums[0],
            "exchange": sums[1],
            "sync": sums[2],
            "waiting": ran.cycles_of_chip - sum(sums),
        }

    def categories(self) -> Columns:
        memory = self.report.memory
        return {
            "id": np.arange(len(CATEGORIES)),
            "name": CATEGORIES,
            "always_live": memory.always_live.sum(axis=1),
            "temporary": memory.temporary.sum(axis=1),
        }


def runs_columns(runs: Sequence[RunRecord], first_entry: Ints, n_entries: Ints) -> Columns:
    return {
        "id": np.arange(len(runs)),
        "program": [r.program for r in runs],
        "name": [r.name for r in runs],
        "first_entry": first_entry,
        "n_entries": n_entries,
        "cycles_from": [r.cycles_from for r in runs],
        "cycles_to": [r.cycles_to for r in runs],
        "host_start_us": [r.host_start_us for r in runs],
        "host_end_us": [r.host_end_us for r in runs],
    }
