"""Runs applications in their tiny form, each in a separate process, and takes the time."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tremula.garden.catalogue.manifest import Application

_MOST_SECONDS = 600  # of one application, on a busy computer


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """What came of one application."""

    application: Application
    is_right: bool
    cpu_seconds: float
    seconds: float
    output: str  # all it printed


def run_all(
    applications: Sequence[Application],
    figures_folder: Path | None = None,
    n_at_once: int = 1,
    reports_folder: Path | None = None,
) -> Iterator[RunOutcome]:
    """Run each one; figures go to `figures_folder/NAME.json`, reports to `reports_folder/NAME`.

    Outcomes come in order.
    """
    with ThreadPoolExecutor(n_at_once) as pool:
        yield from pool.map(lambda one: _run(one, figures_folder, reports_folder), applications)


def _run(application: Application, figures: Path | None, reports: Path | None) -> RunOutcome:
    command = [sys.executable, "-m", "tremula", "garden", "run", "--tiny"]
    if figures is not None:
        command += ["--figures", str(figures / f"{application.name}.json")]
    if reports is not None:
        command += ["--report", str(reports / application.name)]
    command.append(str(application.folder))
    began = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, env=_environment(), stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
        watch = threading.Timer(_MOST_SECONDS, process.kill)
        watch.start()
        # wait4 reports what this process and its children used, and no others.
        _, status, usage = os.wait4(process.pid, 0)
        watch.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode(errors="replace")
    return RunOutcome(
        application=application,
        is_right=process.returncode == 0,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        seconds=time.perf_counter() - began,
        output=text,
    )


def _environment() -> dict[str, str]:
    """Ours, with one thread: others would spin at barriers, and that is counted, too."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
