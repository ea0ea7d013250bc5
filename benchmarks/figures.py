"""A figure is a measured value and the bar it must reach; a suite is a table of figures."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tremula.base.errors import InvalidOption, suggest
from tremula.base.progress_line import is_quiet
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

    @classmethod
    def of(cls, name: str, value: float, unit: str, bar: str) -> "Figure":
        return cls(name, value, unit, bar, Bar.parse(bar).holds(value))


Measurement = Callable[[], Iterable[Figure]]


@dataclass(frozen=True)
class Suite:
    """Named measurements, in the order they are declared:

    SUITE = Suite("core")

    @SUITE.measurement("views")
    def views():
        yield Figure.of("10⁶ slices", seconds, "s", "<= 5")
    """

    name: str
    measurements: dict[str, Measurement] = field(default_factory=dict)

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

    def measure(self, only: Iterable[str] | None = None) -> Iterator[Figure]:
        """Measure everything, or just the named ones, with progress on stderr."""
        chosen = list(self.measurements) if only is None else list(only)
        for name in chosen:
            if name not in self.measurements:
                raise InvalidOption(
                    f"suite {self.name!r} has no measurement {name!r}.",
                    hint=suggest(name, self.measurements),
                )
        return self._measure(chosen)

    def _measure(self, names: list[str]) -> Iterator[Figure]:
        begin_s = time.perf_counter()
        for i, name in enumerate(names, 1):
            elapsed_s = time.perf_counter() - begin_s
            _note(f"[{elapsed_s:6.1f} s] {i}/{len(names)} {name} …")
            yield from with_progress(name, self.measurements[name](), 0)
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
        print(f"{row} {verdict}", flush=True)


def shown(value: float) -> str:
    """A value in at most 12 characters: whole numbers whole, others rounded."""
    if float(value).is_integer() and abs(value) < 1e12:
        return f"{int(value)}"
    return f"{value:.2f}" if 100 <= abs(value) < 1e9 else f"{value:.4g}"


def write_json(figures: Iterable[Figure], path: Path) -> None:
    """A JSON list with one record per figure, one record per line."""
    records = ",\n".join(json.dumps(asdict(figure), ensure_ascii=False) for figure in figures)
    path.write_text(f"[\n{records}\n]\n", encoding="utf-8")


def read_json(path: Path) -> list[Figure]:
    """What `write_json` wrote."""
    return [Figure(**record) for record in json.loads(path.read_text(encoding="utf-8"))]
