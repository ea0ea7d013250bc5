"""Workloads: which tile program represents a measured row, and how its metric is read."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from tremula.base.errors import PoplarError
from tremula.validate.rows import MeasuredRow
from tremula.validate.timing import Timing

# Importing these registers their workloads; the order decides which of two patterns is asked first.
MODULES = (
    "tremula.validate.workloads.memory",
    "tremula.validate.workloads.exchange",
    "tremula.validate.workloads.link",
    "tremula.validate.workloads.reduce",
    "tremula.validate.workloads.gather",
    "tremula.validate.workloads.matmul",
    "tremula.validate.workloads.sparse",
    "tremula.validate.workloads.schnet",
    "tremula.validate.workloads.model_schnet",
    "tremula.validate.workloads.model_transformers",
    "tremula.validate.workloads.model_kge",
)

# Rows' names of chips, and ours. Anything else is not a single known chip.
_CHIPS = {
    "gc2": "gc2", "mk1": "gc2", "gc200": "gc200", "mk2": "gc200", "m2000": "gc200",
    "ipu-m2000": "gc200", "bow": "bow", "bow-2000": "bow", "c600": "c600",
}  # fmt: skip

_SECONDS = {"ns": 1e9, "us": 1e6, "µs": 1e6, "ms": 1e3, "s": 1.0}
_PER_SECOND = {"GB/s": 1e9, "TB/s": 1e12, "MB/s": 1e6}


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

    @classmethod
    def of(cls, timing: Timing, **amounts: float) -> "ModelledValue":
        return cls(timing.cycles, timing.clock_hz, **amounts)

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

    def fits(self, row: MeasuredRow) -> bool:
        n_chips = "one" if row.n_ipus == 1 else "several"
        has_mode = row.text("mode", self.mode).startswith(self.mode)
        fits_text = bool(self.pattern.search(row.workload))
        return fits_text and has_mode and self.n_chips in (n_chips, "any")


WORKLOADS: list[Workload] = []


def workload(
    pattern: str,
    family: str,
    n_chips: Literal["one", "several", "any"] = "any",
    *,
    is_large: bool = False,
    mode: str = "",
) -> Callable[[Predict], Predict]:
    """Decorator: a function that predicts rows whose workload text matches the pattern."""

    def add(predict: Predict) -> Predict:
        compiled = re.compile(pattern, re.IGNORECASE)
        WORKLOADS.append(Workload(compiled, family, predict, n_chips, is_large, mode))
        return predict

    return add


# Why rows of some kinds have no workload: what is missing, by a pattern of their workload text.
REASONS = (
    ("power-law", "it is a fit to other measurements"),
    ("SchNet QM9 training notebook", "its time is that of Python collating 3600 molecules a step"),
    ("entity table", "it is a capacity stated for a separate framework"),
    ("vs A100|^(?!.*sparse).*speed-up", "it compares two machines or methods"),
    ("power", "it is an energy, which is an input of the model and not computed by it"),
)


def _load() -> list[Workload]:
    for module in MODULES:
        import_module(module)
    return WORKLOADS


def family_names() -> tuple[str, ...]:
    """Every family, in the order of their workloads."""
    return tuple(dict.fromkeys(one.family for one in _load()))


def find_workload(row: MeasuredRow) -> Workload:
    """The workload of a row, or NoWorkload with the reason."""
    known = _load()
    if row.value is None:
        raise NoWorkload("its value is not one number", hint="")
    if row.n_ipus < 1:
        raise NoWorkload("its number of chips is not a number", hint="")
    for pattern, reason in REASONS:
        if re.search(pattern, row.workload, re.IGNORECASE):
            raise NoWorkload(reason, hint="")
    for candidate in known:
        if candidate.fits(row):
            chip_of(row)
            return candidate
    if re.search("training|inference|notebook", row.workload, re.IGNORECASE):
        raise NoWorkload("it is a whole model that was not written yet", hint="")
    raise NoWorkload("no tile program was written for it", hint="")


def chip_of(row: MeasuredRow) -> str:
    """Our name of the row's chip."""
    name = row.chip.lower().strip()
    if "pod" in name and "bow" not in name:  # Graphcore called those of the next chip Bow Pods
        return "gc200"
    if name not in _CHIPS:
        raise NoWorkload(f"chip {row.chip!r} does not name one generation", hint="")
    return _CHIPS[name]
