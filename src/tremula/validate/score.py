"""Predictions beside measurements: errors per row and family, and how well ranks agree."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tremula.validate.outcome import Outcome, predict
from tremula.validate.pool import PredictionTask, predict_side_by_side
from tremula.validate.rows import MeasuredRow
from tremula.validate.saved_rows import Results
from tremula.validate.workloads.table import NoWorkload, Workload, find_workload

TOO_LARGE = "it takes 14 GB to compile, so only --large asks for it"


@dataclass(frozen=True, slots=True)
class Checked:
    """A row and what the model says of it."""

    row: MeasuredRow
    family: str
    predicted: float
    steps: tuple[tuple[str, int], ...] = ()  # name, cycles in all, largest first
    seconds: float = 0.0  # that the prediction took
    gbytes: float = 0.0  # of memory, at most

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
    saved: Results | None = None,
    n_jobs: int = 1,
) -> ValidationResult:
    """Run the cost model on rows; those of equal kind and parameters are computed once.

    `progress(number, total, row)` is called before each computation. Rows that take more
    memory than most computers have are left out unless asked for. What is `saved` from an earlier
    run is not computed again. With `n_jobs` above 1 rows are computed in that many processes.
    """
    rows, notify = list(rows), progress or (lambda *_: None)
    chosen, unchecked = _with_workloads(rows, families)
    known: dict[tuple[object, ...], Outcome] = {}
    tasks: dict[tuple[object, ...], PredictionTask] = {}
    for number, row, workload in chosen:
        known_outcome = None if saved is None else saved.find(row)
        if workload.is_large and not with_large:
            known[row.key] = Outcome(reason=TOO_LARGE)
        elif known_outcome is not None:
            known[row.key] = known_outcome
        else:
            tasks.setdefault(row.key, PredictionTask(number, row, workload.gbytes))
    for task, outcome in _predicted(
        list(tasks.values()), n_jobs, lambda task: notify(task.number, len(rows), task.row)
    ):
        known[task.row.key] = outcome
        if saved is not None:
            saved.keep(task.row, outcome)
    return _collected(chosen, unchecked, known)


_Chosen = list[tuple[int, MeasuredRow, Workload]]


def _with_workloads(
    rows: Sequence[MeasuredRow], families: Sequence[str]
) -> tuple[_Chosen, list[tuple[int, Unchecked]]]:
    """Rows of the families with their workloads, and those without, by their number."""
    chosen, unchecked = [], []
    for number, row in enumerate(rows, start=1):
        try:
            workload = find_workload(row)
        except NoWorkload as reason:
            if not families:
                unchecked.append((number, Unchecked(row, reason.what)))
            continue
        if not families or workload.family in families:
            chosen.append((number, row, workload))
    return chosen, unchecked


def _predicted(
    tasks: Sequence[PredictionTask], n_jobs: int, on_start: Callable[[PredictionTask], None]
) -> Iterable[tuple[PredictionTask, Outcome]]:
    if n_jobs > 1 and len(tasks) > 1:
        yield from predict_side_by_side(tasks, n_jobs, on_start)
        return
    for task in tasks:
        on_start(task)
        yield task, predict(find_workload(task.row), task.row)


def _collected(
    chosen: _Chosen, unchecked: list[tuple[int, Unchecked]], known: dict[tuple, Outcome]
) -> ValidationResult:
    """All rows in the order of their file."""
    checked = []
    for number, row, workload in chosen:
        outcome = known[row.key]
        if outcome.reason:
            unchecked.append((number, Unchecked(row, outcome.reason)))
        else:
            took = outcome.seconds, outcome.gbytes
            checked.append(Checked(row, workload.family, outcome.value, outcome.steps, *took))
    unchecked.sort(key=lambda one: one[0])
    return ValidationResult(tuple(checked), tuple(one for _, one in unchecked))


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
