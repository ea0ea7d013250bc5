"""An earlier run beside this one: which rows moved, and which steps moved them."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.validate.score import Checked, ValidationResult

LEAST_MOVE = 0.005  # of the earlier prediction
N_STEPS = 4  # that are named for a row
N_STEPS_KEPT = 24  # in the file of a run; smaller ones are added up under REST
REST = "(all others)"

Steps = dict[str, int]  # cycles by name


@dataclass(frozen=True, slots=True)
class EarlierRow:
    """What an earlier run said of a row."""

    predicted: float
    steps: Steps


@dataclass(frozen=True, slots=True)
class Moved:
    """A row whose prediction changed; `steps` are (name, cycles before, cycles now), largest first.

    A step that is new had none before; one that is gone has none now.
    """

    row: Checked
    before: float
    steps: tuple[tuple[str, int, int], ...]

    @property
    def change(self) -> float:
        return self.row.predicted / self.before - 1

    @property
    def error_before(self) -> float:
        return self.before / self.row.measured - 1


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run and an earlier one: rows that moved, and identifiers that only one of them has."""

    n_same: int
    moved: tuple[Moved, ...]
    new: tuple[str, ...]
    gone: tuple[str, ...]


def steps_record(steps: Iterable[tuple[str, int]]) -> list[list[str | int]]:
    """The steps of a row as the file of a run has them."""
    ranked = list(steps)
    rest = sum(cycles for _, cycles in ranked[N_STEPS_KEPT:])
    return [list(step) for step in ranked[:N_STEPS_KEPT]] + ([[REST, rest]] if rest else [])


def read_baseline(path: Path) -> dict[str, EarlierRow]:
    """Rows by identifier of a file that `tremula validate --json` wrote."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {
            str(row["id"]): EarlierRow(
                float(row["predicted"]), {str(n): int(c) for n, c in row.get("steps", ())}
            )
            for row in record["rows"]
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a run of validate"
        raise FileLoadError(
            f"cannot read the baseline {str(path)!r}: {reason}.",
            hint="give a file that `tremula validate --json FILE` wrote",
        ) from error


def compare(result: ValidationResult, earlier: dict[str, EarlierRow]) -> Comparison:
    """Which rows moved by more than LEAST_MOVE, the largest changes first."""
    known = [one for one in result.checked if one.row.id in earlier]
    moved = [
        Moved(one, before.predicted, _moved_steps(before.steps, one))
        for one in known
        if _has_moved((before := earlier[one.row.id]).predicted, one.predicted)
    ]
    ids = {one.row.id for one in result.checked}
    return Comparison(
        len(known) - len(moved),
        tuple(sorted(moved, key=lambda one: -abs(one.change))),
        tuple(one.row.id for one in result.checked if one.row.id not in earlier),
        tuple(sorted(set(earlier) - ids)),
    )


def _has_moved(before: float, now: float) -> bool:
    return abs(now - before) > LEAST_MOVE * abs(before)


def _moved_steps(before: Steps, row: Checked) -> tuple[tuple[str, int, int], ...]:
    now = {str(name): int(cycles) for name, cycles in steps_record(row.steps)}  # type: ignore[call-overload]
    names = dict.fromkeys((*now, *before))
    changes = [(name, before.get(name, 0), now.get(name, 0)) for name in names]
    changes = [change for change in changes if change[1] != change[2]]
    changes.sort(key=lambda change: -abs(change[2] - change[1]))
    return tuple(changes[:N_STEPS])


def comparison_lines(comparison: Comparison) -> Iterator[str]:
    """The comparison in words."""
    yield f"beside the baseline: {len(comparison.moved)} rows moved, {comparison.n_same} did not"
    for one in comparison.moved:
        errors = f"error {one.error_before:+.1%} -> {one.row.error:+.1%}"
        yield f"  {one.row.row.id}: {one.change:+.1%} ({errors})"
        for name, before, now in one.steps:
            yield f"      {name}: {before:,} -> {now:,} cycles"
        if not one.steps:
            yield "      no step of its program changed: the host's part, or how its metric is read"
    for what, ids in (("only now", comparison.new), ("only in the baseline", comparison.gone)):
        if ids:
            shown = ", ".join(ids[:6]) + (f", … ({len(ids) - 6} more)" if len(ids) > 6 else "")
            yield f"  {what}: {shown}"
