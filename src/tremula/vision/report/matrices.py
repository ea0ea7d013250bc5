"""Matrices of a report: blocks of 64 rows, read when needed, and their coarser levels."""

import json
from dataclasses import dataclass, field

import numpy as np

from tremula.base.columns import unpack
from tremula.vision.report.database import DatabaseReader
from tremula.vision.report.recent_values import RecentValues
from tremula.vision.report.schema import ROWS_PER_BLOCK

Ints = np.ndarray
_MOST_BYTES = 64 << 20  # of unpacked blocks, for each matrix


@dataclass
class Matrix:
    """Rows × columns; `levels` are the rows of each level, the full one first."""

    reader: DatabaseReader
    name: str
    n_rows: int
    n_columns: int
    levels: tuple[int, ...]
    unit: str
    _blocks: RecentValues[tuple[int, int], Ints] = field(
        default_factory=lambda: RecentValues(_MOST_BYTES, size=lambda block: block.nbytes)
    )

    @staticmethod
    def of(reader: DatabaseReader, name: str, n_tiles: int) -> "Matrix":
        sql = "SELECT n_rows, n_columns, rows_per_level, unit FROM matrices WHERE name = ?"
        rows = reader.execute(sql, (name,))
        if not rows:
            raise reader.damaged(f"has no matrix {name!r}")
        n_rows, n_columns, text, unit = rows[0]
        try:
            levels = tuple(json.loads(text))
        except (ValueError, TypeError):
            raise reader.damaged(f"has a matrix {name!r} with levels {text!r}") from None
        sizes = (n_rows, n_columns, *levels)
        if not all(type(n) is int and 0 <= n < 1 << 40 for n in sizes):
            raise reader.damaged(f"has a matrix {name!r} of sizes {sizes!r}")
        if n_columns != n_tiles:
            raise reader.damaged(f"has a matrix {name!r} of {n_columns} tiles")
        return Matrix(reader, name, n_rows, n_columns, levels, str(unit))

    def rows(self, first: int, last: int, level: int = 0) -> Ints:
        """int64[last - first, n_columns] of a level."""
        n_rows = self.levels[level] if level < len(self.levels) else 0
        first, last = max(0, first), min(n_rows, last)
        if last <= first:
            return np.zeros((0, self.n_columns), np.int64)
        blocks = range(first // ROWS_PER_BLOCK, -(-last // ROWS_PER_BLOCK))
        result = [self._block(level, number) for number in blocks]
        joined = result[0] if len(result) == 1 else np.concatenate(result)
        begin = blocks[0] * ROWS_PER_BLOCK
        return joined[first - begin : last - begin]

    def row(self, number: int) -> Ints:
        """int64[n_columns]."""
        return self.rows(number, number + 1)[0]

    def take(self, numbers: Ints) -> Ints:
        """int64[len(numbers), n_columns]: any rows, in any order."""
        result = np.zeros((len(numbers), self.n_columns), np.int64)
        of_block = numbers // ROWS_PER_BLOCK
        for block in np.unique(of_block).tolist():
            mine = of_block == block
            result[mine] = self._block(0, block)[numbers[mine] - block * ROWS_PER_BLOCK]
        return result

    def _block(self, level: int, number: int) -> Ints:
        return self._blocks.get((level, number), lambda: self._read(level, number))

    def _read(self, level: int, number: int) -> Ints:
        sql = "SELECT n_rows, dtype, data FROM blocks WHERE matrix = ? AND level = ? AND number = ?"
        rows = self.reader.execute(sql, (self.name, level, number))
        expected = min(ROWS_PER_BLOCK, self.levels[level] - number * ROWS_PER_BLOCK)
        if not rows or rows[0][0] != expected:
            raise self.reader.damaged(f"lacks block {number} of level {level} of {self.name!r}")
        what = f"block {number} of {self.name!r}"
        block = unpack(rows[0][2], rows[0][1], (expected, self.n_columns), what)
        block.flags.writeable = False
        return block
