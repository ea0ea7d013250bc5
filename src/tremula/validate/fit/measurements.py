"""The measurements that a chip is fitted to: a CSV file, checked before anything is computed.

| column | |
|---|---|
| id | any name; the report uses it |
| workload | a program of the template, or any single operation that `tremula validate` knows |
| parameters | name=value;name=value |
| unit | cycles, ns, us, ms, s, MB/s, GB/s, TB/s, TFLOP/s, % |
| value | what was measured; a row without one is left out |
| num_ipus | chips that take part; 1 if it is missing |
| error | the standard error of the value in percent, if it is known |
| chip, source | rows of a known other chip are an error; rows of a source are left out together |
"""

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tremula.base.errors import FileLoadError, suggest
from tremula.hardware import CHIPS, Chip
from tremula.validate.rows import MeasuredRow, RowError
from tremula.validate.workloads.fit_programs import PARAMETERS, PROGRAMS
from tremula.validate.workloads.table import NoWorkload, Workload, find_workload

REQUIRED = ("id", "workload", "parameters", "unit", "value")
COLUMNS = ("id", "chip", "num_ipus", "workload", "parameters", "metric", "unit", "value", "error")
TIMES = ("cycles", "ns", "us", "µs", "ms", "s")
RATES = ("MB/s", "GB/s", "TB/s", "TFLOP/s", "%")
MIN_ROWS = 5


@dataclass(frozen=True, slots=True)
class Measurement:
    """A row, the workload that predicts it, and how sure its value is."""

    row: MeasuredRow
    workload: Workload
    source: str
    error: float  # relative standard error; 0 if it is not stated

    @property
    def is_rate(self) -> bool:
        return self.row.unit not in TIMES

    @property
    def time(self) -> float:
        """The value as something that grows with time: of a rate its inverse."""
        assert self.row.value is not None, "rows without a value are left out"
        return 1 / self.row.value if self.is_rate else self.row.value


def read_measurements(path: str | Path, chip: Chip) -> list[Measurement]:
    """The rows of a file that have a value; an error names what cannot be used."""
    result = []
    for line, record in _records(Path(path)):
        if record["value"].strip():
            result.append(_measurement(record, f"line {line} of {str(path)!r}", chip))
    check_enough(result, str(path))
    return result


def check_enough(rows: list[Measurement], origin: str) -> None:
    if len(rows) < MIN_ROWS:
        raise RowError(
            f"{origin} has {len(rows)} rows with a value, expected at least {MIN_ROWS}.",
            hint="`tremula fit --template FOLDER` writes 25 programs that are worth measuring",
        )


def _records(path: Path) -> Sequence[tuple[int, Mapping[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            columns = tuple(table.fieldnames or ())
            records = [(table.line_num, record) for record in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in columns"
        raise FileLoadError(
            f"cannot read the measurements {str(path)!r}: {reason}.", hint="give a CSV file"
        ) from error
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        raise FileLoadError(
            f"{str(path)!r} has columns {', '.join(columns) or 'none'}; it lacks "
            f"{', '.join(missing)}.",
            hint=f"the columns are {', '.join(COLUMNS)}; `tremula fit --template` writes them",
        )
    for line, record in records:
        if None in record.values() or None in record:
            raise RowError(
                f"line {line} of {str(path)!r} does not have {len(columns)} values.",
                hint="write a comma for each column; quote text that has commas",
            )
    return records


def _measurement(record: Mapping[str, str], where: str, chip: Chip) -> Measurement:
    _check_chip(record, where, chip)
    unit = record["unit"].strip()
    if unit not in TIMES + RATES:
        raise RowError(f"{where}: unknown unit {unit!r}.", hint=suggest(unit, TIMES + RATES))
    value = _positive(record["value"], f"{where}: the value")
    parts = [part.partition("=") for part in record["parameters"].split(";") if part.strip()]
    row = MeasuredRow(
        id=record["id"].strip() or where,
        chip=chip.name,
        n_ipus=int(_positive(record.get("num_ipus", "").strip() or "1", f"{where}: num_ipus")),
        workload=record["workload"].strip(),
        parameters={name.strip(): text.strip() for name, _, text in parts},
        metric=record.get("metric", "").strip(),
        unit=unit,
        value=value,
    )
    error = record.get("error", "").strip()
    relative = _positive(error, f"{where}: the error") / 100 if error else 0.0
    workload = _workload_of(row, where)
    return Measurement(row, workload, record.get("source", "").strip(), relative)


def _workload_of(row: MeasuredRow, where: str) -> Workload:
    name = row.workload.lower()
    if name in PROGRAMS:
        for key in PARAMETERS[name]:
            if row.number(key) < 0:
                raise RowError(
                    f"{where}: parameter {key!r} is {row.number(key)}, expected 0 or more.",
                    hint="correct the row",
                )
    try:
        # Only the chip that the fit starts from matters; its name may be the user's own.
        return find_workload(row, checks_chip=False)
    except NoWorkload as reason:
        raise RowError(
            f"{where}: no program stands for workload {row.workload!r} ({reason.what}).",
            hint=f"{suggest(row.workload, PROGRAMS)} Programs: {', '.join(PROGRAMS)}.",
        ) from reason


def _check_chip(record: Mapping[str, str], where: str, chip: Chip) -> None:
    name = record.get("chip", "").strip().lower()
    base = chip.name.rstrip("*").lower()
    if name in CHIPS and base in CHIPS and name != base:
        raise RowError(
            f"{where} was measured on {record['chip'].strip()!r}, and the fit starts from "
            f"{chip.name!r}.",
            hint=f"give rows of one chip, or start with --from {name}",
        )


def _positive(text: str, what: str) -> float:
    try:
        value = float(text.replace(",", "").replace("_", ""))
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise RowError(f"{what} is {text.strip()!r}, expected a number above 0.", hint="correct it")
    return value
