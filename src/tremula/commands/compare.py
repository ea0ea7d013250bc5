"""`tremula compare A B`: what differs between two reports, and the largest causes in words."""

import argparse
import json

from tremula.commands.arguments import whole
from tremula.commands.progress import progress
from tremula.commands.reports.remote_reports import local_report
from tremula.vision.analysis.compare import compare
from tremula.vision.analysis.text_views import printable, table
from tremula.vision.report.reader import open_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", help="a profile.pop, the folder it is in, or host:path (by SSH)")
    parser.add_argument("after", help="the other one")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--limit", type=whole(0), default=20, help="rows of a table (20); 0 = all")


def run(args: argparse.Namespace) -> int:
    with (
        local_report(args.before) as first,
        local_report(args.after) as second,
        open_report(first) as before,
        open_report(second) as after,
        progress("comparing"),
    ):
        result = compare(before, after)
    if args.json:
        print(json.dumps(result, indent=1))
        return 0
    totals: dict = result["totals"]  # pyright: ignore[reportAssignmentType]
    rows = [(n.replace("_", " "), *_columns(pair)) for n, pair in totals.items()]
    print(table(("total", "before", "after", "difference", "%"), rows))
    causes: list[str] = result["causes"]  # pyright: ignore[reportAssignmentType]
    print("\nLargest causes:" if causes else "\nNothing else differs.")
    for cause in causes:
        print(f"  {printable(cause)}")
    operations: list[dict] = result["operations"]  # pyright: ignore[reportAssignmentType]
    if operations:
        operations.sort(key=lambda row: -abs(row["cycles"]["difference"]))
        rows = [(row["name"], *_columns(row["cycles"])) for row in operations]
        print(
            "\n"
            + table(("operation (cycles)", "before", "after", "difference", "%"), rows, args.limit)
        )
    return 0


def _columns(pair: dict) -> tuple[object, ...]:
    percent = f"{100 * pair['difference'] / pair['before']:+.1f}" if pair["before"] else "new"
    percent = percent if pair["difference"] else ""
    return pair["before"], pair["after"], f"{pair['difference']:+,}", percent
