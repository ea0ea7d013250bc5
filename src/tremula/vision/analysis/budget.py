"""Budgets for CI: the most a report may cost, in a TOML file or a mapping."""

import math
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError, InvalidOption, MissingProfileData, suggest
from tremula.base.storage import strict_toml
from tremula.vision.analysis.operations import operation_columns
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.report.time_totals import PARTS, machine_split, total_cycles

Number = int | float


@dataclass(frozen=True, slots=True)
class Verdict:
    """One limit of a budget, and the report's value."""

    name: str
    value: float
    limit: float
    holds: bool

    def __str__(self) -> str:
        word = "ok  " if self.holds else "OVER"
        over = "" if self.holds else f", {_shown(self.value - self.limit)} over"
        return f"{word} {self.name}: {_shown(self.value)} of {_shown(self.limit)}{over}"


def _shown(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.4g}"


def _ran(reader: ReportReader) -> ReportReader:
    if not reader.has_run:
        raise MissingProfileData(
            f"report {str(reader.path)!r} has no execution, so its cycles have no budget.",
            hint="run the program, or budget memory alone",
        )
    return reader


def _part(reader: ReportReader, name: str) -> int:
    """A phase or waiting, on average over chips."""
    return machine_split(_ran(reader))[name]


def _tiles(reader: ReportReader, name: str) -> int:
    return int(reader.table("tiles")[name].max())


def _category(reader: ReportReader, name: str) -> int:
    table = reader.table("categories")
    known = [n.lower().replace(" ", "_") for n in table["name"]]
    if name not in known:
        raise InvalidOption(f"there is no memory category {name!r}.", hint=suggest(name, known))
    row = known.index(name)
    return int(table["always_live"][row] + table["temporary"][row])


MEASURES: dict[str, Callable[[ReportReader], Number]] = {
    "total_cycles": lambda r: total_cycles(_ran(r)),
    **{f"{name}_cycles": partial(_part, name=name) for name in PARTS},
    "exchange_share": lambda r: _part(r, "exchange") / max(1, total_cycles(r)),
    "largest_tile_bytes": lambda r: _tiles(r, "including_gaps"),
    "total_bytes": lambda r: int(r.table("tiles")["including_gaps"].sum()),
    "always_live_bytes": lambda r: int(r.table("tiles")["always_live"].sum()),
    "temporary_bytes": lambda r: int(r.table("tiles")["temporary"].sum()),
    "largest_temporary_bytes": lambda r: _tiles(r, "temporary"),
    "bytes_exchanged": lambda r: int(
        (r.table("steps")["bytes_in"] * _ran(r).table("steps")["executed"]).sum()
    ),
    "overflowed_bytes": lambda r: _tiles(r, "overflowed"),
    "n_steps": lambda r: r.n_steps,
    "n_vertices": lambda r: int(r.info["n_vertices"]),
}
_TABLES = ("operations", "categories")


def load_budget(path: str | os.PathLike[str]) -> dict[str, object]:
    """A budget from a TOML file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        return strict_toml.loads(text)
    except (OSError, UnicodeDecodeError) as error:
        raise FileLoadError(
            f"cannot read the budget {str(path)!r}: {_why(error)}.",
            hint="give the path of a TOML file",
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise FileLoadError(
            f"budget {str(path)!r} is not TOML: {error}.",
            hint="write lines such as  total_cycles = 1_000_000",
        ) from error


def _why(error: OSError | UnicodeDecodeError) -> str:
    return (
        "it is not text" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
    )


def check_budget(
    report: ReportReader | str | os.PathLike[str], budget: Mapping[str, object]
) -> list[Verdict]:
    """A verdict for each line: plain measures, `[operations]` by pattern, `[categories]`."""
    if not isinstance(report, ReportReader):
        with open_report(report) as opened:
            return check_budget(opened, budget)
    if not budget:
        raise InvalidOption(
            "the budget is empty, so nothing would be checked.",
            hint="write lines such as  total_cycles = 1_000_000",
        )
    verdicts = []
    for name, limit in budget.items():
        if name in _TABLES:
            verdicts += _check_table(report, name, limit)
        elif name in MEASURES:
            verdicts.append(_verdict(name, MEASURES[name](report), limit))
        else:
            raise _unknown(name, limit)
    return verdicts


def _unknown(name: str, limit: object) -> InvalidOption:
    if isinstance(limit, Mapping):
        known = " and ".join(f"[{table}]" for table in _TABLES)
        return InvalidOption(
            f"a budget has no table [{name}].",
            hint=f"its tables are {known}; measures such as total_cycles stand above them",
        )
    return InvalidOption(
        f"a budget has no measure {name!r}.", hint=suggest(name, [*MEASURES, *_TABLES])
    )


def _check_table(report: ReportReader, name: str, limits: object) -> list[Verdict]:
    if not isinstance(limits, Mapping):
        raise InvalidOption(
            f"{name} of a budget must be a table, got {limits!r}.", hint=f"write [{name}]"
        )
    if name == "categories":
        return [_verdict(f"{name}.{k}", _category(report, k), v) for k, v in limits.items()]
    columns = operation_columns(_ran(report))
    names: list[str] = columns["name"]  # pyright: ignore[reportAssignmentType]
    cycles: np.ndarray = columns["cycles"]  # pyright: ignore[reportAssignmentType]
    verdicts = []
    for pattern, limit in limits.items():
        mine = [i for i, n in enumerate(names) if fnmatchcase(n, pattern)]
        if not mine:
            raise InvalidOption(f"no operation matches {pattern!r}.", hint=suggest(pattern, names))
        verdicts.append(_verdict(f"{name}.{pattern}", int(cycles[mine].sum()), limit))
    return verdicts


def _verdict(name: str, value: Number, limit: object) -> Verdict:
    is_bool = isinstance(limit, bool)
    if is_bool or not isinstance(limit, int | float) or not _is_readable(limit):
        raise InvalidOption(
            f"the limit of {name} must be a number, got {limit!r}.", hint=f"write  {name} = 1000"
        )
    return Verdict(name, float(value), float(limit), value <= limit)


def _is_readable(limit: Number) -> bool:
    return not math.isnan(limit) if isinstance(limit, float) else limit < 1 << 64
