"""Predictions beside measurements: errors per row and family, and how well ranks agree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tremula.base.errors import PoplarError
from tremula.validate.rows import MeasuredRow
from tremula.validate.saved_rows import SavedResults
from tremula.validate.workloads.table import NoWorkload, chip_of, find_workload

TOO_LARGE = "it takes 14 GB to compile, so only --large asks for it"


@dataclass(frozen=True, slots=True)
class Checked:
    """A row and what the model says of it."""

    row: MeasuredRow
    family: str
    predicted: float

    @property
    def measured(self) -> float:
        assert self.row.value is not None, "rows without a number have no workload"
        return self.row.value

    @property
    def error(self) -> float:
        """How far off, relative to the measurement; positive if the prediction is larger."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A row without a workload, and why."""

    row: MeasuredRow
    reason: str


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """All rows of a validation."""

    checked: tuple[Checked, ...]
    unchecked: tuple[Unchecked, ...]

    @property
    def families(self) -> dict[str, list[Checked]]:
        """Rows by family, families in the order of their first row."""
        result: dict[str, list[Checked]] = {}
        for one in self.checked:
            result.setdefault(one.family, []).append(one)
        return result


@dataclass(frozen=True, slots=True)
class Score:
    """Errors of many rows, in absolute value."""

    n_rows: int
    median: float
    worst: float
    worst_id: str

    @classmethod
    def of(cls, rows: Sequence[Checked]) -> "Score":
        worst = max(rows, key=lambda one: abs(one.error))
        median = float(np.median([abs(one.error) for one in rows]))
        return cls(len(rows), median, abs(worst.error), worst.row.id)


def validate(
    rows: Iterable[MeasuredRow],
    families: Sequence[str] = (),
    progress: Callable[[int, int, MeasuredRow], None] | None = None,
    *,
    with_large: bool = False,
    kept: SavedResults | None = None,
) -> ValidationResult:
    """Run the cost model on rows; those of equal kind and parameters are computed once.

    `progress(number, total, row)` is called before each computation. Rows that take more
    memory than most computers have are left out unless asked for. What is `kept` from an earlier
    run is not computed again.
    """
    checked, unchecked = [], []
    known: dict[tuple[object, ...], float | str] = {}
    rows, notify = list(rows), progress or (lambda *_: None)
    for number, row in enumerate(rows, start=1):
        try:
            workload = find_workload(row)
            if families and workload.family not in families:
                continue
            if row.key not in known and workload.is_large and not with_large:
                known[row.key] = TOO_LARGE
            elif row.key not in known:
                known[row.key] = _outcome_of(
                    workload.predict, row, kept, lambda n=number, r=row: notify(n, len(rows), r)
                )
            result = known[row.key]
            if isinstance(result, str):
                unchecked.append(Unchecked(row, result))
            else:
                checked.append(Checked(row, workload.family, result))
        except NoWorkload as reason:
            if not families:
                unchecked.append(Unchecked(row, reason.what))
    return ValidationResult(tuple(checked), tuple(unchecked))


def _outcome_of(
    predict: Callable, row: MeasuredRow, kept: SavedResults | None, notify: Callable[[], None]
) -> float | str:
    """The prediction in the row's unit, or why there is none."""
    result = None if kept is None else kept.find(row)
    if result is not None:
        return result
    notify()
    try:
        result = predict(row, chip_of(row)).in_unit(row.unit)
    except PoplarError as reason:  # a user's row may describe something that cannot be built
        result = reason.what
    if kept is not None:
        kept.keep(row, result)
    return result


def rank_correlation(rows: Sequence[Checked]) -> float:
    """Spearman's, over seconds or rates alike: how well the order within each unit agrees.

    Values of different units cannot be ranked together, so ranks are taken within each unit, and
    scaled to the number of rows with it.
    """
    if len(rows) < 2:
        return 1.0
    ours, theirs = np.zeros(len(rows)), np.zeros(len(rows))
    units = [one.row.unit for one in rows]
    for unit in dict.fromkeys(units):
        at = [i for i, u in enumerate(units) if u == unit]
        ours[at] = _ranks([rows[i].predicted for i in at]) / len(at)
        theirs[at] = _ranks([rows[i].measured for i in at]) / len(at)
    if np.ptp(ours) == 0 or np.ptp(theirs) == 0:
        return 1.0
    return float(np.corrcoef(ours, theirs)[0, 1])


def _ranks(values: Sequence[float]) -> np.ndarray:
    """1 … n; equal values share the mean of their ranks."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return ((last - counts + 1 + last) / 2)[inverse]
