"""The figures of docs/fuzzing.md: made from the summary of logged runs."""

import re
from collections import Counter
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "fuzzing.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table(summary: dict) -> str:
    """Runs by kind and commit, and what was covered."""
    lines = ["| kind | commit | cases | passed | set aside | failed | CPU ms a case |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for run in summary["runs"]:
        outcomes = run["outcomes"]
        lines.append(
            f"| {run['kind']} | `{run['commit']}` | {run['n']:,} | {outcomes.get('passed', 0):,} | "
            f"{outcomes.get('set aside', 0):,} | {outcomes.get('failed', 0):,} | "
            f"{run['cpu_s'] * 1000 / max(run['n'], 1):.0f} |"
        )
    totals: Counter[str] = Counter()
    for run in summary["runs"]:
        totals[run["kind"]] += run["n"]
    for kind, n in totals.items():
        lines.append(f"| **{kind}** | all | **{n:,}** | | | | |")
    return "\n".join([*lines, "", *_coverage_lines(summary)])


def _coverage_lines(summary: dict) -> list[str]:
    lines = []
    for kind, covered in summary["covered"].items():
        groups: dict[str, list[tuple[str, int]]] = {}
        for name, n in covered.items():
            group, _, item = name.partition(":")
            groups.setdefault(group, []).append((item, n))
        for group, items in sorted(groups.items()):
            least = min(n for _, n in items)
            lines.append(
                f"- {kind}: {len(items)} of *{group}*, each in at least {least:,} cases"
                + (f" ({', '.join(item for item, _ in items)})" if len(items) <= 16 else "")
            )
    return lines


def page_text(text: str, summary: dict) -> str:
    """The page with its figures renewed."""
    figures = f"{BEGIN}\n{table(summary)}\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: figures, text, flags=re.DOTALL)


def write_page(summary: dict) -> None:
    PAGE.write_text(page_text(PAGE.read_text(), summary))
