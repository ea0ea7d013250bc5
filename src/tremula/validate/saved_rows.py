"""Results of rows kept as they come, so that a long validation can be interrupted and goes on.

A line of JSON for each: what decides the result, our own code included, and the result.
"""

import hashlib
import json
from pathlib import Path
from typing import Protocol

from tremula.base.code_fingerprint import code_fingerprint
from tremula.validate.outcome import Outcome
from tremula.validate.rows import MeasuredRow

# What decides a result beside the row: a change of these makes every kept result stale.
_CODE = (
    "base", "hardware", "codelets", "poplar", "compiler", "runtime/clock.py", "runtime/forecast.py",
    "poplibs", "ir", "frontends", "garden", "validate",
)  # fmt: skip


class Results(Protocol):
    """Results that need no computing, and where new ones go."""

    def find(self, row: MeasuredRow) -> Outcome | None:
        """The result of a row, or None if it has to be computed."""
        ...

    def keep(self, row: MeasuredRow, outcome: Outcome) -> None:
        """Take a result that has been computed."""
        ...


class SavedResults:
    """A file of results: predictions, or why there is none. Unreadable lines are skipped."""

    def __init__(self, path: Path):
        self.path = path
        self._code = code_fingerprint(*_CODE)
        self._known: dict[str, Outcome] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                key, record = json.loads(line)
                self._known[key] = Outcome.from_record(record)
            except (ValueError, TypeError, KeyError):  # cut off where the last run ended
                continue

    def find(self, row: MeasuredRow) -> Outcome | None:
        """What an earlier run computed for a row."""
        return self._known.get(self._key(row))

    def keep(self, row: MeasuredRow, outcome: Outcome) -> None:
        key = self._key(row)
        self._known[key] = outcome
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, outcome.as_record()]) + "\n")

    def _key(self, row: MeasuredRow) -> str:
        return hashlib.sha256(repr((row.key, row.unit, self._code)).encode()).hexdigest()[:32]
