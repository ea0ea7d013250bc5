"""Figures of two runs side by side: `make bench-all` compares with those of the last release.

A record is a JSON file {"machine": text, "suites": {suite: [figures]}}. A figure got worse if it
moved away from its bar by more than the noise. Seconds of another machine say nothing and are not
judged; ratios measured in one run, counts and shares are.
"""

import json
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, shown
from tremula.base.errors import FileLoadError
from tremula.base.storage import strict_json

NOISE = 0.15  # runs of one tree on a machine that does nothing else differ by up to this share
# Units of time and speed depend on the machine.
_OF_MACHINE = ("s", "ms", "CPU s", "/s")


@dataclass(frozen=True, slots=True)
class Record:
    """All figures of one run."""

    machine: str
    suites: dict[str, list[Figure]]


@dataclass(frozen=True, slots=True)
class Change:
    """One figure before and now."""

    suite: str
    before: Figure
    now: Figure
    is_judged: bool  # measured in a way that allows a comparison

    @property
    def worse(self) -> float:
        """By which share of its value before the figure got worse; negative if it got better."""
        if self.before.value == self.now.value:
            return 0.0
        if not self.before.value:
            return 1.0
        share = (self.now.value - self.before.value) / abs(self.before.value)
        if self.now.bar.startswith((">", ">=")):
            return -share
        return share if self.now.bar.startswith("<") else abs(share)

    @property
    def is_regression(self) -> bool:
        """Whether the figure got worse by more than the noise, or misses a bar that it reached."""
        return self.is_judged and (self.worse > NOISE or (self.before.holds and not self.now.holds))


def this_machine() -> str:
    """Processor type and number of cores."""
    return f"{platform.machine()}, {os.cpu_count()} cores"


def write_record(record: Record, path: Path) -> None:
    suites = {name: [f.record() for f in figures] for name, figures in record.suites.items()}
    text = json.dumps({"machine": record.machine, "suites": suites}, ensure_ascii=False, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


def read_record(path: Path) -> Record:
    try:
        data = strict_json.loads(path.read_text(encoding="utf-8"))
        suites = {name: [Figure(**f) for f in figures] for name, figures in data["suites"].items()}
        return Record(data["machine"], suites)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FileLoadError(
            f"{str(path)!r} is not a record of figures ({error}).",
            hint="`tremula bench all --json FILE` writes one",
        ) from None


def changes(before: Record, now: Record) -> Iterator[Change]:
    """Every figure that both runs measured."""
    is_same_machine = before.machine == now.machine
    for suite, figures in now.suites.items():
        known = {figure.name: figure for figure in before.suites.get(suite, ())}
        for figure in figures:
            if figure.name in known:
                of_machine = any(
                    figure.unit == u or figure.unit.endswith("/s") for u in _OF_MACHINE
                )
                yield Change(suite, known[figure.name], figure, is_same_machine or not of_machine)


def print_changes(before: Record, now: Record) -> int:
    """Print the regressions, then a summary; the number of regressions."""
    every = list(changes(before, now))
    worse = [change for change in every if change.is_regression]
    for change in worse:
        was, name = shown(change.before.value), f"{change.suite}: {change.now.name}"
        print(f"worse: {name}: {was} → {shown(change.now.value)} {change.now.unit}")
    n_judged = sum(change.is_judged for change in every)
    print(
        f"{n_judged} of {len(every)} figures compared, {len(worse)} worse by more than {NOISE:.0%}"
    )
    return len(worse)
