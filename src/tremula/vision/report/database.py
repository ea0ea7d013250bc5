"""Opens SQLite files that are not to be trusted: the common part of reading reports and traces."""

import json
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tremula.base.columns import MAX_BLOB_BYTES
from tremula.base.errors import FileLoadError
from tremula.base.storage.strict_json import JsonObject
from tremula.vision.report.seal import checksum_of, seal_of

_MAGIC = b"SQLite format 3\x00"
_MAX_FACT_CHARACTERS = 16 << 20


@dataclass(frozen=True, slots=True)
class DatabaseKind:
    """What a file must be, and what its errors say."""

    name: str
    application: str  # what its table `info` says
    schema_version: tuple[int, int]  # a newer first part is an error
    tables: Iterable[str]
    wanted: str  # hint where a file is something else
    again: str  # hint where it is damaged
    instead: Callable[[Path], str]  # hint where there is none
    may_grow: bool  # another process may be writing it


class DatabaseReader:
    """One open file: rows, facts, and errors that name it."""

    def __init__(self, path: str | os.PathLike[str], kind: DatabaseKind):
        self.path = Path(path)
        self.kind = kind
        self.lock = threading.RLock()
        self._database = self._opened()
        # Scripts of pva never close a report, and Python warns of connections that are left open.
        weakref.finalize(self, self._database.close)
        try:
            self._restrict()
            self._check_tables()
            is_sealed = self.kind.may_grow or self._is_sealed()
            self.info: JsonObject = self.facts("info")
            self._check_version()
            self._require_seal(is_sealed)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self.lock:
            self._database.close()

    # -- opening -----------------------------------------------------------------------------------

    def _opened(self) -> sqlite3.Connection:
        """A read-only connection, once the file looks like a database."""
        try:
            with self.path.open("rb") as file:
                head = file.read(len(_MAGIC))
        except OSError as error:
            raise FileLoadError(
                f"cannot read the {self.kind.name} {str(self.path)!r}: {error.strerror or error}.",
                hint=self.kind.instead(self.path),
            ) from error
        if not head:
            raise self._foreign("is empty")
        if head != _MAGIC:
            raise self._foreign(f"is not a {self.kind.name}: it does not start like one")
        mode = "mode=ro" if self.kind.may_grow else "mode=ro&immutable=1"
        uri = f"{self.path.resolve().as_uri()}?{mode}"
        return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)

    def _restrict(self) -> None:
        """The file may hold views and triggers: none are trusted, and nothing can be attached."""
        self._database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BLOB_BYTES)
        self.execute("PRAGMA trusted_schema = OFF")
        self.execute("PRAGMA query_only = ON")

    def _check_tables(self) -> None:
        """A view under one of these names could compute for ever, so only real tables count."""
        rows = self.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        if not set(self.kind.tables) <= {name for (name,) in rows}:
            raise self._foreign(f"is a database, but not a {self.kind.name} of Tremula's")

    def _is_sealed(self) -> bool:
        """Whether it has a checksum, as all but old files do; raises if that is wrong."""
        result = seal_of(self.path)
        if result is not None and result != checksum_of(self.path):
            raise self.damaged("was changed or cut since it was written: its checksum is wrong")
        return result is not None

    def _require_seal(self, is_sealed: bool) -> None:
        if not is_sealed:
            raise self.damaged("has lost its checksum")

    def _check_version(self) -> None:
        if self.info.get("application") != self.kind.application:
            raise self._foreign(f"is a database, but not a {self.kind.name} of Tremula's")
        version = self.info.get("schema_version")
        if not (isinstance(version, list) and [type(part) for part in version] == [int, int]):
            raise self.damaged(f"has schema version {version!r}")
        newest = self.kind.schema_version[0]
        if version[0] > newest:
            raise FileLoadError(
                f"{self.kind.name} {str(self.path)!r} has schema version {version[0]}."
                f"{version[1]}; this Tremula reads up to {newest}.x.",
                hint=f"update Tremula, or {self.kind.again} with this version",
            )
        if version[0] < newest:
            raise FileLoadError(
                f"{self.kind.name} {str(self.path)!r} has schema version {version[0]}."
                f"{version[1]}, of an older Tremula; this one reads {newest}.x.",
                hint=f"{self.kind.again}, or look at it with the Tremula that wrote it",
            )

    @property
    def schema_version(self) -> tuple[int, int]:
        return tuple(self.info["schema_version"])

    # -- errors ------------------------------------------------------------------------------------

    def damaged(self, why: str) -> FileLoadError:
        return FileLoadError(
            f"{self.kind.name} {str(self.path)!r} {why}.",
            hint=f"{self.kind.again}; this one is damaged",
        )

    def _foreign(self, why: str) -> FileLoadError:
        return FileLoadError(f"{str(self.path)!r} {why}.", hint=self.kind.wanted)

    # -- rows --------------------------------------------------------------------------------------

    def execute(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple]:
        """All rows of a statement; never one that a user wrote."""
        try:
            with self.lock:
                return self._database.execute(sql, parameters).fetchall()
        except sqlite3.ProgrammingError:
            raise FileLoadError(
                f"{self.kind.name} {str(self.path)!r} is closed.", hint="open it again"
            ) from None
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # rows, or SQLite's message
            raise self.damaged(f"cannot be read ({error})") from error

    def facts(self, table: str) -> JsonObject:
        """A table of keys and JSON values."""
        rows = self.execute(f"SELECT key, value FROM {table}")
        try:
            return {str(k): json.loads(v[:_MAX_FACT_CHARACTERS]) for k, v in rows}
        except (ValueError, TypeError, RecursionError) as error:
            raise self.damaged(f"has no readable {table} ({error})") from None
