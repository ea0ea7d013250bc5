"""Writes a report file: tables, columns and matrices in one SQLite file that appears whole."""

import json
import os
import sqlite3
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import numpy as np

from tremula.base.columns import pack
from tremula.base.errors import FileLoadError
from tremula.base.storage.atomic_file import atomic_path
from tremula.vision.report.schema import (
    COARSEST_ROWS,
    FIRST_POOL,
    NEXT_POOL,
    ROWS_PER_BLOCK,
    TABLES,
    column_names,
)
from tremula.vision.report.seal import seal

Ints = np.ndarray
Rows = Callable[[int, int], Ints]
Done = TypeVar("Done")
_POOLS = {"sum": np.add, "max": np.maximum}
_MOST_WAITING = 64  # blocks being packed at once: bounds memory
_TILES_AT_ONCE = 256  # what one thread packs before the next: a tile takes microseconds
_MOST_KEPT = 4096  # packed columns of tiles, in case another tile has the same


class ReportFile:
    """A file being written. It replaces `path` at the end of a `with` block without an error."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._whole = ExitStack()
        try:
            temporary = self._whole.enter_context(atomic_path(self.path, is_durable=True))
        except OSError as error:
            raise self._unwritable(error) from error
        self._whole.push(partial(_seal_unless_failed, temporary))
        self._pool = ThreadPoolExecutor(min(4, os.cpu_count() or 1))
        database = sqlite3.connect(temporary, isolation_level=None)
        self._database = self._whole.enter_context(closing(database))
        self._database.execute("PRAGMA page_size = 4096")
        # The temporary file is discarded on any error, so it needs no journal.
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("BEGIN")
        for table, columns in TABLES.items():
            self._database.execute(f"CREATE TABLE {table} ({columns})")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            # Closes the database and seals the file; then it appears, or vanishes on an error.
            with self._whole:
                self._pool.shutdown(cancel_futures=kind is not None)
                if error is not None:
                    raise error
                self._database.execute("COMMIT")
        except (sqlite3.Error, OSError) as failure:  # the disk is full, or the folder is gone
            raise self._unwritable(failure) from failure

    def _unwritable(self, error: Exception) -> FileLoadError:
        reason = error.strerror if isinstance(error, OSError) else None
        return FileLoadError(
            f"cannot write a report to {str(self.path)!r}: {reason or error}.",
            hint="give a folder you may write to, on a disk with room",
        )

    # -- tables ------------------------------------------------------------------------------------

    def facts(self, table: str, values: Mapping[str, object]) -> None:
        """Rows of a table of two columns; values other than text become JSON."""
        is_json = table in ("info", "target")
        rows = [(k, json.dumps(v) if is_json else str(v)) for k, v in values.items()]
        self._database.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)

    def rows(self, table: str, columns: Mapping[str, Sequence[object] | Ints]) -> None:
        """Rows from columns, which must be exactly those of the table."""
        names = column_names(table)
        assert set(columns) == set(names), f"{table}: {sorted(set(columns) ^ set(names))}"
        listed = [c.tolist() if isinstance(c, np.ndarray) else list(c) for c in columns.values()]
        marks = ", ".join("?" * len(names))
        self._database.executemany(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",
            zip(*listed, strict=True),
        )

    def column(self, name: str, array: Ints) -> None:
        dtype, data = pack(array)
        row = (name, dtype, json.dumps(list(array.shape)), data)
        self._database.execute("INSERT INTO columns VALUES (?, ?, ?, ?)", row)

    def tile_variables(self, start: Ints, variable: Ints, n_bytes: Ints, address: Ints) -> None:
        """Variables of each tile, with their bytes and addresses on it: a CSR over tiles."""
        stored: dict[bytes, tuple[str, bytes]] = {}  # tiles of a regular program are alike
        bounds = start.tolist()

        def rows(first: int) -> list[tuple]:
            result = []
            for tile in range(first, min(len(bounds) - 1, first + _TILES_AT_ONCE)):
                begin, end = bounds[tile], bounds[tile + 1]
                columns = (variable[begin:end], n_bytes[begin:end], address[begin:end])
                packed = (part for column in columns for part in _packed_once(column, stored))
                result.append((tile, end - begin, *packed))
            return result

        parts = self._in_order(rows, range(0, len(bounds) - 1, _TILES_AT_ONCE))
        self._database.executemany(
            "INSERT INTO tile_variables VALUES (?, ?, ?, ?, ?, ?, ?, ?)", chain.from_iterable(parts)
        )

    def _soon(self, function: Callable[..., Done], *args: object, **kwargs: object) -> Future[Done]:
        """Call a function in another thread, or right here while the interpreter shuts down."""
        try:
            return self._pool.submit(function, *args, **kwargs)
        except RuntimeError:  # threads can no longer be started
            done: Future[Done] = Future()
            done.set_result(function(*args, **kwargs))
            return done

    def _in_order(self, function: Callable[[int], Done], numbers: Iterable[int]) -> Iterator[Done]:
        waiting: deque[Future[Done]] = deque()
        for number in numbers:
            waiting.append(self._soon(function, number))
            if len(waiting) >= _MOST_WAITING:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()

    def executable(self, n_bytes: int, data: bytes) -> None:
        self._database.execute("INSERT INTO executable VALUES (?, ?)", (n_bytes, data))

    # -- matrices ----------------------------------------------------------------------------------

    def matrix(
        self,
        name: str,
        blocks: Iterable[Ints],
        n_columns: int,
        unit: str,
        *,
        pooling: str = "",
        keeps_level_0: bool = True,
        by_rows: bool = False,
    ) -> None:
        """A matrix from consecutive blocks of 64 rows, the last one shorter; levels if it pools.

        `by_rows`: rows resemble those above them.
        """
        counts: dict[int, int] = {}
        packed = self._packed(_levels(blocks, pooling, counts), keeps_level_0, by_rows)
        statement = "INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?)"
        self._database.executemany(statement, ((name, *row) for row in packed))
        stored = _levels_worth_keeping(counts)
        self._database.execute(
            "DELETE FROM blocks WHERE matrix = ? AND level >= ?", (name, len(stored))
        )
        row = (name, counts.get(0, 0), n_columns, pooling, unit, json.dumps(stored))
        self._database.execute("INSERT INTO matrices VALUES (?, ?, ?, ?, ?, ?)", row)

    def _packed(
        self, blocks: Iterator[tuple[int, int, Ints]], keeps_level_0: bool, by_rows: bool
    ) -> Iterator[tuple[int, int, int, str, bytes]]:
        """Pack blocks in threads (zlib releases the GIL), in order."""
        waiting: list[tuple[int, int, int, Future[tuple[str, bytes]]]] = []
        for level, number, block in blocks:
            if level == 0 and not keeps_level_0:
                continue
            future = self._soon(pack, block, by_rows=by_rows)
            waiting.append((level, number, len(block), future))
            if len(waiting) >= _MOST_WAITING:
                done = waiting.pop(0)
                yield (*done[:3], *done[3].result())
        for level, number, n_rows, future in waiting:
            yield (level, number, n_rows, *future.result())


def _packed_once(column: Ints, cache: dict[bytes, tuple[str, bytes]]) -> tuple[str, bytes]:
    """A packed column of whole numbers, from `cache` if there was one like it."""
    key = column.tobytes()
    result = cache.get(key)
    if result is None:
        if len(cache) >= _MOST_KEPT:
            cache.clear()
        result = cache[key] = pack(column)
    return result


def _seal_unless_failed(path: Path, kind: type[BaseException] | None, *_: object) -> None:
    if kind is None:
        seal(path)


def blocks_of(rows: Rows, n_rows: int) -> Iterator[Ints]:
    """Blocks of 64 rows; `rows(first, last)` makes them."""
    for first in range(0, n_rows, ROWS_PER_BLOCK):
        yield rows(first, min(n_rows, first + ROWS_PER_BLOCK))


def _levels_worth_keeping(counts: Mapping[int, int]) -> list[int]:
    """Rows of each level, up to the first that is coarse enough for a screen."""
    stored: list[int] = []
    for level in sorted(counts):
        stored.append(counts[level])
        if counts[level] <= COARSEST_ROWS:
            break
    return stored


def _levels(
    blocks: Iterable[Ints], pooling: str, counts: dict[int, int]
) -> Iterator[tuple[int, int, Ints]]:
    """(level, number, block) of all levels; `counts` are the rows of each level so far."""
    buffers: dict[int, list[Ints]] = {}
    numbers: dict[int, int] = {}
    for block in blocks:
        counts[0] = counts.get(0, 0) + len(block)
        yield 0, numbers.get(0, 0), block
        numbers[0] = numbers.get(0, 0) + 1
        if pooling:
            yield from _raise(block, 1, pooling, buffers, numbers, counts, is_last=False)
    level = 1
    while level in counts:
        yield from _raise(None, level, pooling, buffers, numbers, counts, is_last=True)
        level += 1


def _pooled(block: Ints, pool: int, reduce: np.ufunc) -> Ints:
    """Every `pool` rows as one; the last may stand for fewer. Much faster than `reduceat`."""
    n_whole = len(block) // pool * pool
    whole = reduce.reduce(block[:n_whole].reshape(-1, pool, *block.shape[1:]), axis=1)
    if n_whole == len(block):
        return whole
    return np.concatenate((whole, reduce.reduce(block[n_whole:], axis=0, keepdims=True)))


def _raise(
    block: Ints | None,
    level: int,
    pooling: str,
    buffers: dict[int, list[Ints]],
    numbers: dict[int, int],
    counts: dict[int, int],
    *,
    is_last: bool,
) -> Iterator[tuple[int, int, Ints]]:
    """Pool a block into a level; full blocks of that level are yielded and pooled further up."""
    pending = buffers.setdefault(level, [])
    if block is not None:
        pool = FIRST_POOL if level == 1 else NEXT_POOL
        pooled = _pooled(block, pool, _POOLS[pooling])
        pending.append(pooled)
        counts[level] = counts.get(level, 0) + len(pooled)
    n_held = sum(len(part) for part in pending)
    if n_held >= ROWS_PER_BLOCK or (is_last and n_held):
        full = np.concatenate(pending)
        pending.clear()
        yield level, numbers.get(level, 0), full
        numbers[level] = numbers.get(level, 0) + 1
        if counts[level] > ROWS_PER_BLOCK or not is_last:
            yield from _raise(full, level + 1, pooling, buffers, numbers, counts, is_last=False)
