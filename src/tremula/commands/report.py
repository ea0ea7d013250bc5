"""`tremula report REPORT VIEW`: a report as text or JSON."""

import argparse
import json

from tremula.commands.arguments import one_of, whole
from tremula.commands.progress import progress
from tremula.commands.reports.remote_reports import local_report
from tremula.vision.analysis.summary import VIEWS, memory
from tremula.vision.analysis.text_views import text_of_view
from tremula.vision.analysis.traffic import traffic
from tremula.vision.report.reader import ReportReader, open_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("report", help="a profile.pop, the folder it is in, or host:path (by SSH)")
    parser.add_argument(
        "view", nargs="?", default="summary", type=one_of(VIEWS, "view"),
        help=f"one of: {', '.join(VIEWS)} (summary)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--tile", type=whole(0), help="memory: what this tile holds")
    parser.add_argument(
        "--step", type=whole(0), help="traffic: of this step, not of everything that ran"
    )
    parser.add_argument("--limit", type=whole(0), default=40, help="rows of a table (40); 0 = all")


def run(args: argparse.Namespace) -> int:
    with local_report(args.report) as path, open_report(path) as report:
        with progress("reading"):
            result = _view(report, args)
        if args.json:
            print(json.dumps(result, indent=1))
        else:
            print(text_of_view(args.view, result, args.limit))
    return 0


def _view(report: ReportReader, args: argparse.Namespace) -> object:
    if args.view == "memory":
        return memory(report, args.tile)
    if args.view == "traffic":
        return traffic(report, args.step)
    return VIEWS[args.view](report)
