"""`tremula plan SCRIPT --system pod16`: how to spread a script's model over chips."""

import argparse
import json
from pathlib import Path

from tremula.base.storage.atomic_file import write_text
from tremula.commands.arguments import output_file, positive, whole
from tremula.commands.progress import progress
from tremula.hardware import System, load_system, system


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("script", type=Path, help="a PopTorch script; its first model is planned")
    parser.add_argument("arguments", nargs="*", help="arguments of the script")
    parser.add_argument(
        "--system", default="pod16", help="a system (pod16) or one of your own (hall.toml)"
    )
    parser.add_argument("--chips", type=whole(1), help="number of chips to use (all)")
    parser.add_argument("--batch", type=whole(1), help="samples between two weight updates")
    parser.add_argument(
        "--candidates", type=whole(1), default=16, help="compile at most this many (16)"
    )
    parser.add_argument(
        "--minutes", type=positive, default=5.0, help="begin nothing that would end later (5)"
    )
    parser.add_argument("--workers", type=whole(1), help="processes that compile at a time")
    parser.add_argument(
        "--folder", type=Path, help="where results are stored; by default, Tremula's cache"
    )
    parser.add_argument(
        "--output", type=output_file, metavar="FILE", help="write the settings as a Python module"
    )
    parser.add_argument("--svg", type=output_file, metavar="FILE", help="draw stages and chips")
    parser.add_argument("--explain", action="store_true", help="say in words why")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    from tremula.explore.planner import plan  # needs PyTorch
    from tremula.explore.script import task_of_script

    machine = chosen_system(args.system)
    task = task_of_script(args.script, args.arguments, machine)
    with progress("compiling candidates") as report_share:
        result = plan(
            task,
            n_chips=args.chips,
            batch=args.batch,
            max_candidates=args.candidates,
            max_minutes=args.minutes,
            n_workers=args.workers,
            folder=args.folder,
            progress=report_share,
        )
    _print(args, result)
    if args.output is not None:
        write_text(args.output, result.code(_first_line(result)))
    return 0 if result.best.fits else 1


def chosen_system(name: str) -> System:
    """A known system, or one of the user's own."""
    return load_system(name) if name.lower().endswith(".toml") else system(name)


def _print(args: argparse.Namespace, plan) -> None:  # noqa: ANN001 - a Plan, which needs PyTorch
    from tremula.explore.explain import explain, plan_table, stage_table
    from tremula.explore.picture import plan_svg

    if args.json:
        print(json.dumps([outcome.as_dict() for outcome in plan.outcomes], indent=1))
    else:
        print(plan_table(plan))
        if not plan.best.error:
            print(f"\n{stage_table(plan)}")
        if args.explain or not plan.best.fits:
            print(f"\n{explain(plan)}")
    if args.svg is not None and not plan.best.error:
        write_text(args.svg, plan_svg(plan))


def _first_line(plan) -> str:  # noqa: ANN001 - as above
    from tremula.explore.explain import explain

    return explain(plan).splitlines()[0]
