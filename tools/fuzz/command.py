"""`python -m tools.fuzz`, `make fuzz`, `tremula fuzz`: run, replay, shrink, summarise."""

import argparse
import itertools
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tools.fuzz import corpus, page, run_log
from tools.fuzz.case import FAILED, Outcome, examine, random_of
from tools.fuzz.kinds import HOMES, kind_named
from tools.fuzz.run_log import Batch
from tools.fuzz.shrink import shrink
from tools.fuzz.workers import Report, run_batch, run_batches
from tremula.base.progress_line import is_quiet


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of all commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    run = commands.add_parser("run", help="run new cases; Ctrl-C ends it, a later run goes on")
    run.add_argument("--kind", action="append", choices=list(HOMES), help="only this kind")
    run.add_argument("--seconds", type=float, default=60, help="for how long (60; 0: no end)")
    run.add_argument("--cases", type=int, default=0, help="at most this many of each kind")
    run.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (all cores)")
    run.add_argument("--first-seed", type=int, help="where to begin (behind the log)")
    run.add_argument("--log", type=Path, default=run_log.LOG, help="the log of runs")
    run.add_argument("--commit", default="", help="what to log as the commit (the checkout's)")
    run.add_argument("--no-shrink", action="store_true", help="only list what fails")
    one = commands.add_parser("show", help="print and check the case of one seed")
    one.add_argument("kind", choices=list(HOMES))
    one.add_argument("seed", type=int)
    one.add_argument("--shrink", action="store_true", help="make it small, add it to the corpus")
    some = commands.add_parser("sample", help="run a few cases in this process, for debuggers")
    some.add_argument("kind", choices=list(HOMES))
    some.add_argument("cases", type=int)
    some.add_argument("--first-seed", type=int, default=0, help="where to begin (0)")
    commands.add_parser("replay", help="check every case of the corpus")
    sums = commands.add_parser("summarise", help="add logs to the summary, renew the page")
    sums.add_argument("logs", nargs="*", type=Path, help="logs (the one of this checkout)")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


def run(args: argparse.Namespace) -> int:
    actions = {
        "run": _run, "show": _show, "sample": _sample, "replay": _replay, "summarise": _summarise
    }  # fmt: skip
    return actions[args.action](args)


# -- running ---------------------------------------------------------------------------------------

BATCH = {"tiles": 50}


def _run(args: argparse.Namespace) -> int:
    kinds, state = args.kind or list(HOMES), Counter()
    failures: list[tuple[str, Report]] = []
    started = time.monotonic()

    def done(batch: Batch, reports: list[Report]) -> None:
        run_log.append(batch, args.log)
        if reports:
            run_log.append_failures(batch.kind, batch.commit, reports, args.log)
        state.update({"cases": batch.n, f"{batch.kind}": batch.n, "failed": len(reports)})
        state["cpu_ms"] += round(batch.cpu_s * 1000)
        state[f"cpu_ms {batch.kind}"] += round(batch.cpu_s * 1000)
        failures.extend((batch.kind, report) for report in reports)
        _print_state(state, kinds, time.monotonic() - started, reports)

    try:
        run_batches(_batches(args, kinds), args.jobs, done)
    except KeyboardInterrupt:
        print("interrupted; what was run is logged")
    if not args.no_shrink:
        _shrink_failures(failures)
    return 1 if failures else 0


def _batches(args: argparse.Namespace, kinds: list[str]) -> Iterator[Batch]:
    """Batches of each kind in turn, until the time or the cases are over."""
    deadline = time.monotonic() + args.seconds if args.seconds else float("inf")
    commit = args.commit or run_log.commit_name()
    first = {
        kind: run_log.next_seed(kind, args.log) if args.first_seed is None else args.first_seed
        for kind in kinds
    }
    end = {kind: first[kind] + args.cases if args.cases else 1 << 60 for kind in kinds}
    for kind in itertools.cycle(kinds):
        if time.monotonic() > deadline or all(first[k] >= end[k] for k in kinds):
            return
        n = min(BATCH.get(kind, 20), end[kind] - first[kind])
        if n > 0:
            yield Batch(kind, commit, first[kind], n)
            first[kind] += n


def _print_state(state: Counter, kinds: list[str], seconds: float, reports: list[Report]) -> None:
    for seed, signature, detail, _ in reports:
        print(f"seed {seed}: {signature}\n  {detail.strip()[-600:]}")
    rates = ", ".join(
        f"{state[kind]} {kind} ({state[f'cpu_ms {kind}'] / max(state[kind], 1):.0f} ms each)"
        for kind in kinds
    )
    if not is_quiet():
        print(f"{seconds:7.0f} s: {rates}; {state['failed']} failed", flush=True)


def _shrink_failures(failures: list[tuple[str, Report]]) -> None:
    """One case of each signature becomes small and a file of the corpus."""
    shrunk: set[tuple[str, str]] = set()
    for kind, (seed, signature, _, _) in failures:
        if (kind, signature) in shrunk or signature.startswith(("the process died", "a hang")):
            continue
        shrunk.add((kind, signature))
        print(f"{kind} {seed}: {signature}; shrinking …", flush=True)
        print(f"  {_shrunk_file(kind, seed, signature)}")


def _shrunk_file(kind_name: str, seed: int, signature: str) -> Path:
    kind = kind_named(kind_name)
    case = shrink(kind, kind.generate(random_of(kind_name, seed)), signature)
    met = {"commit": run_log.commit_name(), "seed": seed}
    return corpus.write_case(kind_name, case, Outcome(FAILED, signature), met)


# -- single cases ----------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    kind = kind_named(args.kind)
    case = kind.generate(random_of(args.kind, args.seed))
    outcome = examine(kind, case)
    if args.shrink and outcome.status == FAILED:
        path = _shrunk_file(args.kind, args.seed, outcome.signature)
        case = json.loads(path.read_text())["case"]
        print(path)
    print(json.dumps(case, indent=1))
    print(outcome.status, outcome.signature, outcome.detail)
    return 1 if outcome.status == FAILED else 0


def _sample(args: argparse.Namespace) -> int:
    batch = Batch(args.kind, "", args.first_seed, args.cases)
    reports = run_batch(batch)
    for seed, signature, detail, _ in reports:
        print(f"seed {seed}: {signature}\n  {detail.strip()[-600:]}")
    print(f"{batch.n} {batch.kind}: {batch.outcomes}")
    return 1 if reports else 0


def _replay(_: argparse.Namespace) -> int:
    n, n_failed = 0, 0
    for path, kind, case in corpus.read_cases():
        outcome = examine(kind_named(kind), case)
        n, n_failed = n + 1, n_failed + (outcome.status == FAILED)
        if outcome.status == FAILED:
            print(f"{path.name}: {outcome.signature}\n  {outcome.detail.strip()[-600:]}")
    print(f"{n} cases of the corpus, {n_failed} failed")
    return 1 if n_failed else 0


def _summarise(args: argparse.Namespace) -> int:
    summary = run_log.summarise(args.logs or [run_log.LOG])
    page.write_page(summary)
    print(page.table(summary))
    return 0
