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


class SavedRecords:
    """A file of records by what decides them. Unreadable lines are skipped."""

    def __init__(self, path: Path):
        self.path = path
        self._code = code_fingerprint(*_CODE)
        self._known: dict[str, dict] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                key, record = json.loads(line)
                self._known[key] = dict(record)
            except (ValueError, TypeError):  # cut off where the last run ended
                continue

    def find(self, *decides: object) -> dict | None:
        return self._known.get(self._key(decides))

    def keep(self, record: dict[str, object], *decides: object) -> None:
        key = self._key(decides)
        self._known[key] = record
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, record]) + "\n")

    def _key(self, decides: tuple[object, ...]) -> str:
        return hashlib.sha256(repr((*decides, self._code)).encode()).hexdigest()[:32]


class SavedResults:
    """A file of results: predictions, or why there is none."""

    def __init__(self, path: Path):
        self._records = SavedRecords(path)

    def find(self, row: MeasuredRow) -> Outcome | None:
        """What an earlier run computed for a row."""
        record = self._records.find(row.key, row.unit)
        try:
            return None if record is None else Outcome.from_record(record)
        except (ValueError, TypeError, KeyError):  # of another form
            return None

    def keep(self, row: MeasuredRow, outcome: Outcome) -> None:
        self._records.keep(outcome.as_record(), row.key, row.unit)
