"""`tremula run script.py …`: run a script as Python would, with errors printed plainly."""

import argparse
import sys
import time
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.vision.analysis.scripts import reporting_to, reports_in, run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", type=Path, help="a Python file")
    parser.add_argument(
        "--report", type=Path, metavar="DIR", help="let engines leave reports here (profile.pop)"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    script: Path = args.script
    if not script.is_file():
        raise FileLoadError(
            f"there is no script {str(script)!r}.", hint="give the path of a Python file"
        )
    if args.report is None:
        run_script(script, args.arguments)
    else:
        began_s = time.time()
        with reporting_to(args.report):
            run_script(script, args.arguments)
        _tell_reports(args.report, began_s)
    return 0


def _tell_reports(folder: Path, began_s: float) -> None:
    reports = reports_in(folder, began_s)
    for path in reports:
        print(f"report: {path}", file=sys.stderr)
    if not reports:
        print(f"no report: the script ran no engine and no model ({folder})", file=sys.stderr)
