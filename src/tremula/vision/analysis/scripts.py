"""Runs scripts whose engines leave reports."""

import gc
import json
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.options import ENVIRONMENT_VARIABLES, parse_options
from tremula.vision.report.schema import FILE_NAME
from tremula.vision.trace import recorder as trace


def reports_in(folder: Path, since_s: float = 0) -> list[Path]:
    """Report files in a folder and its subfolders, written since a time, oldest first."""
    times = {path: path.stat().st_mtime for path in folder.rglob(FILE_NAME)}
    return sorted((path for path in times if times[path] >= since_s), key=times.__getitem__)


def run_script(script: Path, arguments: Sequence[str]) -> None:
    """Run a script as `python script.py arguments` would."""
    kept_argv, kept_path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = kept_argv, kept_path


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as `python -m name arguments` would."""
    before_argv, before_path = sys.argv, list(sys.path)
    sys.argv = [name, *arguments]
    sys.path.insert(0, os.getcwd())
    try:
        if not _is_module(name):
            raise FileLoadError(
                f"there is no module {name!r}.",
                hint="start in the folder its package is in, or give the path of a Python file",
            )
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    finally:
        sys.argv, sys.path[:] = before_argv, before_path


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):  # of its package; or a relative name
        return False


@contextmanager
def reporting_to(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let engines and models in the block leave reports, and a system trace, in a folder."""
    variable = ENVIRONMENT_VARIABLES[0]
    before = os.environ.get(variable)
    parse_options()  # raises if the environment's options are wrong
    wanted = {"autoReport.all": "true", "autoReport.directory": os.fspath(folder)}
    os.environ[variable] = json.dumps({**json.loads(before or "{}"), **wanted})
    starts_trace = False
    try:
        starts_trace = trace.start_from_environment() is None
        if starts_trace:
            trace.start(folder)
        yield
        gc.collect()  # an engine writes its last report when it is collected
    finally:
        if starts_trace:
            trace.stop()
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
