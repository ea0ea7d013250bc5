"""`tremula bench SUITE`: measure figures, print them as they come, fail if one misses its bar."""

import argparse

from tremula.bench import SUITES, Figure, load_suite, print_figures, write_json
from tremula.commands.arguments import output_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    suites = ", ".join(SUITES)
    parser.add_argument("suite", nargs="?", default="core", help=f"one of: {suites} (core)")
    parser.add_argument(
        "--json", type=output_file, metavar="FILE", help="also write the figures here"
    )
    parser.add_argument("--only", metavar="NAME", action="append", help="measure just this one")


def run(args: argparse.Namespace) -> int:
    figures: list[Figure] = []
    try:
        print_figures(load_suite(args.suite).measure(args.only), figures)
    finally:
        # Keep what was measured before a failure or an interrupt.
        if args.json is not None and figures:
            write_json(figures, args.json)
    return 0 if all(figure.holds for figure in figures) else 1
