"""`tremula bench SUITE`: measure figures, print them as they come, fail if one misses its bar.

The suites are not part of the installed package: they are in the folder `benchmarks` of a checkout,
and measure the package that is installed from it (`pip install --editable`).
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tremula.base.errors import InvalidOption
from tremula.base.requirements import EXTRAS, require_for_command
from tremula.commands.arguments import input_file, output_file, positive
from tremula.commands.checkout.folder import checkout, import_from_checkout

if TYPE_CHECKING:
    from benchmarks import Figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", nargs="?", default="core", help=_suites_help())
    parser.add_argument(
        "--json", type=output_file, metavar="FILE", help="also write the figures here"
    )
    parser.add_argument(
        "--only",
        metavar="NAME",
        action="append",
        help="measure just this one, or NAME:CASE of it; several are measured in their order",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="SECONDS",
        help="leave a measurement, or a case of one, that takes longer",
    )
    parser.add_argument(
        "--against", type=input_file, metavar="FILE",
        help="with `all`: compare with a record of an earlier run, fail where a figure got worse",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    benchmarks = load_benchmarks(checkout())
    if args.suite == "all":
        return _run_all(benchmarks, args.json, args.against)
    if args.against is not None:
        raise InvalidOption(
            "`--against` compares all suites.", hint="tremula bench all --against FILE"
        )
    if args.suite in EXTRAS:  # others say what they need where they need it
        require_for_command(f"tremula bench {args.suite}", args.suite)
    figures: list[Figure] = []
    suite = benchmarks.load_suite(args.suite)
    measured = suite.measure(args.only, args.limit)
    if args.json is not None:
        measured = benchmarks.written(measured, args.json)
    benchmarks.print_figures(measured, figures)
    return 0 if all(figure.holds for figure in figures) else 1


def _run_all(benchmarks: ModuleType, record_file: Path | None, before: Path | None) -> int:
    """Every suite in a separate process, recorded in one file; compared if there is a record."""
    record = benchmarks.read_record(before) if before else None  # an error now, not in an hour
    suites: dict[str, list[Figure]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in benchmarks.SUITES:
            out = Path(folder, f"{name}.json")
            print(f"suite {name}", flush=True)
            command = [sys.executable, "-m", "tremula", "bench", name, "--json", str(out)]
            subprocess.run(command, check=False)
            suites[name] = benchmarks.read_json(out) if out.exists() else []
    now = benchmarks.Record(benchmarks.this_machine(), suites)
    if record_file is not None:
        benchmarks.write_record(now, record_file)
    n_worse = benchmarks.print_changes(record, now) if record else 0
    return 1 if n_worse or not all(f.holds for figures in suites.values() for f in figures) else 0


def load_benchmarks(root: Path) -> ModuleType:
    """The package `benchmarks` of a checkout."""
    return import_from_checkout(root, "benchmarks", "bench")


def _suites_help() -> str:
    """The names of the suites, where there are any: `--help` works from a wheel, too."""
    try:
        suites = load_benchmarks(checkout()).SUITES
    except InvalidOption:
        return "the suite to measure (core); needs a checkout"
    return f"one of: {', '.join(suites)}, all (core)"
