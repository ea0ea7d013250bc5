"""`tremula run script.py …`: run a script as Python would, with errors printed plainly."""

import argparse
import sys
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.vision.schema import report_path
from tremula.vision.scripts import reporting_to, run_script


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
            f"there is no script {str(script)!r}.", mend="give the path of a Python file"
        )
    if args.report is None:
        run_script(script, args.arguments)
    else:
        with reporting_to(args.report):
            run_script(script, args.arguments)
        print(f"report: {report_path(args.report)}", file=sys.stderr)
    return 0
