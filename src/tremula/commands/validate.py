"""`tremula validate`: the cost model against measurements of real machines."""

import argparse
import json
import sys
import warnings
from collections import Counter
from pathlib import Path

from tremula.base.errors import InvalidOption, suggest
from tremula.base.processes import keep_freed_memory, small_pages
from tremula.base.storage.atomic_file import write_text
from tremula.commands.arguments import output_file, whole
from tremula.commands.progress import progress
from tremula.validate import (
    ENERGY,
    GRID,
    LINK_ROWS,
    MORE,
    PUBLISHED,
    Checked,
    MeasuredRow,
    SavedResults,
    Score,
    Unchecked,
    ValidationResult,
    every_nth,
    rank_correlation,
    read_rows,
    validate,
)
from tremula.validate.baseline import compare, comparison_lines, read_baseline, steps_record
from tremula.validate.calibration import ShippedResults, coverage_text, write_residuals
from tremula.validate.constants import constants_page
from tremula.validate.page import write_page
from tremula.validate.workloads.table import family_names


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--against", type=Path, metavar="FILE", action="append",
        help="measurements: a CSV file with parameters as k=v or in words, or of the "
        "gather/scatter grid (docs/accuracy.md); default: the files that come with Tremula",
    )  # fmt: skip
    parser.add_argument("--rows", action="store_true", help="also print every row")
    parser.add_argument("--family", action="append", default=[], help="only rows of this family")
    parser.add_argument(
        "--others-as-shipped", action="store_true",
        help="with --family: also the other families, with the results that come with Tremula",
    )  # fmt: skip
    parser.add_argument(
        "--sample", type=whole(1), metavar="N", help="only N rows of each file, evenly spread"
    )
    parser.add_argument(
        "--jobs", type=whole(1), metavar="N", default=1,
        help="compute this many rows side by side, each in a process (as far as memory allows)",
    )  # fmt: skip
    parser.add_argument(
        "--memory", action="store_true",
        help="instead: whether the public programs fit their chips, with their batch and twice it; "
        "--against, --resume and --page are of these",
    )  # fmt: skip
    parser.add_argument(
        "--large", action="store_true", help="also models that take more than 8 GB to compile"
    )
    parser.add_argument(
        "--page",
        type=output_file,
        metavar="FILE",
        help="write the tables into this page's marked part",
    )
    parser.add_argument(
        "--resume", type=output_file, metavar="FILE",
        help="keep every result here as it comes, and do not compute again what is there",
    )  # fmt: skip
    parser.add_argument(
        "--baseline", type=Path, metavar="FILE",
        help="say which rows moved since a run whose --json is here, and which steps moved them",
    )  # fmt: skip
    parser.add_argument(
        "--residuals", type=output_file, metavar="FILE",
        help="write the table that intervals of predicted times are made from",
    )  # fmt: skip
    parser.add_argument(
        "--constants", action="store_true",
        help="only print the constants that were fitted, with values, sources and rows",
    )  # fmt: skip
    parser.add_argument(
        "--json", type=output_file, metavar="FILE", help="also write everything here"
    )


def run(args: argparse.Namespace) -> int:
    if args.constants:
        print(constants_page(), end="")
        return 0
    _check(args)
    keep_freed_memory()
    with small_pages():
        return _run_memory(args) if args.memory else _run_rows(args)


def _run_rows(args: argparse.Namespace) -> int:
    earlier = None if args.baseline is None else read_baseline(args.baseline)
    rows, notes = [], []
    for path in args.against or (PUBLISHED, MORE, LINK_ROWS, ENERGY, GRID):
        result = read_rows(path)
        chosen = result if args.sample is None else every_nth(result, args.sample)
        if len(chosen) < len(result):
            notes.append(f"{path.name}: {len(chosen)} of {len(result)} rows, evenly spread.")
            print(notes[-1])
        rows += chosen
    families, saved = args.family, None if args.resume is None else SavedResults(args.resume)
    if args.others_as_shipped:
        families, saved = (), ShippedResults(args.family, saved)
    with progress("validating") as line:

        def report(number: int, total: int, row: MeasuredRow) -> None:
            line((number - 1) / total, f"{number}/{total} {row.id}")
            line.log(f"{number}/{total} {row.id} …")

        outcome = validate(
            rows, families, report, with_large=args.large, saved=saved, n_jobs=args.jobs
        )
    if args.rows:
        _print_rows(outcome.checked)
    _print_scores(outcome)
    _print_unchecked(outcome.unchecked, all_of_them=args.rows)
    if earlier is not None:
        print("\n" + "\n".join(comparison_lines(compare(outcome, earlier))))
    if args.residuals is not None:
        write_residuals(outcome.checked, args.residuals)
    if args.page is not None:
        write_page(args.page, outcome, notes)
    if args.json is not None:
        write_text(args.json, json.dumps(as_record(outcome), indent=1) + "\n")
    return 0 if outcome.checked else 1


def _run_memory(args: argparse.Namespace) -> int:
    """The table of memory; `--against` names another file of programs."""
    from tremula.validate.workloads.models.memory_table import (
        KnownNeeds,
        memory_lines,
        public_rows,
        write_memory_page,
    )

    known = KnownNeeds(args.resume)
    files = args.against or [None]
    rows = [row for path in files for row in (public_rows(path) if path else public_rows())]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it does not fit: the table says so
        for line in memory_lines(rows, known):
            print(line, flush=True)
            if args.page is not None:  # at once: such a run takes hours, and may be interrupted
                write_memory_page(args.page, known.needs)
    return 0


def _check(args: argparse.Namespace) -> None:
    known = family_names()
    if args.others_as_shipped and not args.family:
        raise InvalidOption(
            "--others-as-shipped needs the families to compute.",
            hint="name each by --family, such as --family gather",
        )
    for name in args.family:
        if name not in known:
            raise InvalidOption(f"there is no family {name!r}.", hint=suggest(name, known))


def _print_rows(checked: tuple[Checked, ...]) -> None:
    print(f"{'row':<44} {'predicted':>12} {'measured':>12} {'unit':<9} {'error':>8}")
    for one in checked:
        figures = f"{one.predicted:>12.5g} {one.measured:>12.5g} {one.row.unit:<9}"
        print(f"{one.row.id:<44} {figures} {one.error:>+8.1%}")
    print()


def _print_scores(outcome: ValidationResult) -> None:
    if not outcome.checked:
        print("no row has a workload")
        return
    print(f"{'family':<24} {'rows':>6} {'median':>8} {'worst':>8}  worst row")
    scored = [*outcome.families.items(), ("all", outcome.checked)]
    for name, rows in scored:
        score = Score.of(rows)
        figures = f"{score.n_rows:>6} {score.median:>8.1%} {score.worst:>8.1%}"
        print(f"{name:<24} {figures}  {score.worst_id}")
    print(f"rank correlation (Spearman, within units): {rank_correlation(outcome.checked):.3f}")
    print(coverage_text(outcome.checked))


def _print_unchecked(unchecked: tuple[Unchecked, ...], *, all_of_them: bool) -> None:
    if not unchecked:
        return
    print(f"\n{len(unchecked)} rows without a workload:")
    for reason, n in Counter(one.reason for one in unchecked).most_common():
        ids = [one.row.id for one in unchecked if one.reason == reason]
        shown = ids if all_of_them else ids[:6]
        more = f", … ({len(ids) - len(shown)} more)" if len(shown) < len(ids) else ""
        print(f"  {n:>4}  {reason}: {', '.join(shown)}{more}")
    sys.stdout.flush()


def as_record(outcome: ValidationResult) -> dict[str, object]:
    """Everything, as plain data."""
    return {
        "rows": [
            {
                "id": one.row.id,
                "family": one.family,
                "predicted": one.predicted,
                "measured": one.measured,
                "unit": one.row.unit,
                "error": one.error,
                "seconds": one.seconds,
                "gbytes": one.gbytes,
                "steps": steps_record(one.steps),
            }
            for one in outcome.checked
        ],
        "without_workload": [{"id": one.row.id, "reason": one.reason} for one in outcome.unchecked],
        "families": {name: _score_record(rows) for name, rows in outcome.families.items()},
        "all": _score_record(outcome.checked) if outcome.checked else None,
        "rank_correlation": rank_correlation(outcome.checked),
    }


def _score_record(rows: list[Checked] | tuple[Checked, ...]) -> dict[str, object]:
    score = Score.of(rows)
    return {
        "n_rows": score.n_rows,
        "median_error": score.median,
        "worst_error": score.worst,
        "worst_row": score.worst_id,
    }
