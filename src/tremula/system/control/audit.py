"""The audit log: who did what, and what was rejected. The newest entries stay."""

import time

from tremula.system.control.store import StateStore

MAX_ENTRIES = 100_000
_MAX_TEXT = 200


def log(store: StateStore, user: str, action: str, subject: str, outcome: str = "done") -> None:
    """Write an entry, as a part of the change it is about."""
    with store.change():
        texts = (text[:_MAX_TEXT] for text in (user, action, subject, outcome))
        number = store.add(
            "INSERT INTO audit (at, user, action, subject, outcome) VALUES (?, ?, ?, ?, ?)",
            time.time(),
            *texts,
        )
        if number % 1000 == 0:
            store.run("DELETE FROM audit WHERE id <= ?", number - MAX_ENTRIES)


def entries(store: StateStore, n: int = 100, outcome: str | None = None) -> list[dict]:
    """The newest entries, newest first."""
    where = "WHERE outcome LIKE ? || '%'" if outcome else "WHERE ? IS NULL"
    sql = f"SELECT * FROM audit {where} ORDER BY id DESC LIMIT ?"
    return [dict(row) for row in store.rows(sql, outcome, n)]
