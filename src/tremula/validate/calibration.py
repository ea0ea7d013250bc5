"""Residuals of a validation, and how often intervals from other sources hold."""

import json
import math
from collections.abc import Collection, Sequence
from pathlib import Path

from tremula.base.storage.atomic_file import write_text
from tremula.compiler.report.intervals import (
    COVERED,
    ENERGY,
    LogResidual,
    Residuals,
    shipped_residuals,
)
from tremula.validate.outcome import Outcome
from tremula.validate.rows import MeasuredRow
from tremula.validate.saved_rows import Results
from tremula.validate.score import Checked
from tremula.validate.workloads.table import find_workload

_GROWING = ("cycles", "ns", "us", "µs", "ms", "s", "W", "J")  # with what costs more
COMMAND = "tremula validate --large --residuals src/tremula/compiler/report/data/residuals.json"


def residual_of(one: Checked) -> LogResidual:
    """A row's residual; of a rate, that of its inverse."""
    ratio = math.log(one.measured / one.predicted)
    is_time = one.row.unit in _GROWING
    return LogResidual(
        one.family, source_of(one.row.source), one.row.id, round(ratio if is_time else -ratio, 6)
    )


class ShippedResults:
    """Results of the validation that Tremula came with, but for families that are computed.

    After a change of one family, tables of all rows can be written without computing the others.
    """

    def __init__(self, computed: Collection[str], saved: Results | None = None):
        self._computed, self._saved = computed, saved
        self._shipped = {residual.row: residual for residual in shipped_residuals().rows}

    def find(self, row: MeasuredRow) -> Outcome | None:
        """What an earlier run saved, or what was shipped."""
        outcome = None if self._saved is None else self._saved.find(row)
        residual = self._shipped.get(row.id)
        if outcome is not None or residual is None or row.value is None:
            return outcome
        if find_workload(row).family in self._computed:
            return None
        ratio = math.exp(residual.log_ratio)
        return Outcome(row.value / ratio if row.unit in _GROWING else row.value * ratio)

    def keep(self, row: MeasuredRow, outcome: Outcome) -> None:
        if self._saved is not None:
            self._saved.keep(row, outcome)


def source_of(text: str) -> str:
    """The paper or repository of a row: the first word of its source."""
    return text.strip().strip('"').split()[0].strip(",;") if text.strip() else "unknown"


def coverage(residuals: Residuals) -> float:
    """The share of rows within intervals that were made without their source."""
    return n_covered(residuals.rows, residuals) / max(1, len(residuals.rows))


def n_covered(rows: Sequence[LogResidual], residuals: Residuals) -> int:
    """Rows within intervals that were made without their source."""
    others = {source: residuals.without(source) for source in {row.source for row in rows}}
    intervals = {
        (source, family): others[source].of_family(family)
        for source, family in {(row.source, row.family) for row in rows}
    }
    return sum(
        intervals[row.source, row.family].low
        <= math.exp(row.log_ratio)
        <= intervals[row.source, row.family].high
        for row in rows
    )


def calibrated(rows: Sequence[LogResidual]) -> Residuals:
    """Residuals with the smallest scale at which intervals of other sources hold 90 % of times."""
    times = tuple(row for row in rows if row.family != ENERGY)
    scales = [0.5 * 1.05**step for step in range(60)]
    enough = (scale for scale in scales if coverage(Residuals(times, scale)) >= COVERED)
    return Residuals(tuple(rows), next(enough, scales[-1]))


def residuals_of(checked: Sequence[Checked]) -> Residuals:
    """Residuals of rows."""
    rows = {one.row.id: residual_of(one) for one in checked if one.predicted > 0}
    return calibrated(tuple(rows.values()))


def write_residuals(checked: Sequence[Checked], path: Path) -> Residuals:
    """Write the table that intervals of reports are made from."""
    residuals = residuals_of(checked)
    rows = ",\n".join(
        json.dumps([r.family, r.source, r.row, r.log_ratio], ensure_ascii=False)
        for r in residuals.rows
    )
    head = {"made_by": COMMAND, "scale": residuals.scale, "coverage": coverage(residuals)}
    text = json.dumps(head, indent=1).rstrip("}\n")
    write_text(path, f'{text},\n "rows": [\n{rows}\n]}}\n')
    return residuals


def coverage_text(checked: Sequence[Checked]) -> str:
    """How often shipped 90 % intervals hold, each made without the row's source."""
    rows = list({one.row.id: residual_of(one) for one in checked if one.predicted > 0}.values())
    shipped = shipped_residuals()
    n_held = n_covered(rows, shipped)
    n_sources = len({row.source for row in rows})
    return (
        f"90 % intervals from other sources hold {n_held} of {len(rows)} rows "
        f"({n_held / max(1, len(rows)):.1%}; {n_sources} sources, each left out in turn)"
    )
