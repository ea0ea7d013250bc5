"""Reports that options or `tremula run --report` ask for, left by the first run of a program."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from tremula.base.options import parse_options
from tremula.runtime.auto_report import numbered_folder, report_folder

LOG = logging.getLogger("tremula")


def leave_report(
    name: str, engine_options: Mapping[str, object], write: Callable[[Path], object]
) -> None:
    """Call `write(folder)` if options or the environment ask for reports.

    The folder is named after the program. A program that has no report, because it does not fit or
    holds what tiles cannot do, is logged: it has run already, and continues.
    """
    root = report_folder(parse_options(engine_options))
    if root is None:
        return
    folder = numbered_folder(root / name)
    try:
        write(folder)
    except Exception as error:  # noqa: BLE001 - whatever the tile compiler finds wrong with it
        LOG.warning("no report of %s in %s: %s", name, folder, error)
