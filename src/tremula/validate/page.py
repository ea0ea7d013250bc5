"""The generated part of docs/accuracy.md: families, every published row, the grid's worst rows."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from tremula.base.errors import FileLoadError
from tremula.base.storage.atomic_file import write_text
from tremula.validate.rows import ENERGY, LINK_ROWS, MORE, PUBLISHED, read_rows
from tremula.validate.score import Checked, Score, ValidationResult, rank_correlation

BEGIN, END = "<!-- generated: tremula validate --page -->", "<!-- end of the generated part -->"
N_WORST = 12


def write_page(path: Path, outcome: ValidationResult, notes: Iterable[str] = ()) -> None:
    """Replace the generated part of a page; the rest stays."""
    head, _, tail = split_page(path, BEGIN, END)
    write_text(path, f"{head}{BEGIN}\n\n{tables(outcome, notes)}\n{END}{tail}")


def split_page(path: Path, begin: str, end: str) -> tuple[str, str, str]:
    """What is before the line `begin` of a page, between it and the line `end`, and behind that."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    head, is_there, rest = text.partition(begin)
    inside, is_whole, tail = rest.partition(end)
    if not (is_there and is_whole):
        raise FileLoadError(
            f"{str(path)!r} has no generated part.",
            hint=f"put the lines {begin!r} and {end!r} where it should stand",
        )
    return head, inside, tail


def tables(outcome: ValidationResult, notes: Iterable[str] = ()) -> str:
    """Markdown: one row per family, per published row, and of the worst rows of the grid."""
    published = {row.id for path in (PUBLISHED, MORE, LINK_ROWS, ENERGY) for row in read_rows(path)}
    ours = [one for one in outcome.checked if one.row.id in published]
    grid = [one for one in outcome.checked if one.row.id not in published]
    worst = sorted(grid, key=lambda one: -abs(one.error))[:N_WORST]
    parts = [*(f"{note}\n" for note in notes), _family_table(outcome)]
    if worst:
        parts += [f"The {len(worst)} worst of {len(grid)} rows of the grid:\n", _row_table(worst)]
    files = f"{PUBLISHED.name}, {MORE.name}, {LINK_ROWS.name} and {ENERGY.name}"
    parts += [f"Every row of {files} that has a workload:\n", _row_table(ours)]
    parts.append(_reasons(outcome))
    return "\n".join(parts)


def _family_table(outcome: ValidationResult) -> str:
    lines = ["| family | rows | median error | worst error | worst row |", "|---|---|---|---|---|"]
    for name, rows in [*outcome.families.items(), ("**all**", outcome.checked)]:
        score = Score.of(rows)
        figures = f"{score.n_rows} | {score.median:.1%} | {score.worst:.0%}"
        lines.append(f"| {name} | {figures} | {score.worst_id} |")
    ranks = rank_correlation(outcome.checked)
    return "\n".join([*lines, "", f"Rank correlation (Spearman, within units): {ranks:.3f}.", ""])


def row_line(one: Checked) -> str:
    figures = f"{one.predicted:.4g} | {one.measured:.4g} | {one.row.unit} | {one.error:+.1%}"
    return f"| {one.row.id} | {figures} |"


def _row_table(rows: Sequence[Checked]) -> str:
    head = ["| row | predicted | measured | unit | error |", "|---|---|---|---|---|"]
    return "\n".join([*head, *map(row_line, rows), ""])


def _reasons(outcome: ValidationResult) -> str:
    """Rows without a workload, by reason."""
    by_reason: dict[str, list[str]] = {}
    for one in outcome.unchecked:
        by_reason.setdefault(one.reason, []).append(one.row.id)
    lines = [f"* {reason}: {', '.join(ids)}" for reason, ids in by_reason.items()]
    return "\n".join([f"Without a workload ({len(outcome.unchecked)} rows):\n", *lines, ""])


def rows_on_page(path: Path) -> set[str]:
    """The lines of a page that show a row."""
    text = path.read_text(encoding="utf-8")
    return set(re.findall(r"^\| [\w.-]+ \| .* \| [+-][\d.]+% \|$", text, re.MULTILINE))
