"""Measurements of real machines: the three file forms, read into one kind of row."""

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tremula.base.errors import FileLoadError, suggest
from tremula.validate.free_text import number_in, read_words, sizes_in

DATA = Path(__file__).parent / "data"
PUBLISHED = DATA / "published.csv"
MORE = DATA / "published_more.csv"
ENERGY = DATA / "energy.csv"
LINK_ROWS = DATA / "links_gc2.csv"
GRID = DATA / "bow_gather_scatter_schnet.csv"

PUBLISHED_COLUMNS = ("id", "chip", "num_ipus", "workload", "parameters", "metric", "unit", "value")
FREE_COLUMNS = ("id", "chip", "workload", "parameters", "metric", "unit", "value")
GRID_COLUMNS = ("op", "amp", "num_inputs", "num_features", "num_outputs", "cycles")

# The grid's operations under the names that published.csv has for them.
_GRID_WORKLOADS = {
    "gather": "torch index_select over rows (popops multiSlice)",
    "scatter_add": "torch_scatter sum (popops multiUpdateAdd)",
    "schnet_block": "PyG SchNet InteractionBlock forward (50 gaussians)",
}


_GRID_SOURCE = "graphcore-research/hydronet-gnn experiments/bow"


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One measurement.

    `parameters` are as written: "k1=v1;k2=v2" split at the signs, or what `free_text` reads in
    words; then `details` is the text itself, and a parameter may be named in singular or plural.
    """

    id: str
    chip: str
    n_ipus: int  # 0: not one number
    workload: str
    parameters: Mapping[str, str]
    metric: str
    unit: str
    value: float | None  # None: not one number
    notes: str = ""
    stated_family: str = ""  # the family the file names, in its words
    details: str = ""  # the parameters as text, where the file has them in words
    source: str = ""  # where it was published
    sdk: str = ""  # the release of Poplar, where the file says it

    def text(self, name: str, default: str | None = None) -> str:
        """A parameter; without a default it must be there."""
        for spelling in self._spellings(name):
            if spelling in self.parameters:
                return self.parameters[spelling]
        if default is None:
            raise RowError(
                f"row {self.id!r} has no parameter {name!r}.",
                hint=suggest(name, self.parameters),
            )
        return default

    def number(self, name: str, default: int | None = None) -> int:
        return int(self.real(name, default))

    def real(self, name: str, default: float | None = None) -> float:
        text = self.text(name, None if default is None else str(default))
        value = number_in(text)
        if value is None:
            raise RowError(
                f"parameter {name!r} of row {self.id!r} is {text!r}, expected a number.",
                hint="correct the row",
            )
        return value

    def sizes(self, name: str) -> tuple[int, ...]:
        """A parameter such as 499x302 or 342^3, as its numbers."""
        text = self.text(name)
        if not (sizes := sizes_in(text)):
            raise RowError(
                f"parameter {name!r} of row {self.id!r} is {text!r}, expected sizes.",
                hint="write them as 499x302 or 342^3",
            )
        return sizes

    def has(self, name: str) -> bool:
        """Whether a parameter is stated, with a value or without."""
        return any(spelling in self.parameters for spelling in self._spellings(name))

    def _spellings(self, name: str) -> tuple[str, ...]:
        if not self.details:
            return (name,)
        return name, f"{name}s", name.removesuffix("s")

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the prediction: rows with equal keys are computed once."""
        parameters = tuple(sorted(self.parameters.items()))
        kind = self.workload, self.stated_family
        return self.chip, self.n_ipus, *kind, parameters, self.metric, self.unit, self.sdk


class RowError(FileLoadError):
    """A row of a file of measurements cannot be used."""


def read_rows(path: str | Path) -> list[MeasuredRow]:
    """The rows of a CSV file with parameters as "k=v", with parameters in words, or of the grid."""
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            columns = tuple(name.strip().lower() for name in table.fieldnames or ())
            table.fieldnames = columns
            records = list(table)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in columns"
        raise FileLoadError(
            f"cannot read the measurements {str(path)!r}: {reason}.", hint="give a CSV file"
        ) from error
    short = next((n for n, r in enumerate(records, start=2) if None in r.values()), None)
    if short is not None:
        raise RowError(
            f"line {short} of {str(path)!r} has fewer values than the {len(columns)} columns.",
            hint="write a comma for each, also where there is nothing to say",
        )
    if all(name in columns for name in GRID_COLUMNS):
        return [_grid_row(record, number) for number, record in enumerate(records, start=2)]
    if "num_ipus" not in columns and all(name in columns for name in FREE_COLUMNS):
        return [_row_in_words(record) for record in records]
    missing = [name for name in PUBLISHED_COLUMNS if name not in columns]
    if missing:
        raise FileLoadError(
            f"{str(path)!r} has columns {', '.join(columns) or 'none'}; it lacks "
            f"{', '.join(missing)}.",
            hint=f"give a file with columns {', '.join(PUBLISHED_COLUMNS)}; or "
            f"{', '.join(FREE_COLUMNS)}; or {', '.join(GRID_COLUMNS)}",
        )
    return [_published_row(record) for record in records]


def _published_row(record: Mapping[str, str]) -> MeasuredRow:
    if record["parameters"].strip() and "=" not in record["parameters"]:
        row, stated = _row_in_words(record), record["num_ipus"].strip()
        return replace(row, n_ipus=_as_count(stated)) if stated else row
    parts = [part.partition("=") for part in record["parameters"].split(";") if part.strip()]
    return MeasuredRow(
        record["id"],
        record["chip"].strip(),
        _as_count(record["num_ipus"]),
        record["workload"].strip(),
        {name.strip(): value.strip() for name, _, value in parts},
        record["metric"].strip(),
        record["unit"].strip(),
        _as_number(record["value"]),
        record.get("notes") or "",
        source=record.get("source") or "",
        sdk=(record.get("sdk_if_known") or "").strip(),
    )


def _row_in_words(record: Mapping[str, str]) -> MeasuredRow:
    """What the parameters do not state, the workload's name may: "(500x1000 per IPU)"."""
    details, workload = record["parameters"].strip(), record["workload"].strip()
    parameters = read_words(workload) | read_words(details)
    return MeasuredRow(
        record["id"],
        record["chip"].strip(),
        _n_ipus_in(parameters),
        workload,
        parameters,
        record["metric"].strip(),
        record["unit"].strip(),
        _as_number(record["value"]),
        record.get("notes") or record.get("source") or "",
        (record.get("family") or "").strip(),
        details or "-",
        source=record.get("source") or "",
        sdk=parameters.get("sdk", ""),
    )


def _n_ipus_in(parameters: Mapping[str, str]) -> int:
    """The number of chips: as stated ("16 IPUs", "16 Bow IPUs"), that of the pod, or one."""
    exact = ("ipus", "chips", "chip", "cards", "card")
    counted = [name for name in parameters if re.fullmatch(r"(?!.*per_).*_(ipu|chip|card)s?", name)]
    for name in (*exact, *counted, "pod"):
        if name in parameters and (n := number_in(parameters[name])) is not None:
            return int(n)
    said = (re.fullmatch(r"(\d+) (?:chip|ipu|card)s?", v.lower()) for v in parameters.values())
    return next((int(match[1]) for match in said if match), 1)


def _grid_row(record: Mapping[str, str], line: int) -> MeasuredRow:
    op = record["op"].strip()
    if op not in _GRID_WORKLOADS:
        raise RowError(
            f"line {line} has operation {op!r}, expected one of {', '.join(_GRID_WORKLOADS)}.",
            hint=suggest(op, _GRID_WORKLOADS),
        )
    shape = {name: record[name] for name in ("num_inputs", "num_features", "num_outputs")}
    name = "-".join((op, record["amp"], *shape.values()))
    parameters = {**shape, "dtype": "fp32", "amp": record["amp"]}
    value = _as_number(record["cycles"])
    return MeasuredRow(
        name,
        "Bow",
        1,
        _GRID_WORKLOADS[op],
        parameters,
        "cycles",
        "cycles",
        value,
        source=_GRID_SOURCE,
    )


def _as_count(text: str) -> int:
    """The number of chips: one if not given, 0 if what is given is not a number."""
    text = text.strip() or "1"
    return int(text) if text.isdecimal() else 0


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def every_nth(rows: Iterable[MeasuredRow], n_wanted: int) -> list[MeasuredRow]:
    """About n_wanted rows, evenly spread over the file: the same ones every time."""
    rows = list(rows)
    if n_wanted >= len(rows):
        return rows
    return [rows[i * len(rows) // n_wanted] for i in range(n_wanted)]
