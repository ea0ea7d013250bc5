"""The cases of the table, the most important first, with the limits that they run under."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import load_suite
from tremula.base.errors import InvalidOption, suggest


@dataclass(frozen=True)
class Section:
    """Cases that are one table of the page."""

    title: str
    suite: str
    measurement: str
    gib: float  # of GPU memory that a case takes at most, both sides together: estimates
    limit_s: float  # of a case, without the time that it is stopped


@dataclass(frozen=True)
class Case:
    """What one process measures."""

    section: Section
    name: str  # as `tremula bench --only` takes it

    def command(self, result: Path) -> list[str]:
        """The process, which writes its figures to a file."""
        measure = [sys.executable, "-m", "tools.gpu_table.measure"]
        return [*measure, self.section.suite, self.name, str(result)]


# Processes of models with 110 million weights had between 8 and 21 GiB in float32, 8 to 17 with
# products in halves, as nvidia-smi counts them.
SECTIONS = (
    Section("bfloat16", "poptorch", "gpu-bfloat16", 16, 240),
    Section("TF32", "poptorch", "gpu-large", 21, 240),
    Section("Forces", "geometric", "gpu-forces", 14, 240),
    Section("Tokens per second", "poptorch", "gpu-tokens", 21, 180),
    Section("Energies", "geometric", "gpu", 8, 180),
    Section("An epoch of QM9", "geometric", "gpu-epoch", 8, 180),
    Section("Large graphs", "geometric", "gpu-large-graphs", 16, 180),
    Section("Autocast from float32", "poptorch", "gpu-autocast", 16, 240),
    Section("Start", "poptorch", "gpu-start", 24, 180),
    Section("Accuracy of SchNet", "geometric", "gpu-accuracy", 8, 180),
    Section("Loss curves", "poptorch", "gpu-curves", 20, 240),
)


def cases_of(section: Section) -> list[Case]:
    """The cases of a section as its suite declares them."""
    names = load_suite(section.suite).cases.get(section.measurement, [section.measurement])
    return [Case(section, name) for name in names]


def chosen_cases(only: Sequence[str]) -> list[Case]:
    """All cases, or those of some measurements ("gpu-large"), or single ones ("gpu:gin-128")."""
    every = [case for section in SECTIONS for case in cases_of(section)]
    known = [*(section.measurement for section in SECTIONS), *(case.name for case in every)]
    for name in only:
        if name not in known:
            raise InvalidOption(f"there is no GPU case {name!r}.", hint=suggest(name, known))
    if not only:
        return every
    return [case for case in every if case.name in only or case.section.measurement in only]


def lines_of(cases: Sequence[Case]) -> Iterator[str]:
    """A list of cases to read."""
    for case in cases:
        section = case.section
        yield f"{case.name:<32} {section.gib:4.0f} GiB  {section.limit_s:4.0f} s  {section.title}"
