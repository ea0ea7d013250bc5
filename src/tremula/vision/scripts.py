"""Runs scripts whose engines leave reports."""

import gc
import json
import os
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tremula.base.options import ENVIRONMENT_VARIABLES, parse_options


def run_script(script: Path, arguments: Sequence[str]) -> None:
    """Run a script as `python script.py arguments` would."""
    kept_argv, kept_path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = kept_argv, kept_path


@contextmanager
def reporting_to(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Let every engine of the block leave a report in a folder, as the environment would ask."""
    variable = ENVIRONMENT_VARIABLES[0]
    before = os.environ.get(variable)
    parse_options()  # says what is wrong with the environment, if something is
    wanted = {"autoReport.all": "true", "autoReport.directory": os.fspath(folder)}
    os.environ[variable] = json.dumps({**json.loads(before or "{}"), **wanted})
    try:
        yield
        gc.collect()  # an engine writes its last report when it goes
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
