"""`tremula exponents script.py …`: which numbers of a model a format would lose."""

import argparse
import sys
from pathlib import Path

from tremula.base.errors import FileLoadError, InvalidOption, RuntimeFailure, suggest
from tremula.base.storage.atomic_file import write_text
from tremula.vision.analysis.scripts import run_script


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("script", type=Path, help="a Python file that runs a model of PyTorch")
    parser.add_argument(
        "--format", nargs="+", metavar="NAME", help="formats to judge: half, F143, F152 (all)"
    )
    parser.add_argument(
        "--kind", nargs="+", metavar="KIND",
        help="show only these: value, weight, gradient, 'weight gradient'",
    )  # fmt: skip
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with a heat map")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the script")


def run(args: argparse.Namespace) -> None:
    """Run the script, watch its modules, print the table."""
    if not args.script.is_file():
        raise FileLoadError(
            f"there is no file {str(args.script)!r}.", hint="give the path of a Python file"
        )
    from tremula.frontends.scaling.exponents import FORMATS, KINDS, watch  # brings PyTorch
    from tremula.frontends.scaling.exponents_view import exponents_page, exponents_table

    formats = _known("format", args.format, list(FORMATS))
    kinds = _known("kind", args.kind, list(KINDS))
    with watch() as watched:
        run_script(args.script, args.arguments)
    entries = [e for e in watched.tensors.values() if e.kind in kinds and e.n + e.n_zeros]
    if not entries:
        raise RuntimeFailure(
            f"{args.script.name} ran no module of PyTorch, so there is nothing to show.",
            hint="call a model, model(x), and backward(); or one of poptorch.trainingModel",
        )
    print(exponents_table(entries, formats))
    if args.html is not None:
        write_text(args.html, exponents_page(entries, args.script.name))
        print(f"page: {args.html}", file=sys.stderr)


def _known(what: str, names: list[str] | None, known: list[str]) -> list[str]:
    for name in names or []:
        if name not in known:
            raise InvalidOption(f"there is no {what} {name!r}.", hint=suggest(name, known))
    return names or known
