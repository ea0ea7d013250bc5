"""A figure is a measured value and the bar it must reach; a suite is a table of figures."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks.time_limit import OutOfTime, within
from tremula.base.errors import InvalidOption, suggest
from tremula.base.progress_line import is_quiet
from tremula.base.storage.atomic_file import atomic_file
from tremula.commands.progress import with_progress

_BOUND = re.compile(r"(<=|>=|<|>|==)\s*([-+\d.e_]+)")
_NEAR = re.compile(r"([-+\d.e_]+)\s*±\s*([\d.e_]+)\s*%")


@dataclass(frozen=True, slots=True)
class Bar:
    """What a value must reach: "<= 1.2", ">= 100000", "== 3996" or "3717.6 ± 0.5 %"."""

    text: str
    low: float
    high: float
    is_open: bool = False  # the limit itself does not reach it

    @classmethod
    def parse(cls, text: str) -> "Bar":
        infinity = float("inf")
        if match := _NEAR.fullmatch(text):
            middle, percent = float(match[1]), float(match[2])
            reach = abs(middle) * percent / 100
            return cls(text, middle - reach, middle + reach)
        if match := _BOUND.fullmatch(text):
            relation, bound = match[1], float(match[2])
            low = -infinity if relation in ("<", "<=") else bound
            high = infinity if relation in (">", ">=") else bound
            return cls(text, low, high, is_open=relation in ("<", ">"))
        raise InvalidOption(
            f"cannot read the bar {text!r} of a figure.",
            hint='write it as "<= 1.2", ">= 100000", "== 3996" or "3717.6 ± 0.5 %"',
        )

    def holds(self, value: float) -> bool:
        if self.is_open:
            return self.low < value < self.high
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value. `Figure.of` decides whether it holds."""

    name: str
    value: float
    unit: str
    bar: str
    holds: bool
    note: str = ""  # what else was seen: the times of both sides, which program ran

    @classmethod
    def of(cls, name: str, value: float, unit: str, bar: str, note: str = "") -> "Figure":
        return cls(name, value, unit, bar, Bar.parse(bar).holds(value), note)

    def record(self) -> dict[str, object]:
        """As JSON has it: without a note where there is none."""
        return {name: value for name, value in asdict(self).items() if name != "note" or value}


Measurement = Callable[[], Iterable[Figure]]
CaseMeasurement = Callable[[str], Iterable[Figure]]


@dataclass(frozen=True)
class Suite:
    """Named measurements, in the order they are declared:

    SUITE = Suite("core")

    @SUITE.measurement("views")
    def views():
        yield Figure.of("10⁶ slices", seconds, "s", "<= 5")

    A measurement of several cases is a function of a case; "speed:large" is one of them:

    @SUITE.measurement_of("speed", ("small", "large"))
    def speed(case):
        yield Figure.of(f"speed-{case}", seconds, "s", "<= 5")
    """

    name: str
    measurements: dict[str, Measurement] = field(default_factory=dict)
    cases: dict[str, dict[str, Measurement]] = field(default_factory=dict)  # of a measurement

    def measurement(self, name: str) -> Callable[[Measurement], Measurement]:
        """Decorator: adds a function that yields figures."""

        def add(function: Measurement) -> Measurement:
            if name in self.measurements:
                raise InvalidOption(
                    f"suite {self.name!r} has two measurements named {name!r}.",
                    hint="give each its own name",
                )
            self.measurements[name] = function
            return function

        return add

    def measurement_of(
        self, name: str, cases: Sequence[str]
    ) -> Callable[[CaseMeasurement], CaseMeasurement]:
        """Decorator: adds a function that yields the figures of a case."""

        def add(function: CaseMeasurement) -> CaseMeasurement:
            of_case = {f"{name}:{case}": partial(function, case) for case in cases}
            self.measurement(name)(lambda: chain.from_iterable(m() for m in of_case.values()))
            self.cases[name] = of_case
            return function

        return add

    def measure(
        self, only: Iterable[str] | None = None, limit_s: float | None = None
    ) -> Iterator[Figure]:
        """Measure everything, or just the named ones in their order, with progress on stderr.

        A measurement, or a case of one, that takes longer than `limit_s` is left, with a line.
        """
        known = self.measurements | {n: m for of in self.cases.values() for n, m in of.items()}
        chosen = list(self.measurements) if only is None else list(only)
        for name in chosen:
            if name not in known:
                raise InvalidOption(
                    f"suite {self.name!r} has no measurement {name!r}.", hint=suggest(name, known)
                )
        single = [case for name in chosen for case in self.cases.get(name, {name: None})]
        return self._measure({name: known[name] for name in single}, limit_s)

    def _measure(
        self, measurements: dict[str, Measurement], limit_s: float | None
    ) -> Iterator[Figure]:
        begin_s = time.perf_counter()
        for i, (name, measurement) in enumerate(measurements.items(), 1):
            elapsed_s = time.perf_counter() - begin_s
            _note(f"[{elapsed_s:6.1f} s] {i}/{len(measurements)} {name} …")
            try:
                yield from within(limit_s, with_progress(name, measurement(), 0))
            except OutOfTime:
                _note(f"{name}: not measured, it takes more than {limit_s:g} s")
        elapsed_s = time.perf_counter() - begin_s
        _note(f"[{elapsed_s:6.1f} s] done")


def _note(text: str) -> None:
    if not is_quiet():
        print(text, file=sys.stderr, flush=True)


def print_figures(figures: Iterable[Figure], measured: list[Figure]) -> None:
    """Print a table row by row as figures come in, and append them to `measured`."""
    print(f"{'figure':<58} {'value':>12} {'unit':<10} {'must be':<16} holds")
    for figure in figures:
        measured.append(figure)
        verdict = "yes" if figure.holds else "NO"
        row = f"{figure.name:<58} {shown(figure.value):>12} {figure.unit:<10} {figure.bar:<16}"
        note = f" ({figure.note})" if figure.note else ""
        print(f"{row} {verdict}{note}", flush=True)


def shown(value: float) -> str:
    """A value in at most 12 characters: whole numbers whole, others rounded."""
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value)}"
    return f"{value:.2f}" if 100 <= abs(value) < 1e9 else f"{value:.4g}"


def written(figures: Iterable[Figure], path: Path) -> Iterator[Figure]:
    """Figures as they come, each written at once: a run that is killed loses none."""
    known: list[Figure] = []
    for figure in figures:
        known.append(figure)
        write_json(known, path)
        yield figure


def write_json(figures: Iterable[Figure], path: Path) -> None:
    """A JSON list with one record per figure, one record per line."""
    records = ",\n".join(json.dumps(figure.record(), ensure_ascii=False) for figure in figures)
    with atomic_file(path, "w") as file:
        file.write(f"[\n{records}\n]\n")


def read_json(path: Path) -> list[Figure]:
    """What `write_json` wrote."""
    return [Figure(**record) for record in json.loads(path.read_text(encoding="utf-8"))]
