"""Heat maps of tiles over time, in blocks: a screen needs only a few.

A block is 128 columns × 512 rows. A column of level k pools 2^k trace entries (or steps); a row
of tile level t pools 4^t neighbouring tiles of one chip. Cells are shares, quantised to 0 … 63:
finer than an eye sees, and small once deflated.
"""

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.compiler.report.phases import PHASES
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.schema import pool_of_level
from tremula.vision.report.windows import Pooled, pooled, tile_rows

Ints = np.ndarray
T = TypeVar("T")
# Facts, cells of all rows, and columns that every block of rows repeats.
Cells = tuple[dict[str, int], dict[str, Ints], dict[str, Ints]]

COLUMNS_PER_BLOCK, ROWS_PER_BLOCK = 128, 512
MOST_SHOWN = 63  # a cell of this value is full
_FEWEST_COLUMNS = COLUMNS_PER_BLOCK  # a level with this few columns is the last
_FEWEST_ROWS = 256
KINDS = ("phases", "live")
_MOST_CACHED = 8
_MOST_BASE_CELLS = 8 << 20


@dataclass(frozen=True, slots=True)
class HeatMapShape:
    """How a heat map is cut into blocks; the page needs this before it asks for any."""

    n_entries: int
    n_levels: int
    n_tile_levels: int
    rows_of_level: tuple[int, ...]  # rows of each tile level, all chips together

    def columns(self, level: int) -> int:
        return -(-self.n_entries // 2**level)

    def blocks(self, level: int, tile_level: int) -> tuple[int, int]:
        """(blocks of columns, blocks of rows)."""
        n_rows = self.rows_of_level[tile_level]
        return -(-self.columns(level) // COLUMNS_PER_BLOCK), -(-n_rows // ROWS_PER_BLOCK)


def heat_shape(reader: ReportReader, kind: str) -> HeatMapShape:
    n_entries = reader.n_steps if kind == "live" else reader.n_entries
    n_levels = 1
    while -(-n_entries // 2 ** (n_levels - 1)) > _FEWEST_COLUMNS:
        n_levels += 1
    rows = [reader.n_ipus * reader.tiles_per_ipu]
    while rows[-1] > _FEWEST_ROWS and 4 ** len(rows) <= reader.tiles_per_ipu:
        rows.append(reader.n_ipus * -(-reader.tiles_per_ipu // 4 ** len(rows)))
    return HeatMapShape(n_entries, n_levels, len(rows), tuple(rows))


class HeatBlocks:
    """The blocks of a report. Those above each other share what is read and pooled for them."""

    def __init__(self, reader: ReportReader):
        self.reader = reader
        self._cached: dict[tuple, object] = {}
        self._base_rows: dict[str, Ints] = {}
        self._lock = Lock()

    def block(self, kind: str, level: int, tile_level: int, column: int, row: int) -> bytes:
        """One block as a pack; raises MissingProfileData if there is no such block."""
        shape = heat_shape(self.reader, kind)
        if not (0 <= level < shape.n_levels and 0 <= tile_level < shape.n_tile_levels):
            raise _missing(kind, level, tile_level)
        n_columns, n_rows = shape.blocks(level, tile_level)
        if not (0 <= column < n_columns and 0 <= row < n_rows):
            raise _missing(kind, level, tile_level)
        first = column * COLUMNS_PER_BLOCK
        columns = first, min(shape.columns(level), first + COLUMNS_PER_BLOCK)
        make = self._live_cells if kind == "live" else self._phase_cells
        key = kind, level, tile_level, columns
        facts, cells, whole = self._once(key, lambda: make(level, tile_level, columns))
        rows = slice(row * ROWS_PER_BLOCK, (row + 1) * ROWS_PER_BLOCK)
        cut = {name: array[:, rows] for name, array in cells.items()}
        n_rows = next(iter(cut.values())).shape[1]
        facts = {"n_columns": columns[1] - columns[0], "n_rows": n_rows, **facts}
        return pack_of(facts, {name: array.reshape(-1) for name, array in (cut | whole).items()})

    def _once(self, key: tuple, make: Callable[[], T]) -> T:
        """The value of a key: cached, or made now. A few are cached."""
        with self._lock:
            if key not in self._cached:
                self._cached[key] = make()
                while len(self._cached) > _MOST_CACHED:
                    del self._cached[next(iter(self._cached))]
            return self._cached[key]  # pyright: ignore[reportReturnType]

    def _phase_cells(self, level: int, tile_level: int, columns: tuple[int, int]) -> Cells:
        """Compute and exchange of each row as shares of the chip's time in each column."""
        sums = self._chip_sums(level, columns)
        rows = {name: self._pooled(name, level, columns) for name in ("compute", "exchange")}
        return {}, phase_shares(rows, sums, self.reader, tile_level, self._quantised), sums

    def _live_cells(self, level: int, tile_level: int, columns: tuple[int, int]) -> Cells:
        """Temporary bytes of each row as shares of the most that a tile has at any step.

        The fullest tile of a row counts: a single tile out of memory must stand out.
        """
        reader, live = self.reader, self._pooled("live", level, columns)
        most = live.reshape(len(live), reader.n_ipus, -1)
        for _ in range(tile_level):
            most = pooled_by(4, most, np.maximum, axis=2)
        largest = max(1, int(reader.table("steps")["largest_temporary"].max(initial=0)))
        return (
            {"largest": largest},
            {"compute": self._quantised(most / largest).reshape(len(live), -1)},
            {},
        )

    def _chip_sums(self, level: int, columns: tuple[int, int]) -> dict[str, Ints]:
        key = "chips", level, columns
        return self._shared(key, lambda: chip_sums(entries_of(self.reader, level, columns)))

    def _pooled(self, name: str, level: int, columns: tuple[int, int]) -> Ints:
        key = "rows", name, level, columns
        return self._shared(key, lambda: self._made(name, level, columns))

    def _shared(self, key: tuple, make: Callable[[], T]) -> T:
        """Like `_once`, for what is needed while something else is made, with the lock held."""
        if key not in self._cached:
            self._cached[key] = make()
        return self._cached[key]  # pyright: ignore[reportReturnType]

    def _made(self, name: str, level: int, columns: tuple[int, int]) -> Ints:
        if name == "live":
            return _pooled_live(self.reader, level, columns)
        base = self._base_level()
        if level < base:
            return tile_rows(self.reader, name, entries_of(self.reader, level, columns))
        # All levels from the base on are pooled from its rows, which one pass over the trace makes.
        if name not in self._base_rows:
            all_columns = 0, heat_shape(self.reader, "phases").columns(base)
            ran = entries_of(self.reader, base, all_columns)
            self._base_rows[name] = tile_rows(self.reader, name, ran)
        unit = 2 ** (level - base)
        rows = self._base_rows[name][columns[0] * unit : columns[1] * unit]
        for _ in range(level - base):
            rows = pooled_by(2, rows, np.add, axis=0)
        return rows

    @staticmethod
    def _quantised(shares: Ints) -> Ints:
        """uint8; the shares, which may be many, are overwritten."""
        shares *= MOST_SHOWN
        np.rint(shares, out=shares)
        return np.clip(shares, 0, MOST_SHOWN, out=shares).astype(np.uint8)

    def _base_level(self) -> int:
        """The finest level whose rows are few enough to keep."""
        shape, most = heat_shape(self.reader, "phases"), _MOST_BASE_CELLS // self.reader.n_tiles
        return next((k for k in range(shape.n_levels) if shape.columns(k) <= most), shape.n_levels)


def _missing(kind: str, level: int, tile_level: int) -> MissingProfileData:
    return MissingProfileData(
        f"there is no such block of {kind!r} at level {level}, tile level {tile_level}.",
        hint="ask for one that the shape names",
    )


def entries_of(reader: ReportReader, level: int, columns: tuple[int, int]) -> Pooled:
    """What ran in each column."""
    edges = np.arange(columns[0], columns[1] + 1) * 2**level
    return pooled(reader, np.minimum(edges, reader.n_entries))


def _pooled_live(reader: ReportReader, level: int, columns: tuple[int, int]) -> Ints:
    """int64[columns, n_tiles]: from the coarsest stored level that is fine enough."""
    matrix, pool = reader.matrix("live"), 2**level
    stored = max(k for k in range(len(matrix.levels)) if pool_of_level(k) <= pool)
    unit = pool_of_level(stored)
    rows = matrix.rows(columns[0] * pool // unit, -(-columns[1] * pool // unit), stored)
    for _ in range((pool // unit).bit_length() - 1):
        rows = pooled_by(2, rows, np.maximum, axis=0)
    return rows


def _tile_sums(cells: Ints, reader: ReportReader, tile_level: int) -> tuple[Ints, Ints]:
    """[n, n_ipus, groups] of 4^t tiles, and their sizes: a chip's last group may be smaller."""
    sums = cells.reshape(len(cells), reader.n_ipus, reader.tiles_per_ipu)
    for _ in range(tile_level):
        sums = pooled_by(4, sums, np.add, axis=2)
    sizes = np.full(sums.shape[2], 4**tile_level)
    sizes[-1] = reader.tiles_per_ipu % 4**tile_level or 4**tile_level
    return sums, sizes


def pooled_by(n: int, cells: Ints, combine: Callable[..., Ints], axis: int) -> Ints:
    """Neighbours along an axis combined, n at a time, the last group maybe fewer.

    Whole slices are combined, which is several times as fast as `reduceat`.
    """
    cells = np.moveaxis(cells, axis, 0)
    result = cells[::n].copy()
    for place in range(1, n):
        part = cells[place::n]
        combine(result[: len(part)], part, out=result[: len(part)])
    return np.moveaxis(result, 0, axis)


def chip_sums(ran: Pooled) -> dict[str, Ints]:
    """int64[columns, n_ipus]: where each column begins and ends, and what chips do in it.

    On each chip a column begins where the one before it ended. What a chip does in links, host and
    sync all its tiles do; what is left of `total` they wait.
    """
    begin = np.concatenate([ran.begin[:1], ran.end[:-1]])
    parts = {f"chip_{name}": ran.phases[:, :, i] for i, name in enumerate(PHASES)}
    return {"begin": begin, "end": ran.end, **parts, "total": ran.end - begin}


def phase_shares(
    rows: dict[str, Ints], sums: dict[str, Ints], reader: ReportReader, tile_level: int,
    quantised: Callable[[Ints], Ints],
) -> dict[str, Ints]:  # fmt: skip
    """Cycles of tiles, by phase, as shares of the time that their chips take."""
    total, cells = np.maximum(sums["total"], 1), {}
    for name, cycles in rows.items():
        of_groups, sizes = _tile_sums(cycles, reader, tile_level)
        cells[name] = quantised(of_groups / (total[:, :, None] * sizes)).reshape(len(cycles), -1)
    return cells
