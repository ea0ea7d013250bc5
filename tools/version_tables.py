"""Tables of docs/versions.md that test runs write: one row for each version."""

import re
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "versions.md"
# Collected in the order of their names, each N-th test runs: a plug-in that pytest reads.
SAMPLER = """
def pytest_collection_modifyitems(items):
    items[:] = items[::{every}]
"""


def counts_of(printed: str) -> tuple[int, int, int]:
    """Tests that passed, failed (or could not run) and were skipped, as pytest says at the end."""
    last = next((line for line in reversed(printed.splitlines()) if " in " in line), "")
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|error)", last)}
    return (
        counts.get("passed", 0),
        counts.get("failed", 0) + counts.get("error", 0),
        counts.get("skipped", 0),
    )


def write_table(mark: str, header: str, rows: Sequence[str], n_key_cells: int) -> None:
    """Put rows into the table between two marks; those with other first cells stay."""
    before, rest = PAGE.read_text(encoding="utf-8").split(f"<!-- {mark} -->")
    old, after = rest.split(f"<!-- end of {mark} -->")
    titles = _key(header, n_key_cells)
    merged = {_key(row, n_key_cells): row for row in (*old.splitlines(), *rows) if row[:2] == "| "}
    merged.pop(titles, None)
    lines = [header, re.sub(r"[^|]+", "---", header), *(merged[key] for key in sorted(merged))]
    lines += ["", f"Last run: {datetime.now(UTC):%Y-%m-%d}, commit {_commit()}."]
    table = "\n".join(lines)
    text = f"{before}<!-- {mark} -->\n{table}\n<!-- end of {mark} -->{after}"
    PAGE.write_text(text, encoding="utf-8")


def _key(row: str, n_cells: int) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.split("|")[1 : 1 + n_cells])


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
