"""Patterns of sparse matrices that are known before a model is captured.

Operations name a pattern by number. A number is valid while its pattern is referenced, and else as
long as it is among those used last: a program that only names it keeps it by running.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from tremula.ir.errors import UnsuitableModel

if TYPE_CHECKING:  # the tile side is loaded where it is used
    from tremula.poplibs.popsparse import CSRMatrix

_N_HASHED = 7  # bytes of a pattern's number: it fits an argument of an operation
_MOST_BLOCKS = 1 << 26  # of the patterns used last, together: a quarter of a gigabyte
_known: WeakValueDictionary[int, "SparsePattern"] = WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class SparsePattern:
    """Where a matrix [n_rows, n_columns] has square blocks of values, row by row."""

    n_rows: int
    n_columns: int
    side: int
    row_start: np.ndarray  # int32[rows of blocks + 1]: the first block of each
    columns: np.ndarray  # int32[blocks], in blocks; ascending in a row

    @staticmethod
    def of(matrix: "CSRMatrix") -> "SparsePattern":
        """The pattern of a matrix, whose blocks must be square."""
        matrix.check_order()
        side, area = matrix.block[0], matrix.block_size
        if matrix.block[0] != matrix.block[1]:
            raise ValueError(f"blocks must be square, got {list(matrix.block)}")
        starts = (matrix.row_indices // area).astype(np.int32)
        columns = (matrix.column_indices // side).astype(np.int32)
        return SparsePattern(matrix.num_rows, matrix.num_columns, side, starts, columns)

    @property
    def n_blocks(self) -> int:
        return len(self.columns)

    @cached_property
    def rows(self) -> np.ndarray:
        """int32[blocks]: the row of blocks that each is in."""
        counts = np.diff(self.row_start)
        return np.repeat(np.arange(len(counts), dtype=np.int32), counts)

    @cached_property
    def transposed(self) -> tuple["SparsePattern", np.ndarray]:
        """The transposed pattern, and which of these blocks each of its blocks is."""
        order = np.lexsort((self.rows, self.columns)).astype(np.int32)
        counts = np.bincount(self.columns, minlength=self.n_columns // self.side)
        starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        turned = SparsePattern(self.n_columns, self.n_rows, self.side, starts, self.rows[order])
        return turned, order

    def csr(self) -> "CSRMatrix":
        """As a matrix of PopSparse, with values of one."""
        from tremula.poplibs.popsparse import CSRMatrix

        area = self.side * self.side
        return CSRMatrix(
            self.n_rows, self.n_columns, np.ones(self.n_blocks * area, np.float32),
            self.columns.astype(np.int64) * self.side, self.row_start.astype(np.int64) * area,
            (self.side, self.side),
        )  # fmt: skip

    @property
    def number(self) -> int:
        """What operations call it: a hash of all of it, the same in every process."""
        _used_last.keep(self._hash, _known.setdefault(self._hash, self))
        return self._hash

    @cached_property
    def _hash(self) -> int:
        result = sha256(repr((self.n_rows, self.n_columns, self.side)).encode())
        result.update(self.row_start.tobytes())
        result.update(self.columns.tobytes())
        return int.from_bytes(result.digest()[:_N_HASHED], "big")

    def on(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """(row_start, columns, rows) as tensors on a device."""
        if device not in self._placed:
            starts, columns, rows = (
                torch.from_numpy(part).to(device)
                for part in (self.row_start, self.columns, self.rows)
            )
            self._placed[device] = starts, columns, rows
        return self._placed[device]

    @cached_property
    def _placed(self) -> dict[torch.device, tuple[Tensor, Tensor, Tensor]]:
        return {}


class _UsedLast:
    """The patterns that were used last, within a limit on their blocks."""

    def __init__(self, most_blocks: int) -> None:
        self.patterns: OrderedDict[int, SparsePattern] = OrderedDict()
        self.most_blocks, self.n_blocks = most_blocks, 0

    def keep(self, number: int, pattern: SparsePattern) -> None:
        """Put a pattern last, and let those go that were not used for longest."""
        if number in self.patterns:
            self.patterns.move_to_end(number)
            return
        self.patterns[number] = pattern
        self.n_blocks += pattern.n_blocks
        while len(self.patterns) > 1 and self.n_blocks > self.most_blocks:
            self.n_blocks -= self.patterns.popitem(last=False)[1].n_blocks


_used_last = _UsedLast(_MOST_BLOCKS)


def pattern_numbered(number: int) -> SparsePattern:
    """The pattern that an operation of this process means."""
    result = _known.get(number)
    if result is None:
        raise UnsuitableModel(
            f"the sparse pattern {number} that an operation names is gone: nothing refers to it, "
            f"and patterns of {_used_last.most_blocks} blocks were used since.",
            hint="keep the layer or the Pattern, or compile the model again",
        )
    _used_last.keep(number, result)
    return result
