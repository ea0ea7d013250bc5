"""A user's SQL over a report: reading only, for a limited time, a limited number of rows."""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tremula.base.errors import MissingProfileData
from tremula.vision.report.schema import TABLES

MAX_ROWS, MAX_S = 10_000, 2.0
_STEPS_BETWEEN_LOOKS = 10_000
# Everything a SELECT is made of. Pragmas, attaching, and whatever writes are not among it.
_ALLOWED = frozenset(
    (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
)


def run_query(
    database: sqlite3.Connection, sql: str, parameters: Sequence[object] = ()
) -> tuple[list[str], list[tuple]]:
    """Names of columns, and rows. The connection must not be used elsewhere meanwhile."""
    deadline = time.monotonic() + MAX_S
    with _reading_only(database, deadline):
        try:
            cursor = database.execute(sql, parameters)
            rows = cursor.fetchmany(MAX_ROWS)
            names = [d[0] for d in cursor.description or ()]
            cursor.close()
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError) as error:
            raise _refused(error, is_late=time.monotonic() > deadline) from None
    return names, rows


@contextmanager
def _reading_only(database: sqlite3.Connection, deadline: float) -> Iterator[None]:
    def allows(action: int, *_: object) -> int:
        return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY

    database.set_authorizer(allows)
    database.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        database.set_progress_handler(None, 0)
        database.set_authorizer(None)


def _refused(error: Exception, *, is_late: bool) -> MissingProfileData:
    if is_late:
        return MissingProfileData(
            f"the query failed: it took longer than {MAX_S:g} s.",
            hint="read fewer rows: join on ids, and filter before sorting",
        )
    text = str(error)
    if "authorized" in text or "prohibited" in text:
        return MissingProfileData(
            f"the query failed: it does more than read ({text}).", hint="write one SELECT"
        )
    return MissingProfileData(
        f"the query failed: {text}.", hint=f"one SELECT; tables: {', '.join(TABLES)}"
    )
