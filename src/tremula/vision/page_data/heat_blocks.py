"""Heat maps of tiles over time, in blocks: a screen needs only a few.

A block is 128 columns × 512 rows. A column of level k pools 2^k trace entries (or steps); a row
of tile level t pools 4^t neighbouring tiles of one chip. Cells are shares, quantised to 0 … 63:
finer than an eye sees, and small once deflated.
"""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import MissingProfileData
from tremula.vision.page_data.pack import pack_of
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.schema import pool_of_level

Ints = np.ndarray

COLUMNS_PER_BLOCK, ROWS_PER_BLOCK = 128, 512
MOST_SHOWN = 63  # a cell of this value is full
_FEWEST_COLUMNS = COLUMNS_PER_BLOCK  # a level with this few columns is the last
_FEWEST_ROWS = 256
KINDS = ("phases", "live")


@dataclass(frozen=True, slots=True)
class Shape:
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


def heat_shape(reader: ReportReader, kind: str) -> Shape:
    n_entries = reader.n_steps if kind == "live" else reader.n_entries
    n_levels = 1
    while -(-n_entries // 2 ** (n_levels - 1)) > _FEWEST_COLUMNS:
        n_levels += 1
    rows = [reader.n_ipus * reader.tiles_per_ipu]
    while rows[-1] > _FEWEST_ROWS and 4 ** len(rows) <= reader.tiles_per_ipu:
        rows.append(reader.n_ipus * -(-reader.tiles_per_ipu // 4 ** len(rows)))
    return Shape(n_entries, n_levels, len(rows), tuple(rows))


def heat_block(
    reader: ReportReader, kind: str, level: int, tile_level: int, column: int, row: int
) -> bytes:
    """One block as a pack; raises MissingProfileData if there is no such block."""
    shape = heat_shape(reader, kind)
    if not (0 <= level < shape.n_levels and 0 <= tile_level < shape.n_tile_levels):
        raise _missing(kind, level, tile_level)
    n_columns, n_rows = shape.blocks(level, tile_level)
    if not (0 <= column < n_columns and 0 <= row < n_rows):
        raise _missing(kind, level, tile_level)
    first = column * COLUMNS_PER_BLOCK
    last = min(shape.columns(level), first + COLUMNS_PER_BLOCK)
    rows = slice(row * ROWS_PER_BLOCK, (row + 1) * ROWS_PER_BLOCK)
    make = _live_block if kind == "live" else _phase_block
    return make(reader, level, tile_level, (first, last), rows)


def _missing(kind: str, level: int, tile_level: int) -> MissingProfileData:
    return MissingProfileData(
        f"there is no such block of {kind!r} at level {level}, tile level {tile_level}.",
        hint="ask for one that the shape names",
    )


def _phase_block(
    reader: ReportReader, level: int, tile_level: int, columns: tuple[int, int], rows: slice
) -> bytes:
    """Compute and exchange of each row as shares of the chip's time in each column."""
    sums = _chip_sums(reader, level, columns)
    total = np.maximum(sums["total"], 1)
    cells = {}
    for name in ("compute", "exchange"):
        cycles = _pooled(reader, name, level, columns)
        means = _tile_means(cycles, reader, tile_level)
        per_chip = means.shape[1] // reader.n_ipus
        shares = means / np.repeat(total, per_chip, axis=1)
        cells[name] = _quantised(shares[:, rows])
    facts = {"n_columns": columns[1] - columns[0], "n_rows": cells["compute"].shape[1]}
    flat = {name: column.reshape(-1) for name, column in {**cells, **sums}.items()}
    return pack_of(facts, flat)


def _live_block(
    reader: ReportReader, level: int, tile_level: int, columns: tuple[int, int], rows: slice
) -> bytes:
    """Temporary bytes of each row as shares of the most that a tile has at any step.

    The fullest tile of a row counts: a single tile out of memory must stand out.
    """
    live = _pooled(reader, "live", level, columns)
    group = 4**tile_level
    starts = np.arange(0, reader.tiles_per_ipu, group)
    by_chip = live.reshape(len(live), reader.n_ipus, -1)
    most = np.maximum.reduceat(by_chip, starts, axis=2).reshape(len(live), -1)
    largest = max(1, int(reader.table("steps")["largest_temporary"].max(initial=0)))
    cells = _quantised(most[:, rows] / largest)
    facts = {"n_columns": columns[1] - columns[0], "n_rows": cells.shape[1], "largest": largest}
    return pack_of(facts, {"compute": cells.reshape(-1)})


def _pooled(reader: ReportReader, name: str, level: int, columns: tuple[int, int]) -> Ints:
    """int64[columns, n_tiles]: from the coarsest stored level that is fine enough."""
    matrix, pool = reader.pooled_matrix(name), 2**level
    stored = max(k for k in range(len(matrix.levels)) if pool_of_level(k) <= pool)
    unit = pool_of_level(stored)
    first, last = columns[0] * pool // unit, -(-columns[1] * pool // unit)
    rows = reader.pooled_rows(name, first, last, stored)
    if pool == unit:
        return rows
    starts = np.arange(0, len(rows), pool // unit)
    return (np.maximum if name == "live" else np.add).reduceat(rows, starts, axis=0)


def _tile_means(cells: Ints, reader: ReportReader, tile_level: int) -> Ints:
    """Means of groups of 4^t tiles; a chip's last group may be smaller."""
    starts = np.arange(0, reader.tiles_per_ipu, 4**tile_level)
    by_chip = cells.reshape(len(cells), reader.n_ipus, reader.tiles_per_ipu)
    sums = np.add.reduceat(by_chip, starts, axis=2)
    sizes = np.diff(np.append(starts, reader.tiles_per_ipu))
    return (sums / sizes).reshape(len(cells), -1)


def _chip_sums(reader: ReportReader, level: int, columns: tuple[int, int]) -> dict[str, Ints]:
    """float64[columns, n_ipus]: where each column begins and ends, and what chips do in it."""
    pool = 2**level
    first, last = columns[0] * pool, min(reader.n_entries, columns[1] * pool)
    starts = np.arange(0, last - first, pool)
    trace = reader.trace
    step, times = trace.step[first:last], trace.times[first:last, None]
    parts = {
        name: np.add.reduceat(reader.chip_cycles(name)[step] * times, starts, axis=0)
        for name in ("sync", "exchange", "compute")
    }
    ends = np.append(starts[1:], last - first) - 1
    begin, end = trace.start[first:last][starts], trace.end[first:last][ends]
    return {
        "begin": begin,
        "end": end,
        "chip_sync": parts["sync"],
        "chip_exchange": parts["exchange"],
        "chip_compute": parts["compute"],
        "total": end - begin,
    }


def _quantised(shares: Ints) -> Ints:
    return np.clip(np.rint(shares * MOST_SHOWN), 0, MOST_SHOWN).astype(np.uint8)
