"""Results of rows kept as they come, so that a long validation can be interrupted and goes on.

A line of JSON for each: what decides the result, our own code included, and the result.
"""

import hashlib
import json
from pathlib import Path

from tremula.base.code_fingerprint import code_fingerprint
from tremula.validate.rows import MeasuredRow

# What decides a result beside the row: a change of these makes every kept result stale.
_CODE = (
    "base", "hardware", "codelets", "poplar", "compiler", "runtime/clock.py", "runtime/forecast.py",
    "poplibs", "ir", "frontends", "garden", "validate",
)  # fmt: skip


class SavedResults:
    """A file of results: predictions, or why there is none. Unreadable lines are skipped."""

    def __init__(self, path: Path):
        self.path = path
        self._code = code_fingerprint(*_CODE)
        self._found: dict[str, float | str] = {}
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            try:
                key, result = json.loads(line)
            except ValueError:  # cut off where the last run ended
                continue
            self._found[key] = result

    def find(self, row: MeasuredRow) -> float | str | None:
        """What an earlier run found out about a row."""
        return self._found.get(self._key(row))

    def keep(self, row: MeasuredRow, result: float | str) -> None:
        key = self._key(row)
        self._found[key] = result
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([key, result]) + "\n")

    def _key(self, row: MeasuredRow) -> str:
        return hashlib.sha256(repr((row.key, row.unit, self._code)).encode()).hexdigest()[:32]
