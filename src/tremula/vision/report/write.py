"""Writes reports: of executables, of engines, and of programs that have not run."""

import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tremula.base.columns import deflate
from tremula.base.errors import MissingPerfEstimate, MissingProfileData
from tremula.base.version import VERSION
from tremula.compiler.executable.executable import Executable
from tremula.compiler.report.report import ExecutedSteps, ProgramReport
from tremula.runtime.forecast import forecast
from tremula.vision.report.commit import commit_of
from tremula.vision.report.contents import (
    Contents,
    compute_sets,
    execution_of,
    live_blocks,
    runs_columns,
    tile_variables,
    variable_columns,
    variables,
    vertex_types,
    vertices,
)
from tremula.vision.report.control_flow import program_of_step
from tremula.vision.report.file import ReportFile
from tremula.vision.report.schema import APPLICATION, SCHEMA_VERSION, report_path
from tremula.vision.report.steps import (
    chip_columns,
    compute_rows,
    exchange_rows,
    measures_of,
    step_blocks,
    step_columns,
)
from tremula.vision.report.timeline.overview import pooled_rows
from tremula.vision.report.timeline.visits import stage_visits

if TYPE_CHECKING:  # importing an engine loads the interpreter, which writing a report does not need
    from tremula.runtime.engine import Engine

Ints = np.ndarray

# A larger tile program is left out of its report; `tremula whatif` then needs the script.
MAX_EXECUTABLE_BYTES = 256 << 20


def write_report(
    path: str | os.PathLike[str],
    executable: Executable,
    execution: ExecutedSteps | ProgramReport | None = None,
    *,
    extra: Mapping[str, object] | None = None,
    keeps_executable: bool = True,
) -> Path:
    """Write a report and return where it is; a folder gets a `profile.pop`.

    `execution` is an engine's, the report of a forecast, or None if nothing ran. `extra` is
    anything that JSON can hold, shown with the summary.
    """
    path = report_path(path)
    contents = Contents(executable, execution_of(executable, execution))
    with ReportFile(path) as file:
        _write_facts(file, contents, extra or {})
        _write_timeline(file, contents)
        live = _write_matrices(file, contents)
        _write_tables(file, contents, live)
        if keeps_executable:
            _write_executable(file, executable)
    return path


def _write_facts(file: ReportFile, contents: Contents, extra: Mapping[str, object]) -> None:
    file.facts(
        "info",
        {
            "application": APPLICATION,
            "schema_version": list(SCHEMA_VERSION),
            "created": int(time.time()),
            "command": Path(sys.argv[0]).name if sys.argv else "",
            "commit": commit_of(Path()),
            "extra": dict(extra),
            **contents.graph_facts(),
        },
    )
    file.facts("target", contents.target_facts())
    file.facts("options", contents.executable.options)
    versions = {
        "tremula": VERSION,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
    }
    file.facts("versions", versions)


def _write_tables(file: ReportFile, contents: Contents, live: tuple[Ints, Ints]) -> None:
    measures = measures_of(contents)
    file.rows("programs", contents.programs)
    file.rows("runs", runs_columns(contents))
    program_of = program_of_step(contents.programs, len(contents.executable.steps))
    file.rows("steps", step_columns(contents, program_of, measures, live))
    file.rows("steps_by_ipu", chip_columns(contents, measures))
    file.rows("compute_sets", compute_sets(contents))
    file.rows("vertex_types", vertex_types(contents))
    rows, csr = vertices(contents)
    file.rows("vertices", rows)
    file.rows("variables", variables(contents))
    file.rows("debug_contexts", contents.contexts.columns())
    file.rows("tiles", contents.tiles())
    file.rows("ipus", contents.ipus())
    file.rows("categories", contents.categories())
    file.tile_variables(*tile_variables(contents))
    for name, column in {**csr, **variable_columns(contents)}.items():
        file.column(name, column)


def _write_timeline(file: ReportFile, contents: Contents) -> None:
    """What a reader needs to walk any range again, an overview, and the stages of pipelines."""
    timeline, routes = contents.timeline, contents.routes
    for name, column in routes.columns.items():
        file.column(f"timeline.{name}", column.astype(np.int64))
    file.column("timeline.runs", timeline.runs)
    file.column("timeline.events", timeline.events)
    file.column("timeline.checkpoints", timeline.checkpoints)
    file.column("programs.busy", contents.busy_of_programs)
    overview = contents.overview
    for name in ("begin", "end", "phases", "start", "step", "times"):
        file.column(f"overview.{name}", getattr(overview, name))
    if routes.n_stages:
        visits = stage_visits(timeline, contents.chip_of_stage)
        file.column("stages.visits", visits.visits)
        file.column("stages.waits", visits.waits)
        file.column("stages.blame", visits.blame)
        file.column("stages.cycles", contents.cycles_of_stages)
        file.facts("info", {"n_visits_left_out": visits.n_left_out})


def _write_matrices(file: ReportFile, contents: Contents) -> tuple[Ints, Ints]:
    """Matrices; returns each step's temporary bytes: all tiles, and the largest."""
    n_tiles, n_steps = contents.n_tiles, len(contents.executable.steps)
    for name, rows_of in (("compute", compute_rows), ("exchange", exchange_rows)):
        rows = partial(rows_of, contents)
        file.matrix(name, map(rows, step_blocks(n_steps)), n_tiles, "cycles")
        pooled = list(pooled_rows(contents.overview, rows, n_tiles))
        file.matrix(f"trace_{name}", pooled, n_tiles, "cycles")
    sums: list[tuple[Ints, Ints]] = []
    blocks = _with_sums(live_blocks(contents), sums)
    file.matrix("live", blocks, n_tiles, "bytes", pooling="max", by_rows=True)
    memory = contents.report.memory
    file.matrix("always_live", [memory.always_live], n_tiles, "bytes")
    file.matrix("temporary", [memory.temporary], n_tiles, "bytes")
    nothing = np.zeros(0, np.int64)
    total, largest = (np.concatenate([nothing, *(s[i] for s in sums)]) for i in range(2))
    return total, largest


def _with_sums(blocks: Iterable[Ints], sums: list[tuple[Ints, Ints]]) -> Iterator[Ints]:
    for block in blocks:
        sums.append((block.sum(axis=1), block.max(axis=1)))
        yield block


def _write_executable(file: ReportFile, executable: Executable) -> None:
    """The executable's own file, unchanged: its own reader checks its hash."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "executable")
        executable.save(str(path))
        data = path.read_bytes()
    if len(data) <= MAX_EXECUTABLE_BYTES:
        file.executable(len(data), deflate(data))


# -- engines and forecasts -------------------------------------------------------------------------


def report_of_engine(
    engine: "Engine", path: str | os.PathLike[str], *, extra: Mapping[str, object] | None = None
) -> Path:
    """Write the report of what an engine has run so far; before `load`, of its program alone."""
    clock = getattr(engine, "clock", None)
    execution: ExecutedSteps | None = None if clock is None else clock.execution()
    return write_report(path, engine.executable, execution, extra=extra)


def report_of_forecast(
    executable: Executable,
    path: str | os.PathLike[str],
    *,
    program: int | str = 0,
    extra: Mapping[str, object] | None = None,
) -> Path:
    """Write the report of one run, without running it.

    Where data decides what runs, it holds only what is known beforehand: memory and single steps.
    """
    facts = dict(extra or {})
    try:
        report = forecast(executable, program)
    except (MissingPerfEstimate, MissingProfileData) as error:
        report, facts["not_foretold"] = None, error.what
    return write_report(path, executable, report, extra=facts)
