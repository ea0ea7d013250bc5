"""A fit as text, as JSON and as a chip file with its provenance."""

import math
from pathlib import Path

from tremula.base.storage.atomic_file import write_text
from tremula.hardware import chip_to_toml
from tremula.validate.fit.solve import Estimate, FitResult

_N_WORST = 5


def fit_text(result: FitResult) -> str:
    """What was fitted, what could not be, and how well rows are predicted."""
    lines = [f"{len(result.rows)} rows, starting from {result.base.name}", ""]
    fitted = [one for one in result.estimates if one.status == "fitted"]
    combined = [one for one in result.estimates if one.status == "combined"]
    confirmed = [one for one in result.estimates if one.status == "confirmed"]
    left = [one for one in result.estimates if one.status == "left"]
    lines += [f"{'fitted':<38} {'before':>12} {'now':>12} {'±90 %':>7}  told by"]
    none = "  none" if confirmed else "  none: these rows tell no constant well enough"
    lines += [_line(one) for one in fitted] or [none]
    if confirmed:
        lines += ["", "confirmed: the old value is within what the rows tell, so it stays:"]
        lines += [_line(one) for one in confirmed]
    if combined:
        lines += ["", "fitted, but only together with others, which stay as they were:"]
        lines += [f"{_line(one)}; with {', '.join(one.partners)}" for one in combined]
    lines += ["", "not identifiable, left as they were:"]
    lines += [f"  {one.name:<36} {_shown(one.before):>12}  {_reason(one)}" for one in left]
    lines += ["", *_error_lines(result)]
    return "\n".join(lines)


def _line(one: Estimate) -> str:
    values = f"{_shown(one.before):>12} {_shown(one.value):>12}"
    return f"  {one.name:<36} {values} {one.half_width:>7.1%}  {', '.join(one.rows)}"


def _shown(value: float) -> str:
    return f"{value:.6g}"


def _reason(one: Estimate) -> str:
    if math.isinf(one.half_width):
        return "no row depends on it"
    if one.before == 0:
        return f"rows show nothing of it, to within {one.half_width:.0%} of a sync"
    if one.half_width > 1:
        return "rows cannot tell it from other constants"
    return f"rows tell it to within ±{one.half_width:.0%} only"


def _error_lines(result: FitResult) -> list[str]:
    before, after, held_out = (result.median(which) for which in ("before", "after", "held_out"))
    lines = [
        f"noise of a row, by what remains: {result.noise:.1%}",
        f"median error with the constants of {result.base.name}: {before:.1%}",
        f"median error with the fitted ones: {after:.1%}",
        f"median error of rows by fits without them: {held_out:.1%}",
    ]
    if not result.is_better:
        lines.append(
            f"Fits predict rows that they did not see worse than {result.base.name} does, so all "
            "constants stay as they were: give more rows, or rows of other kinds."
        )
    wrong = sorted((row for row in result.rows if row.is_outlier), key=lambda r: -abs(r.after))
    return lines + [
        f"outlier: {row.measurement.row.id} is still {row.after:+.0%} off"
        for row in wrong[:_N_WORST]
    ]


def fit_record(result: FitResult) -> dict[str, object]:
    """Everything, as plain data."""
    return {
        "base": result.base.name,
        "constants": {
            one.name: {
                "status": one.status,
                "before": one.before,
                "value": one.value,
                "half_width": None if math.isinf(one.half_width) else one.half_width,
                "rows": list(one.rows),
                "partners": list(one.partners),
            }
            for one in result.estimates
        },
        "noise": result.noise,
        "is_better": result.is_better,
        "median_error": {which: result.median(which) for which in ("before", "after", "held_out")},
        "rows": [
            {
                "id": row.measurement.row.id,
                "before": row.before,
                "after": row.after,
                "held_out": row.held_out,
                "is_outlier": bool(row.is_outlier),
            }
            for row in result.rows
        ],
    }


def save_fit(result: FitResult, path: Path) -> None:
    """The chip with every constant's provenance; how good the fit is, as comments."""
    comments = ["Made by tremula fit.", *fit_text(result).splitlines()]
    head = "".join(f"# {line}".rstrip() + "\n" for line in comments)
    write_text(path, f"{head}\n{chip_to_toml(result.chip)}")
