"""Many applications in their tiny form: a table of times; figures kept next to their manifests."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tremula.commands.progress import with_progress
from tremula.garden.catalogue.catalogue import all_applications, find_application
from tremula.garden.catalogue.figures import figures_file, read_figures, write_figures
from tremula.garden.catalogue.manifest import Application
from tremula.garden.catalogue.run_all import RunOutcome, run_all

_LINES_OF_A_FAILURE = 12


def run_together(n_at_once: int) -> int:
    """Run all; 1 if one failed."""
    applications = all_applications()
    return _told(applications, run_all(applications, n_at_once=n_at_once))


def make_figures(names: Sequence[str], n_at_once: int, reports: Path | None = None) -> int:
    """Run all, or those named, and keep the figures of each that is right, and its report."""
    chosen = [find_application(name) for name in names] or all_applications()
    with tempfile.TemporaryDirectory(prefix="tremula-garden-") as made:
        outcomes = run_all(chosen, Path(made), n_at_once, reports)
        return _told(chosen, _kept(outcomes, Path(made)))


def _kept(outcomes: Iterable[RunOutcome], folder: Path) -> Iterator[RunOutcome]:
    """Figures as they come, saved at once, so that an interrupt loses only what runs."""
    for outcome in outcomes:
        one = outcome.application
        figures = read_figures(folder / f"{one.name}.json")
        if figures is not None:
            write_figures(figures, figures_file(one))
        yield outcome


def _told(applications: Sequence[Application], outcomes: Iterable[RunOutcome]) -> int:
    """Print a row as each ends, and the last lines of those that failed."""
    width = max(len(one.name) for one in applications)
    print(f"{'application':<{width}}  {'CPU s':>7} {'stated':>7} {'took s':>7}", flush=True)
    seen = []
    for outcome in with_progress("running applications", outcomes, len(applications)):
        seen.append(outcome)
        print(_row(outcome, width), flush=True)
    failed = [outcome for outcome in seen if not outcome.is_right]
    total = sum(outcome.cpu_seconds for outcome in seen)
    print(f"\n{len(seen) - len(failed)} of {len(seen)} are right; {total / 60:.1f} minutes of CPU")
    for outcome in failed:
        lines = outcome.output.rstrip().splitlines()[-_LINES_OF_A_FAILURE:]
        print(f"\n{outcome.application.name} failed:", *lines, sep="\n  ")
    return 1 if failed else 0


def _row(outcome: RunOutcome, width: int) -> str:
    one = outcome.application
    verdict = "" if outcome.is_right else "  FAILED"
    if outcome.is_right and outcome.cpu_seconds > one.tiny_seconds:
        verdict = "  more than tiny_seconds of its manifest states"
    times = f"{outcome.cpu_seconds:>7.1f} {one.tiny_seconds:>7.0f} {outcome.seconds:>7.1f}"
    return f"{one.name:<{width}}  {times}{verdict}"
