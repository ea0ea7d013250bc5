"""Cycles and memory of models over many reports of a folder, and the runs that moved them."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from tremula.base.errors import FileLoadError, MissingProfileData, PoplarError
from tremula.vision.analysis.compare import compare
from tremula.vision.analysis.summary import memory_totals
from tremula.vision.report.reader import ReportReader, open_report
from tremula.vision.report.time_totals import total_cycles
from tremula.vision.trace.beside_report import model_of

Ints = np.ndarray
# What is plotted over runs: the key in `RecordedRun`, and what a reader calls it.
METRICS = {
    "cycles": "cycles",
    "memory_bytes": "bytes on all tiles",
    "largest_tile_bytes": "bytes on the fullest tile",
}
_MOST_REPORTS = 20_000
_N_CAUSES = 3
_SHORT_COMMIT = 10


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """One report: what a model took in one run, at one commit."""

    name: str  # the folder or file below the history's folder
    path: str
    commit: str  # empty if the report was not written in a Git checkout
    created: int  # seconds since 1970
    chip: str
    n_runs: int  # of programs, in this report
    cycles: int | None  # None if nothing ran
    memory_bytes: int
    largest_tile_bytes: int

    @property
    def label(self) -> str:
        """The folder, with the commit if the folder is not named after it."""
        commit = self.commit[:_SHORT_COMMIT]
        return self.name if commit[:7] in self.name else f"{self.name} ({commit})"


@dataclass(frozen=True, slots=True)
class MetricChange:
    """A lasting move of a metric, with the first run that has it."""

    metric: str
    index: int  # of the run
    run: str  # its name
    commit: str
    previous: str  # the run before it
    previous_commit: str
    before: float  # means of the stretches before and after
    after: float
    causes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """How much it moved, as a share of what it was."""
        return self.after / max(1.0, self.before) - 1


@dataclass(frozen=True, slots=True)
class ModelHistory:
    """All runs of one model, oldest first, and what moved."""

    model: str
    runs: tuple[RecordedRun, ...]
    changes: tuple[MetricChange, ...]

    def facts(self) -> dict[str, object]:
        changes = [{**asdict(change), "share": change.share} for change in self.changes]
        return {"model": self.model, "runs": [asdict(r) for r in self.runs], "changes": changes}


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The models of a folder; `skipped` are reports that could not be read, with the reason."""

    folder: str
    models: tuple[ModelHistory, ...]
    skipped: tuple[tuple[str, str], ...]

    def facts(self) -> dict[str, object]:
        """For JSON."""
        return {
            "folder": self.folder,
            "models": [model.facts() for model in self.models],
            "skipped": [{"path": path, "why": why} for path, why in self.skipped],
        }


def history_of(
    folder: Path,
    *,
    model: str | None = None,
    threshold: float = 0.01,
    by_name: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> RunHistory:
    """Read all reports below a folder.

    A change is a move of at least `threshold` (a share) that lasts, beyond the usual noise. Runs
    are in order of their reports' times, or of their names.
    """
    paths = _report_paths(folder)
    runs: dict[str, list[RecordedRun]] = {}
    skipped = []
    for i, path in enumerate(paths):
        try:
            with open_report(path) as reader:
                name, run = _run_of(reader, folder)
        except PoplarError as error:
            skipped.append((str(path), error.what))
        else:
            runs.setdefault(name, []).append(run)
        progress((i + 1) / len(paths))
    names = sorted(runs) if model is None else [_known_model(model, runs)]
    models = [_model_history(name, _ordered(runs[name], by_name), threshold) for name in names]
    if not models:
        raise FileLoadError(
            f"none of the {len(paths):,} reports in {str(folder)!r} can be read: {skipped[0][1]}",
            hint="write them again with this version",
        )
    return RunHistory(str(folder), tuple(models), tuple(skipped))


def _report_paths(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise FileLoadError(
            f"{str(folder)!r} is not a folder.", hint="give a folder with a report for each run"
        )
    paths = sorted(path for path in folder.rglob("*.pop") if path.is_file())
    if not paths:
        raise MissingProfileData(
            f"there is no report (*.pop) in {str(folder)!r} or below it.",
            hint="leave one per run: tremula run --report FOLDER/NAME script.py",
        )
    if len(paths) > _MOST_REPORTS:
        raise MissingProfileData(
            f"{str(folder)!r} has {len(paths):,} reports, expected at most {_MOST_REPORTS:,}.",
            hint="give a folder further down",
        )
    return paths


def _run_of(reader: ReportReader, folder: Path) -> tuple[str, RecordedRun]:
    """The model a report is about, and the report as a run of it."""
    model, name = _names(reader, folder)
    memory, runs = memory_totals(reader), reader.table("runs")
    commit = reader.info.get("commit")
    return model, RecordedRun(
        name=name,
        path=str(reader.path),
        commit=commit if isinstance(commit, str) else "",
        created=int(reader.info.get("created") or 0),
        chip=f"{reader.n_ipus} × {reader.target.get('chip')}",
        n_runs=int(np.asarray(runs["times"]).sum()),
        cycles=total_cycles(reader) if reader.has_run else None,
        memory_bytes=int(memory["total"]),  # pyright: ignore[reportArgumentType]
        largest_tile_bytes=int(memory["largest"]),  # pyright: ignore[reportArgumentType]
    )


def _names(reader: ReportReader, folder: Path) -> tuple[str, str]:
    """(model, run) from the path below the folder.

    That is `RUN/profile.pop`, `RUN/MODEL/profile.pop`, `RUN/2/profile.pop` of a run's second
    engine, or `RUN.pop`.
    """
    path = reader.path.resolve()
    relative = path.relative_to(folder.resolve()) if path.is_relative_to(folder.resolve()) else path
    parts = [*relative.parts[:-1], *([] if path.name == "profile.pop" else [path.stem])]
    of_report = model_of(reader)
    model = str(of_report) if of_report else ""
    if len(parts) > 1 and (parts[-1] == model or re.fullmatch(r"\d{1,3}", parts[-1])):
        model = parts.pop()
    return model or "program", "/".join(parts) or path.parent.name


def _known_model(model: str, runs: dict[str, list[RecordedRun]]) -> str:
    if model in runs:
        return model
    raise MissingProfileData(
        f"no report is about a model {model!r}.", hint=f"there are {', '.join(sorted(runs))}"
    )


def _ordered(runs: Iterable[RecordedRun], by_name: bool) -> list[RecordedRun]:
    return sorted(runs, key=lambda run: (0 if by_name else run.created, _natural(run.name)))


def _natural(name: str) -> list[tuple[int, int, str]]:
    """A key that sorts `run10` after `run9`."""
    parts = re.split(r"(\d+)", name)
    return [(1, int(p), "") if p.isascii() and p.isdigit() else (0, 0, p) for p in parts]


def _model_history(model: str, runs: Sequence[RecordedRun], threshold: float) -> ModelHistory:
    changes = []
    for metric in METRICS:
        numbers = [i for i, run in enumerate(runs) if getattr(run, metric) is not None]
        values = np.array([getattr(runs[i], metric) for i in numbers], float)
        for at, before, after in change_points(values, threshold):
            previous, run = runs[numbers[at - 1]], runs[numbers[at]]
            change = MetricChange(
                metric=metric, index=numbers[at], run=run.name, commit=run.commit,
                previous=previous.name, previous_commit=previous.commit, before=before, after=after,
                causes=_causes(previous, run, metric),
            )  # fmt: skip
            changes.append(change)
    return ModelHistory(model, tuple(runs), tuple(changes))


def _causes(previous: RecordedRun, run: RecordedRun, metric: str) -> tuple[str, ...]:
    """What differs between two runs, the largest first, in words."""
    texts = []
    if run.chip != previous.chip:
        texts.append(f"{run.chip} instead of {previous.chip}")
    if metric == "cycles" and run.n_runs != previous.n_runs:
        texts.append(f"the program ran {run.n_runs:,} times instead of {previous.n_runs:,}")
    try:
        with open_report(previous.path) as before, open_report(run.path) as after:
            differences: list[str] = compare(before, after)["causes"]  # pyright: ignore[reportAssignmentType]
    except PoplarError as error:  # replaced since it was read
        return (*texts, f"the reports cannot be compared: {error.what}")
    unit = " cycles: " if metric == "cycles" else " bytes: "
    return (*texts, *[text for text in differences if unit in text][:_N_CAUSES])


# -- where a series moves --------------------------------------------------------------------------


def change_points(values: Ints, threshold: float) -> list[tuple[int, float, float]]:
    """(first index of the new level, mean before, mean after) of every lasting move.

    The series is cut into stretches of one level each, by least squares of logarithms plus a
    penalty per cut. The penalty is what a single step of `threshold` gains, or more where
    neighbours differ by noise.
    """
    n = len(values)
    if n < 2:
        return []
    logs = np.log(np.maximum(values, 1.0))
    noise = 1.4826 * float(np.median(np.abs(np.diff(logs)))) / np.sqrt(2)
    penalty = max(np.log1p(threshold) ** 2 / 2 * (1 - 1e-9), 4 * noise**2 * np.log(n))
    cuts = [0, *_best_cuts(logs, penalty), n]
    means = [float(values[a:b].mean()) for a, b in pairwise(cuts)]
    moves = zip(cuts[1:-1], means[:-1], means[1:], strict=True)
    return [move for move in moves if abs(move[2] - move[1]) >= threshold * move[1] * (1 - 1e-9)]


def _best_cuts(logs: Ints, penalty: float) -> list[int]:
    """Where to cut so that squares around the means plus the penalties are least."""
    n = len(logs)
    logs = logs - logs[0]
    sums = np.concatenate(([0.0], np.cumsum(logs)))
    squares = np.concatenate(([0.0], np.cumsum(logs**2)))
    best, last = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    best[0] = -penalty
    for end in range(1, n + 1):
        begin = np.arange(end)
        total = sums[end] - sums[begin]
        spread = np.maximum(0.0, squares[end] - squares[begin] - total**2 / (end - begin))
        costs = best[begin] + spread + penalty
        last[end] = int(np.argmin(costs))
        best[end] = costs[last[end]]
    cuts, at = [], int(last[n])
    while at > 0:
        cuts.append(at)
        at = int(last[at])
    return cuts[::-1]
