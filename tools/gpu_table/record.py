"""What a run has measured so far, as JSON and as the tables of a page, written as it goes."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import Figure
from benchmarks.figures import shown
from tremula.base.storage.atomic_file import atomic_file

WAITING, RUNNING, MEASURED = "not started", "running", "measured"


@dataclass
class Row:
    """A case: what became of it, and its figures."""

    title: str  # of its section
    name: str
    status: str = WAITING
    seconds: float = 0.0  # without those for which it was stopped
    figures: list[Figure] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)  # lines of its log that a reader needs


@dataclass
class Record:
    """A run: where and how it measured, and a row for each case."""

    machine: str
    command: str
    rows: list[Row]

    def write(self, folder: Path) -> None:
        """table.json and table.md."""
        with atomic_file(folder / "table.json", "w") as file:
            json.dump(asdict(self), file, ensure_ascii=False, indent=1)
        with atomic_file(folder / "table.md", "w") as file:
            file.write("\n".join(page(self)) + "\n")


def read_record(path: Path) -> Record:
    """What `Record.write` wrote."""
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        Row(**{**row, "figures": [Figure(**figure) for figure in row["figures"]]})
        for row in content["rows"]
    ]
    return Record(content["machine"], content["command"], rows)


def merged(first: Record, second: Record) -> Record:
    """A later run of cases that an earlier one has not measured; each keeps its own figures."""
    later = {row.name: row for row in second.rows}
    rows = [later.pop(row.name, row) if row.status != MEASURED else row for row in first.rows]
    left = [row for row in second.rows if row.name in later and row not in rows]
    known = {row.name for row in rows}
    rows += [row for row in left if row.name not in known]
    return Record(first.machine, f"{first.command}, then {second.command}", rows)


def page(record: Record) -> Iterator[str]:
    """Markdown: a table for each section, then what is missing."""
    yield f"{record.machine}. `{record.command}`"
    titles = dict.fromkeys(row.title for row in record.rows)
    for title in titles:
        rows = [row for row in record.rows if row.title == title]
        lines = [line for row in rows for line in _lines(row.figures)]
        yield ""
        yield f"### {title}"
        yield ""
        if lines:
            yield "| | measured | | must reach | reached | |"
            yield "|---|---|---|---|---|---|"
            yield from lines
        yield from _missing(rows)


def _lines(figures: Iterable[Figure]) -> Iterator[str]:
    """A line for each quantity: of several modes of torch.compile the one that is the fastest."""
    groups: dict[str, list[Figure]] = {}
    for figure in figures:
        groups.setdefault(figure.name.partition(":")[0], []).append(figure)
    for name, group in groups.items():
        least = min(group, key=lambda figure: figure.value)  # of ours: the fastest of theirs
        verdict = "yes" if least.holds else "**no**"
        note = least.note if len(group) == 1 else f"{_modes(group)}; {least.note}"
        value, unit = shown(least.value), least.unit
        yield f"| {name} | {value} | {unit} | {least.bar} | {verdict} | {note} |"


def _modes(group: Sequence[Figure]) -> str:
    return ", ".join(f"{f.name.partition(':')[2]} {shown(f.value)}" for f in group)


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """A line for each case that is not complete."""
    for row in rows:
        why = [*([row.status] if row.status != MEASURED else []), *row.remarks]
        if why:
            yield ""
            yield f"{row.name}: {'; '.join(why)}."
