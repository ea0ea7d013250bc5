"""What a run of PyTorch's database of operators leaves: rows, their counts, files and the page."""

import itertools
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tremula.base.storage.atomic_file import atomic_file

N_SAMPLES = 10
HOST, TILES = "host", "tiles"
PASS, WRONG, REFUSED, ERROR = "pass", "wrong values", "refused", "error"
# Relative and absolute, of float32. The host runs PyTorch's own kernels; a tile has other
# polynomials and other orders of summation.
TOLERANCE = {HOST: (1.3e-6, 1e-5), TILES: (1e-4, 1e-4)}


@dataclass(frozen=True)
class Outcome:
    """How one execution did with the samples of an operator: forward, or with gradients."""

    outcome: str = PASS
    reason: str = ""
    n_passed: int = 0
    n_samples: int = 0


@dataclass
class Row:
    """One operator: how it did, or why it is not counted."""

    name: str
    not_counted: str = ""  # on neither execution
    is_random: bool = False  # only shapes and types can be compared, on the host
    forward: dict[str, Outcome] = field(default_factory=dict)  # by execution
    gradient: dict[str, Outcome] = field(default_factory=dict)


@dataclass(frozen=True)
class Count:
    """How many operators and samples of one column pass."""

    n_operators: int
    n_passed: int
    n_samples: int
    n_samples_passed: int

    @property
    def percent(self) -> float:
        return 100 * self.n_passed / max(self.n_operators, 1)


def counts(rows: Iterable[Row]) -> dict[tuple[str, str], Count]:
    """By (execution, "forward" or "gradient")."""
    rows = list(rows)
    result = {}
    for execution, kind in itertools.product((HOST, TILES), ("forward", "gradient")):
        own = [getattr(row, kind)[execution] for row in rows if execution in getattr(row, kind)]
        result[execution, kind] = Count(
            len(own),
            sum(o.outcome == PASS for o in own),
            sum(o.n_samples for o in own),
            sum(o.n_passed for o in own),
        )
    return result


_HEAD = """# PyTorch's database of operators

PyTorch tests itself with a database of operators and samples of their arguments (`op_db` of
`torch.testing`). This page is what Tremula makes of it: float32, {n_samples} samples each at most,
with the values of PyTorch as reference (relative and absolute tolerance {host} on the host, {tiles}
on tiles; there also four times what PyTorch itself is off in float32). An operator passes if every
sample does. A gradient is that of a weighted sum of all results. Operators that draw random numbers
are compared in shape and type, on the host only.

The page is made by `python -m tests.frontends.poptorch.op_db --page docs/op-db.md`, the figures by
`tremula bench poptorch --only op-db`.
"""


def page(rows: Iterable[Row], note: str = "") -> str:
    """The page docs/op-db.md; `note` says what a reader must know about these rows."""
    rows = sorted(rows, key=lambda row: row.name)
    head = _HEAD.format(n_samples=N_SAMPLES, host=TOLERANCE[HOST], tiles=TOLERANCE[TILES])
    if note:
        head += f"\n{note}\n"
    head += f"\nOperators of the database that this page is made from: {len(rows)}.\n"
    lines = [head, "| execution | | operators pass | of | | samples pass | of |"]
    lines.append("|---|---|---:|---:|---:|---:|---:|")
    for (execution, kind), c in counts(rows).items():
        lines.append(
            f"| {execution} | {kind} | {c.n_passed} | {c.n_operators} | {c.percent:.1f} % |"
            f" {c.n_samples_passed} | {c.n_samples} |"
        )
    lines += ["", "## What does not pass", "", "| operator | where | samples | outcome |"]
    lines.append("|---|---|---:|---|")
    for row in rows:
        lines += failures(row)
    lines += ["", "## What is not counted", ""]
    why: dict[str, list[str]] = {}
    for row in rows:
        if row.not_counted:
            why.setdefault(row.not_counted, []).append(f"`{row.name}`")
    lines += [
        f"* {reason[:1].upper()}{reason[1:]}: {', '.join(own)}." for reason, own in why.items()
    ]
    drawn = ", ".join(f"`{row.name}`" for row in rows if row.is_random)
    if drawn:
        lines.append(f"* Random or undefined values, so not on tiles: {drawn}.")
    return "\n".join(lines) + "\n"


def failures(row: Row) -> list[str]:
    """Lines of one operator; the same failure in several columns is one line."""
    places: dict[tuple[str, str], list[tuple[str, Outcome]]] = {}
    for kind in ("forward", "gradient"):
        for execution, outcome in getattr(row, kind).items():
            if outcome.outcome != PASS:
                key = (outcome.outcome, outcome.reason)
                places.setdefault(key, []).append((f"{execution} {kind}", outcome))
    lines = []
    for (kind, reason), own in places.items():
        where = ", ".join(place for place, _ in own)
        n = ", ".join(f"{o.n_passed} of {o.n_samples}" for _, o in own)
        text = reason.replace("|", "\\|").replace("<", "&lt;").replace("`", "")
        lines.append(f"| `{row.name}` | {where} | {n} | {kind}: {text} |")
    return lines


def failing(text: str) -> set[str]:
    """The operators that a page lists as not passing somewhere."""
    section = text.partition("## What does not pass")[2].partition("##")[0]
    return {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}


def read_rows(path: Path) -> dict[str, Row]:
    """Rows of an earlier run, by operator."""
    rows = [Row(**row) for row in json.loads(path.read_text())] if path.exists() else []
    for row in rows:
        for kind in (row.forward, row.gradient):
            kind.update({execution: Outcome(**result) for execution, result in kind.items()})  # pyright: ignore[reportCallIssue]
    return {row.name: row for row in rows}


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    with atomic_file(path) as file:
        file.write(json.dumps([asdict(row) for row in rows], indent=1).encode())
