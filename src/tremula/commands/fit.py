"""`tremula fit rows.csv --from bow -o mychip.toml`: constants of a chip from measurements."""

import argparse
import json
from pathlib import Path

from tremula.base.errors import InvalidOption
from tremula.base.requirements import require_for_command
from tremula.commands.arguments import output_file, positive
from tremula.commands.progress import progress
from tremula.hardware import Chip, chip, load_chip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rows", nargs="?", type=Path, help="a CSV file of measurements")
    parser.add_argument(
        "--template", type=Path, metavar="PATH",
        help="write 25 programs worth measuring into this folder, and a CSV file for their times",
    )  # fmt: skip
    parser.add_argument(
        "--from", dest="base", default="bow", metavar="CHIP",
        help="the chip to start from: a name, or a TOML file (bow)",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", type=output_file, metavar="FILE", help="the chip file to write"
    )
    parser.add_argument(
        "--within", type=positive, default=10.0, metavar="PERCENT",
        help="fit constants that rows tell at least this well, at 90 %% (10)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    base = _chip(args.base)
    if (args.rows is None) == (args.template is None):
        raise InvalidOption(
            "`tremula fit` takes a file of measurements, or `--template FOLDER`.",
            hint="tremula fit --template programs, then tremula fit programs/rows.csv -o my.toml",
        )
    if args.template is not None:
        return _write_template(args.template, base)
    require_for_command("tremula fit", "fit")
    from tremula.validate.fit import fit, fit_record, fit_text, read_measurements, save_fit

    rows = read_measurements(args.rows, base)
    name = base.name + ", fitted" if args.output is None else args.output.stem
    with progress("fitting") as report_share:
        result = fit(rows, base, name=name, limit=args.within / 100, progress=report_share)
    print(json.dumps(fit_record(result), indent=1) if args.json else fit_text(result))
    if args.output is not None:
        save_fit(result, args.output)
    return 0


def _chip(name: str) -> Chip:
    return load_chip(name) if name.lower().endswith(".toml") else chip(name)


def _write_template(path: Path, base: Chip) -> int:
    from tremula.validate.fit import write_template

    file = write_template(path, base)
    print(f"25 programs are in {file.parent}; {file} waits for their times.")
    print(f"  python {file.parent / 'measure_all.py'}   fills it with those of Tremula's own model")
    return 0
