"""What an application receives (`Settings`), returns (`Findings`), and says about the machine.

`modelled_engine`, `modelled_poptorch` and their siblings turn an engine, a PopTorch model or a
report into the `Modelled` of an application, and write its report if one is requested.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

    from tremula.compiler.executable.executable import Executable
    from tremula.compiler.report.report import ProgramReport
    from tremula.frontends.poptorch.executor.poplar_executor import PoplarExecutor
    from tremula.runtime.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How an application shall run."""

    tiny: bool = True  # the form of at most a minute; otherwise the form its page speaks of
    report: Path | None = None  # where to write the analyser's report, if requested
    show: Callable[[str], None] = print  # takes each line that says what is done


@dataclass(frozen=True, slots=True, kw_only=True)
class Modelled:
    """What the machine model says about a step, or a run, of an application."""

    machine: str  # the chip, "bow"; several: "4 × bow"
    cycles: int  # of one step, or of the run where there are no steps
    bytes_on_fullest_tile: int
    rate: float  # how many of `unit` the machine does in a second
    unit: str  # "images/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What an application reached."""

    results: Mapping[str, float]  # by name, with the unit in it: accuracy, error_hartree, …
    modelled: Modelled | None
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)  # loss per step, say
    picture: np.ndarray | None = None  # float[h, w], or uint8[h, w, 3]; shown on its card


def modelled_report(
    report: "ProgramReport",
    settings: Settings | None = None,
    *,
    n_items: int,
    unit: str,
    n_runs: int = 1,
) -> Modelled:
    """From a report of `n_runs` alike runs, each of `n_items` of what `unit` names."""
    executable = report.executable
    if settings is not None and settings.report is not None:
        _write(settings, executable, report)
    return _modelled(executable, report.total_cycles, n_items, unit, n_runs)


def modelled_engine(
    engine: "Engine", settings: Settings, *, n_items: int, unit: str, n_runs: int = 1
) -> Modelled:
    """From an engine that ran `n_runs` alike programs since it was loaded."""
    return modelled_report(engine.report(), settings, n_items=n_items, unit=unit, n_runs=n_runs)


def modelled_poptorch(
    model: "PoplarExecutor", settings: Settings, *, n_items: int, unit: str, n_steps: int = 1
) -> Modelled:
    """From a PopTorch model that was called: a call does `n_steps` steps of `n_items` each."""
    program = model.compiled_program()
    cycles = program.timing().total_cycles
    if settings.report is not None:
        _write(settings, program.executable, program.report())
    return _modelled(program.executable, cycles, n_items, unit, n_steps)


def modelled_optimum(
    model: "nn.Module", batch: "Mapping[str, Tensor]", settings: Settings, *, unit: str
) -> Modelled:
    """From a model of transformers: one inference on two chips, its layers split evenly."""
    import torch

    import poptorch
    from optimum.graphcore import IPUConfig
    from optimum.graphcore.modeling_utils import to_pipelined

    spread = to_pipelined(model, IPUConfig(ipus_per_replica=2))
    spread = spread.parallelize().eval()  # pyright: ignore[reportCallIssue] - see PipelineMixin
    executor = poptorch.inferenceModel(spread, spread.ipu_config.to_options(for_inference=True))
    with torch.no_grad():
        executor(**batch)
    n_rows = len(next(iter(batch.values())))
    result = modelled_poptorch(executor, settings, n_items=n_rows, unit=unit)
    executor.destroy()
    return result


def _modelled(
    executable: "Executable", cycles: int, n_items: int, unit: str, n_steps: int
) -> Modelled:
    """Items are those of all replicas together."""
    chip, n_chips = executable.target.chip, executable.target.n_ipus * executable.replication_factor
    return Modelled(
        machine=chip.name if n_chips == 1 else f"{n_chips} × {chip.name}",
        cycles=round(cycles / n_steps),
        bytes_on_fullest_tile=int(executable.analysis.memory.including_gaps.max(initial=0)),
        rate=n_items * n_steps * chip.clock_hz / cycles,
        unit=unit,
    )


def _write(settings: Settings, executable: "Executable", report: "ProgramReport") -> None:
    from tremula.vision.report.write import write_report

    assert settings.report is not None
    path = write_report(settings.report, executable, report)
    settings.show(f"The report is in {path}")
