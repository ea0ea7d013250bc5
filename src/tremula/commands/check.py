"""`tremula check REPORT --budget FILE`: exit code 1 if a report exceeds its budget, for CI."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tremula.commands.progress import progress
from tremula.vision.analysis.budget import MEASURES, check_budget, load_budget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", type=Path, help="a profile.pop, or the folder it is in")
    parser.add_argument(
        "--budget",
        type=Path,
        required=True,
        help=f"a TOML file with limits for any of {', '.join(MEASURES)}",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    with progress("checking"):
        verdicts = check_budget(args.report, load_budget(args.budget))
    if args.json:
        print(json.dumps([asdict(v) for v in verdicts], indent=1))
    else:
        for verdict in verdicts:
            print(verdict)
    return 0 if all(verdict.holds for verdict in verdicts) else 1
