"""Workloads: which tile program represents a measured row, and how its metric is read.

A workload is added in one place: a file in this folder (or in a folder below it) with a function
under the decorator `workload`, which names the rows it stands for by words of their workload and,
where these are not enough, of the family that the file of measurements states. Every file here is
imported when rows are looked up. Of two that fit a row, that which matches more of its text counts.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import walk_packages
from typing import Literal

from tremula.base.errors import PoplarError
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing

# Rows' names of chips, and ours. Anything else is not a single known chip.
_CHIPS = {
    "gc2": "gc2", "mk1": "gc2", "gc200": "gc200", "mk2": "gc200", "m2000": "gc200",
    "ipu-m2000": "gc200", "bow": "bow", "bow-2000": "bow", "c600": "c600",
}  # fmt: skip

_SECONDS = {
    "ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3, "s": 1.0, "sec": 1.0, "seconds": 1.0,
    "min": 1 / 60, "minutes": 1 / 60, "h": 1 / 3600, "hours": 1 / 3600,
}  # fmt: skip
_PER_SECOND = {"GB/s": 1e9, "TB/s": 1e12, "MB/s": 1e6}
_ITEMS = re.compile(r"^([kMGT]?)([a-z]+)/(?:s|sec|second)$")  # items/s, samples/s, it/s, Gpoints/s
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class NoWorkload(PoplarError):
    """No tile program represents a row; the text says why."""


@dataclass(frozen=True, slots=True)
class ModelledValue:
    """What a workload took by the model; amounts are there where the metric needs them."""

    cycles: float
    clock_hz: float
    n_bytes: float = 0.0  # moved in all
    n_flops: float = 0.0
    peak_bytes_per_s: float = 0.0
    value: float | None = None  # the metric itself, where it is not a time or a rate
    n_items: float = 0.0  # whatever is counted: samples, sequences, points, steps
    steps: tuple[tuple[str, int, int], ...] = ()  # name, how often, cycles of one execution

    @classmethod
    def of(cls, timing: Timing, **amounts: float) -> "ModelledValue":
        return cls(timing.cycles, timing.clock_hz, steps=timing.steps, **amounts)

    def in_unit(self, unit: str) -> float:
        """The metric in the unit of a row."""
        if self.value is not None:
            return self.value
        seconds = self.cycles / self.clock_hz
        if unit == "cycles":
            return self.cycles
        if unit in _SECONDS:
            return seconds * _SECONDS[unit]
        if unit in _PER_SECOND and self.n_bytes:
            return self.n_bytes / seconds / _PER_SECOND[unit]
        if unit == "TFLOP/s" and self.n_flops:
            return self.n_flops / seconds / 1e12
        if unit == "%" and self.peak_bytes_per_s:
            return 100 * self.n_bytes / seconds / self.peak_bytes_per_s
        items = _ITEMS.match(unit)
        if items is not None and self.n_items:
            return self.n_items / seconds / _PREFIXES[items[1]]
        raise NoWorkload(f"the workload gives no figure in {unit!r}.", hint="use another unit")


Predict = Callable[[MeasuredRow, str], ModelledValue]  # the row, and our name of its chip


@dataclass(frozen=True, slots=True)
class Workload:
    pattern: re.Pattern[str]
    family: str
    predict: Predict
    n_chips: Literal["one", "several", "any"]
    is_large: bool  # takes more memory than most computers have
    mode: str  # rows with a parameter "mode" must begin with it
    stated: re.Pattern[str]  # of the family a file states; files without that column fit
    gbytes: float  # of memory to predict a row, about: decides how many run side by side

    def fits(self, row: MeasuredRow) -> bool:
        """Whether all but the workload's text fits."""
        n_chips = "one" if row.n_ipus == 1 else "several"
        has_mode = row.text("mode", self.mode).startswith(self.mode)
        fits_family = not row.stated_family or bool(self.stated.search(row.stated_family))
        return has_mode and fits_family and self.n_chips in (n_chips, "any")

    def n_matched(self, row: MeasuredRow) -> int:
        """How many letters of the row's workload the pattern matches; 0 if it does not fit."""
        match = self.pattern.search(row.workload) if self.fits(row) else None
        return len(match[0]) if match else 0


WORKLOADS: list[Workload] = []
GBYTES, LARGE_GBYTES = 1.0, 14.0  # of a workload that says nothing


def workload(
    pattern: str,
    family: str,
    n_chips: Literal["one", "several", "any"] = "any",
    *,
    is_large: bool = False,
    mode: str = "",
    stated: str = "",
    gbytes: float = 0.0,
) -> Callable[[Predict], Predict]:
    """Decorator: a function that predicts rows whose workload text matches the pattern.

    `family` is where its errors are counted; `stated` a pattern of the family the row's file names.
    """

    def add(predict: Predict) -> Predict:
        patterns = [re.compile(text, re.IGNORECASE) for text in (pattern, stated)]
        memory = gbytes or (LARGE_GBYTES if is_large else GBYTES)
        WORKLOADS.append(
            Workload(patterns[0], family, predict, n_chips, is_large, mode, patterns[1], memory)
        )
        return predict

    return add


# Why rows of some kinds have no workload: what is missing, by a pattern of their workload text.
REASONS = (
    ("power-law", "it is a fit to other measurements"),
    ("SchNet QM9 training notebook", "its time is that of Python collating 3600 molecules a step"),
    ("GraphSAGE", "its program, data set and batch were never published"),
    ("entity table", "it is a capacity stated for a separate framework"),
    ("vs A100|^(?!.*sparse).*speed-up", "it compares two machines or methods"),
    ("dynamic power", "it is an energy, which is an input of the model and not computed by it"),
)


@cache
def _load() -> tuple[Workload, ...]:
    """Every workload of this folder."""
    package = import_module(__package__ or "")
    for module in walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return tuple(WORKLOADS)


def family_names() -> tuple[str, ...]:
    """Every family."""
    return tuple(sorted({one.family for one in _load()}))


def find_workload(row: MeasuredRow, *, checks_chip: bool = True) -> Workload:
    """The workload of a row, or NoWorkload with the reason.

    `checks_chip=False` accepts rows of any chip, also of one that is not known by name.
    """
    known = _load()
    if row.value is None:
        raise NoWorkload("its value is not one number", hint="")
    if row.n_ipus < 1:
        raise NoWorkload("its number of chips is not a number", hint="")
    for pattern, reason in REASONS:
        if re.search(pattern, row.workload, re.IGNORECASE):
            raise NoWorkload(reason, hint="")
    best = max(known, key=lambda one: one.n_matched(row))
    if best.n_matched(row):
        if checks_chip:
            chip_of(row)
        return best
    if re.search("training|inference|notebook", row.workload, re.IGNORECASE):
        raise NoWorkload("it is a whole model that was not written yet", hint="")
    raise NoWorkload("no tile program was written for it", hint="")


def chip_of(row: MeasuredRow) -> str:
    """Our name of the row's chip; "C600 (ipu21)" and "Mk2 (chip not stated)" name one too."""
    name = row.chip.lower().strip()
    if "pod" in name and "bow" not in name:  # Graphcore called those of the next chip Bow Pods
        return "gc200"
    plain = re.sub(r"\(.*?\)", "", name).strip()
    words = (name, plain, *re.findall(r"[\w-]+", plain))
    ours = next((_CHIPS[word] for word in words if word in _CHIPS), None)
    if ours is None:
        raise NoWorkload(f"chip {row.chip!r} does not name one generation", hint="")
    return ours
