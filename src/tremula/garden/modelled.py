"""What the machine model says about an application: its step's cycles, memory, rate; its report."""

from typing import TYPE_CHECKING

import numpy as np

from tremula.garden.findings import Modelled, Settings

if TYPE_CHECKING:
    from tremula.compiler.executable.executable import Executable
    from tremula.compiler.report.report import Report
    from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor
    from tremula.poplar.target import Target
    from tremula.runtime.engine import Engine


def modelled_report(report: "Report", *, n_items: int, unit: str, n_runs: int = 1) -> Modelled:
    """From a report of `n_runs` alike runs, each of `n_items` of what `unit` names."""
    tile_bytes = report.tiles.n_bytes
    return _modelled(report.target, report.total_cycles, tile_bytes, n_items, unit, n_runs)


def modelled_engine(
    engine: "Engine", settings: Settings, *, n_items: int, unit: str, n_runs: int = 1
) -> Modelled:
    """From an engine that ran `n_runs` alike programs since it was loaded."""
    report = engine.report()
    if settings.report is not None:
        _write(settings, engine.executable, report)
    return modelled_report(report, n_items=n_items, unit=unit, n_runs=n_runs)


def modelled_poptorch(
    model: "PoplarExecutor", settings: Settings, *, n_items: int, unit: str, n_steps: int = 1
) -> Modelled:
    """From a PopTorch model that was called: a call does `n_steps` steps of `n_items` each."""
    core = model._needs_compiled().core
    executable = core.tiles.program().executable
    cycles = core.tiles.timing(has_run=core.settings.runs_on_tiles).total_cycles
    if settings.report is not None:
        from tremula.runtime.forecast import forecast

        _write(settings, executable, forecast(executable))
    tile_bytes = executable.analysis.memory.including_gaps
    return _modelled(executable.target, cycles, tile_bytes, n_items, unit, n_steps)


def _modelled(
    target: "Target", cycles: int, tile_bytes: np.ndarray, n_items: int, unit: str, n_steps: int
) -> Modelled:
    name = target.chip.name
    return Modelled(
        machine=name if target.n_ipus == 1 else f"{target.n_ipus} × {name}",
        cycles=round(cycles / n_steps),
        bytes_on_fullest_tile=int(tile_bytes.max(initial=0)),
        rate=n_items * n_steps * target.chip.clock_hz / cycles,
        unit=unit,
    )


def _write(settings: Settings, executable: "Executable", report: "Report") -> None:
    from tremula.vision.report.write import write_report

    assert settings.report is not None
    path = write_report(settings.report, executable, report)
    settings.show(f"The report is in {path}")
