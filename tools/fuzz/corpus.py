"""The corpus: files of cases that failed once, shrunk, which `make test` replays.

One JSON file per case: its kind, the case, what was wrong, and at which commit it was met.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from tools.fuzz.case import Case, Outcome

FOLDER = Path(__file__).resolve().parents[2] / "tests" / "corpus"


def write_case(kind: str, case: Case, outcome: Outcome, met: dict, folder: Path = FOLDER) -> Path:
    """Add a case; equal cases are one file."""
    text = json.dumps(case, sort_keys=True)
    name = f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.json"
    folder.mkdir(parents=True, exist_ok=True)
    record = {"kind": kind, "wrong": outcome.signature, "met": met, "case": case}
    path = folder / name
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def read_cases(folder: Path = FOLDER) -> Iterator[tuple[Path, str, Case]]:
    """(file, kind, case) of every file of the corpus."""
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        yield path, record["kind"], record["case"]
