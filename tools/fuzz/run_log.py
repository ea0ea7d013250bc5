"""The log of runs: one line of JSON per batch of cases; a run continues where the log ends.

Lines hold the kind, the commit, the seeds, how long they took and what they covered. `summary.json`
next to this file holds the sums of all logs, per kind and commit, and is committed.
"""

import json
import subprocess
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOG = ROOT / "build" / "fuzz" / "log.jsonl"
SUMMARY = Path(__file__).with_name("summary.json")


@dataclass
class Batch:
    """A range of seeds that ran: what became of them, what they took and covered."""

    kind: str
    commit: str
    first_seed: int
    n: int
    cpu_s: float = 0.0
    wall_s: float = 0.0
    outcomes: dict[str, int] = field(default_factory=dict)
    failures: dict[str, list[int]] = field(default_factory=dict)  # signature -> seeds
    reasons: dict[str, int] = field(default_factory=dict)  # why cases were set aside
    covered: dict[str, int] = field(default_factory=dict)


def commit_name() -> str:
    """The commit of the checkout, with a plus if files differ from it."""

    def git(*args: str) -> str:
        result = subprocess.run(
            ["git", *args], cwd=ROOT, capture_output=True, text=True, check=False
        )
        return result.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "src")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + ("+" if changed else "")


def append(batch: Batch, log: Path = LOG) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        file.write(json.dumps(asdict(batch)) + "\n")


def append_failures(kind: str, commit: str, reports: list, log: Path = LOG) -> None:
    """Add failed cases themselves to a file beside the log: seeds depend on the generators."""
    with log.with_suffix(".failures.jsonl").open("a") as file:
        for seed, signature, detail, case in reports:
            record = {"kind": kind, "commit": commit, "seed": seed, "wrong": signature,
                      "detail": detail, "case": case}  # fmt: skip
            file.write(json.dumps(record) + "\n")


def read(log: Path = LOG) -> list[Batch]:
    """All whole lines; the last one may have been cut by an interrupt."""
    batches = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            batches.append(Batch(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return batches


def read_summary(path: Path = SUMMARY) -> dict:
    if not path.exists():
        return {"runs": [], "covered": {}}
    return json.loads(path.read_text())


def next_seed(kind: str, log: Path = LOG, summary: Path = SUMMARY) -> int:
    """The first seed that no logged run has used."""
    ends = [batch.first_seed + batch.n for batch in read(log) if batch.kind == kind]
    ends += [
        last + 1
        for run in read_summary(summary)["runs"]
        if run["kind"] == kind
        for _, last in run["seeds"]
    ]
    return max(ends, default=0)


def summarise(logs: list[Path], path: Path = SUMMARY) -> dict:
    """Add logs to the summary. A seed of a kind counts once per commit."""
    summary = read_summary(path)
    runs = {(run["kind"], run["commit"]): run for run in summary["runs"]}
    for batch in (batch for log in logs for batch in read(log)):
        run = runs.setdefault((batch.kind, batch.commit), _empty_run(batch))
        seeds = [batch.first_seed, batch.first_seed + batch.n - 1]
        if any(first <= seeds[1] and seeds[0] <= last for first, last in run["seeds"]):
            continue
        run["seeds"] = _merged([*run["seeds"], seeds])
        run["n"] += batch.n
        run["cpu_s"] = round(run["cpu_s"] + batch.cpu_s, 1)
        for name, counts in (("outcomes", batch.outcomes), ("reasons", batch.reasons)):
            run[name] = dict(Counter(run[name]) + Counter(counts))
        for signature, failed in batch.failures.items():
            run["failures"].setdefault(signature, []).extend(failed)
        covered = Counter(summary["covered"].get(batch.kind, {})) + Counter(batch.covered)
        summary["covered"][batch.kind] = dict(sorted(covered.items()))
    summary["runs"] = sorted(runs.values(), key=lambda run: (run["kind"], run["commit"]))
    path.write_text(json.dumps(summary, indent=1) + "\n")
    return summary


def _empty_run(batch: Batch) -> dict:
    return {
        "kind": batch.kind, "commit": batch.commit, "n": 0, "seeds": [], "cpu_s": 0.0,
        "outcomes": {}, "reasons": {}, "failures": {},
    }  # fmt: skip


def _merged(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges of seeds, neighbours joined."""
    result: list[list[int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1][1] = max(result[-1][1], last)
        else:
            result.append([first, last])
    return result
