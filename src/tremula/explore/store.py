"""Results stored between runs: one small JSON file for each, written as soon as it is known."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tremula.base.code_fingerprint import code_fingerprint
from tremula.base.storage.atomic_file import atomic_file
from tremula.base.storage.strict_json import JsonObject

# What decides a result besides the question: a change of these makes every stored result stale.
_CODE = (
    "base", "hardware", "codelets", "poplar", "compiler", "runtime/clock.py", "runtime/forecast.py",
    "poplibs", "ir", "explore",
)  # fmt: skip


class ResultStore:
    """A folder of results by key. What cannot be read counts as not there."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def find(self, key: str) -> JsonObject | None:
        try:
            return json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def keep(self, key: str, result: Mapping[str, Any]) -> None:
        with atomic_file(self.folder / f"{key}.json", "w") as file:
            json.dump(result, file, indent=1)


def key_of(*parts: object) -> str:
    """A key of everything that decides a result, our own code included."""
    text = json.dumps([*parts, code_fingerprint(*_CODE)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
