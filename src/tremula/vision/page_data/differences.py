"""Heat maps of how two reports differ, in the blocks and on the axes of the first of them.

Steps are paired by name, the n-th of a name with the n-th. MIDDLE means no difference; 0 and
2 × MIDDLE are the largest, less and more.
"""

from collections.abc import Sequence
from functools import cached_property, partial

import numpy as np

from tremula.vision.page_data.heat_blocks import (
    Cells,
    HeatBlocks,
    entries_of,
    pooled_by,
)
from tremula.vision.report.reader import ReportReader
from tremula.vision.report.windows import summed_rows

Ints = np.ndarray

MIDDLE = 31
_ROWS_AT_ONCE = 512


def partners(before: Sequence[str], after: Sequence[str]) -> Ints:
    """int64[len(before)]: the place of each name's partner, -1 for none."""
    places = {name: index for index, name in enumerate(_numbered(after))}
    return np.array([places.get(name, -1) for name in _numbered(before)], np.int64)


def _numbered(names: Sequence[str]) -> list[tuple[str, int]]:
    seen: dict[str, int] = {}
    result = []
    for name in names:
        seen[name] = seen.get(name, -1) + 1
        result.append((name, seen[name]))
    return result


class DifferenceBlocks(HeatBlocks):
    """Blocks of `other` minus `reader`: cycles over time, temporary bytes over steps.

    Cycles are compared per item of work, as if both had done the same.
    """

    def __init__(self, reader: ReportReader, other: ReportReader):
        super().__init__(reader)
        self.other = other
        self.partner = partners(reader.table("steps")["path"], other.table("steps")["path"])

    def facts(self) -> dict[str, object]:
        """Whether the two can be compared tile by tile, and what full colour means."""
        mine, theirs = self.reader, self.other
        if (mine.n_ipus, mine.tiles_per_ipu) != (theirs.n_ipus, theirs.tiles_per_ipu):
            why = (
                f"A has {mine.n_ipus} × {mine.tiles_per_ipu} tiles, "
                f"B {theirs.n_ipus} × {theirs.tiles_per_ipu}"
            )
            return {"why_not": why}
        n_alone = int((self.partner < 0).sum())
        return {
            "why_not": "",
            "middle": MIDDLE,
            "largest_live": self._largest(),
            "n_alone": n_alone,
        }

    def _largest(self) -> int:
        """The largest difference of a tile's temporary bytes at a step, at least 1."""
        return self._once(("largest",), self._find_largest)

    def _find_largest(self) -> int:
        n, largest = self.reader.n_steps, 1
        for first in range(0, n, _ROWS_AT_ONCE):
            rows = self._rows("live", first, min(n, first + _ROWS_AT_ONCE))
            largest = max(largest, int(np.abs(rows).max(initial=0)))
        return largest

    def _rows(self, name: str, first: int, last: int) -> Ints:
        """Differences of steps; what B lacks takes it nothing.

        Cycles are per item of work: those of all of B's executions, spread over A's.
        """
        places = self.partner[first:last]
        weight = (places >= 0) if name == "live" else self.times[first:last]
        theirs = self.other.matrix(name).take(np.maximum(places, 0)) * weight[:, None]
        return theirs - self.reader.matrix(name).rows(first, last)

    @cached_property
    def times(self) -> Ints:
        """float64[n_steps]: executions of B's partner for one of A; 0 without one."""
        mine, theirs = (r.table("steps")["executed"] for r in (self.reader, self.other))
        often = np.append(theirs, 0)[self.partner]  # row -1 is the appended zero
        return often / np.maximum(mine, 1)

    def columns(self) -> dict[str, Ints]:
        """`change` float32[n_buckets × n_chips]: busy cycles B − A of the overview's buckets."""
        mine, theirs = self.reader, self.other
        if self.facts()["why_not"] or not mine.n_entries or not theirs.n_steps:
            return {}
        once = theirs.phases_of_steps.sum(axis=2)[np.maximum(self.partner, 0)]
        change = once * self.times[:, None] - mine.phases_of_steps.sum(axis=2)
        start, step, times = (mine.column(f"overview.{n}") for n in ("start", "step", "times"))
        sums = np.cumsum(np.vstack([np.zeros(mine.n_ipus), change[step] * times[:, None]]), axis=0)
        return {"change": (sums[start[1:]] - sums[start[:-1]]).astype(np.float32).reshape(-1)}

    def _pooled(self, name: str, level: int, columns: tuple[int, int]) -> Ints:
        """int64[columns, n_tiles]: sums, or for `live` the largest difference, either way."""
        if name != "live":
            ran = entries_of(self.reader, level, columns)
            return summed_rows(ran, partial(self._rows, name), self.reader.n_steps,
                               self.reader.n_tiles)  # fmt: skip
        pool, n = 2**level, self.reader.n_steps
        per_turn = max(1, _ROWS_AT_ONCE // pool)
        result = []
        for column in range(columns[0], columns[1], per_turn):
            last = min(columns[1], column + per_turn)
            rows = self._rows(name, column * pool, min(n, last * pool))
            for _ in range(level):
                rows = pooled_by(2, rows, _farther, axis=0)
            result.append(rows)
        return np.concatenate(result)

    def _live_cells(self, level: int, tile_level: int, columns: tuple[int, int]) -> Cells:
        """Bytes, as shares of the largest difference anywhere."""
        rows = self._pooled("live", level, columns)
        cells = rows.reshape(len(rows), self.reader.n_ipus, -1)
        for _ in range(tile_level):
            cells = pooled_by(4, cells, _farther, axis=2)
        # The lock is held, so facts() was asked before, or this is the first to need it.
        largest = self._cached.get(("largest",)) or self._find_largest()
        return {}, {"compute": self._quantised(cells / largest).reshape(len(rows), -1)}, {}

    @staticmethod
    def _quantised(shares: Ints) -> Ints:
        """Any difference at all is seen: it is rounded away from the middle."""
        away = np.ceil(np.abs(shares) * MIDDLE) * np.sign(shares)
        return np.clip(MIDDLE + away, 0, 2 * MIDDLE).astype(np.uint8)


def _farther(a: Ints, b: Ints, out: Ints) -> Ints:
    """Of two differences the larger one, more or less."""
    return np.copyto(out, np.where(np.abs(b) > np.abs(a), b, a)) or out
