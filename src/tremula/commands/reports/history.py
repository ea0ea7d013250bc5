"""`tremula history FOLDER`: cycles and memory of models over runs, and the run that moved them."""

import argparse
import json
import shutil
from pathlib import Path

from tremula.base.storage.atomic_file import atomic_file
from tremula.commands.arguments import one_of, output_file, positive
from tremula.commands.progress import progress
from tremula.vision.analysis.history import METRICS, history_of
from tremula.vision.analysis.history_plot import html_of, svg_of, text_of

_SHOWN = {"cycles": ["cycles"], "memory": [m for m in METRICS if m != "cycles"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", type=Path, metavar="FOLDER",
        help="with reports of several runs: NAME/profile.pop, NAME/MODEL/profile.pop or NAME.pop",
    )  # fmt: skip
    parser.add_argument("--model", help="only this model (default: all)")
    parser.add_argument(
        "--metric", type=one_of(_SHOWN, "metric"), help="only cycles, or only memory"
    )
    parser.add_argument(
        "--threshold", type=positive, default=1.0, metavar="PERCENT",
        help="moves that are smaller do not count (1)",
    )  # fmt: skip
    parser.add_argument(
        "--by-name", action="store_true", help="order runs by name, not by when they were written"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--html", type=output_file, metavar="FILE", help="write a page")
    parser.add_argument("--svg", type=output_file, metavar="FILE", help="write a picture")


def run(args: argparse.Namespace) -> int:
    with progress("reading") as report_share:
        history = history_of(
            args.folder,
            model=args.model,
            threshold=args.threshold / 100,
            by_name=args.by_name,
            progress=report_share,
        )
    metrics = _SHOWN[args.metric] if args.metric else list(METRICS)
    for path, write in ((args.html, html_of), (args.svg, svg_of)):
        if path is not None:
            with atomic_file(path) as file:
                file.write(write(history, metrics).encode())
    if args.json:
        print(json.dumps(history.facts(), indent=1))
    else:
        print(text_of(history, metrics, shutil.get_terminal_size().columns))
    return 0
