"""`tremula whatif REPORT|script.py`: costs on other chips, as a table and curves."""

import argparse
import json
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.commands.arguments import output_file
from tremula.commands.progress import progress
from tremula.hardware import load_chip
from tremula.vision.analysis.curves import draw_curves
from tremula.vision.analysis.text_views import table
from tremula.vision.analysis.whatif import ChipPoint, parse_sweep, whatif_report, whatif_script
from tremula.vision.page_data.whatif import standalone_packs
from tremula.vision.report.reader import open_report
from tremula.vision.serve.export import write_page


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subject", type=Path, help="a report (profile.pop or folder) or a script")
    parser.add_argument("arguments", nargs="*", help="arguments of the script")
    parser.add_argument("--chip", type=Path, metavar="TOML", help="a chip of your own")
    parser.add_argument(
        "--sweep", nargs="+", default=[], metavar="NAME=A,B", help="tiles=736,1472 sram=… clock=…"
    )
    parser.add_argument(
        "--png", type=output_file, metavar="FILE", help="draw curves of microseconds"
    )
    parser.add_argument(
        "--html", type=output_file, metavar="FILE", help="a page of all curves, one file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    subject: Path = args.subject
    if not subject.exists():
        raise FileLoadError(
            f"there is no {str(subject)!r}.", hint="give a profile.pop, its folder, or a script"
        )
    chip = None if args.chip is None else load_chip(args.chip)
    sweep = parse_sweep(args.sweep)
    with progress("costing chips") as report_share:
        if subject.suffix == ".py":
            points = whatif_script(subject, args.arguments, chip, sweep, progress=report_share)
        else:
            with open_report(subject) as report:
                points = whatif_report(report, chip, sweep, progress=report_share)
    if args.json:
        print(json.dumps([point.as_dict() for point in points], indent=1))
    else:
        print(_text(points))
    if args.png is not None:
        _draw(args.png, points, list(sweep))
    if args.html is not None:
        title = subject.name if subject.suffix else subject.resolve().name
        write_page(args.html, standalone_packs(title, sweep, points))
    return 0


def _text(points: list[ChipPoint]) -> str:
    rows = [
        (p.label, p.total_cycles, f"{p.microseconds:,.1f}", _times(points[0], p), f"{p.joules:.4g}",
         p.largest_tile_bytes, p.available_bytes, p.fits)
        for p in points
    ]  # fmt: skip
    heads = ("chip", "cycles", "µs", "speed", "joules", "fullest tile", "available", "fits")
    return table(heads, rows)


def _times(first: ChipPoint, point: ChipPoint) -> str:
    return f"{first.microseconds / max(point.microseconds, 1e-12):.2f}×"


def _draw(path: Path, points: list[ChipPoint], names: list[str]) -> None:
    """Microseconds over the first swept constant, a curve for each combination of the others."""
    lines: dict[tuple, tuple[list[float], list[float]]] = {}
    for number, point in enumerate(points):
        if names and not point.changes:
            continue  # the unchanged chip is a point only where whole chips are compared
        others = tuple(point.changes[name] for name in names[1:])
        x, y = lines.setdefault(others, ([], []))
        x.append(float(point.changes[names[0]]) if names else float(number))
        y.append(point.microseconds)
    draw_curves(path, list(lines.values()))
