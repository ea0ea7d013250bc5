"""`tremula run script.py …`: run a script as Python would, with errors printed plainly."""

import argparse
import runpy
import sys
from pathlib import Path

from tremula.base.errors import FileLoadError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", type=Path, help="a Python file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> int:
    script: Path = args.script
    if not script.is_file():
        raise FileLoadError(
            f"there is no script {str(script)!r}.", mend="give the path of a Python file"
        )
    kept_argv, kept_path = sys.argv, list(sys.path)
    sys.argv = [str(script), *args.arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        sys.argv, sys.path[:] = kept_argv, kept_path
    return 0
