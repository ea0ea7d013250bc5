"""Which blocks of a matrix are there, and which of their elements count.

A sparse matrix of one or more groups is [blocks that are there][elements of a block], blocks row by
row, group after group; a mask has one byte for each place of a block.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

import numpy as np

from tremula.base.source import user_source
from tremula.poplar.tensors.runs import Runs
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.formats import COOMatrix, CSRMatrix
from tremula.poplibs.popsparse.static.costs import BLOCK_SIDES
from tremula.poplibs.popsparse.static.operands import pieces_of

Ints = np.ndarray
GivenMask = bytes | Sequence[int] | np.ndarray


def mask_bytes(mask: GivenMask) -> bytes:
    """One byte for each place of a block, whatever a mask was given as."""
    return (
        (np.frombuffer(mask, np.uint8) if isinstance(mask, bytes) else np.asarray(mask))
        .astype(bool)
        .tobytes()
    )


class SubBlockMask(Enum):
    """Elements that are zero although their block is there: beyond the matrix's diagonal."""

    NONE = "none"
    ZERO_UPPER_TRIANGLE = "zero upper triangle"
    ZERO_LOWER_TRIANGLE = "zero lower triangle"


@dataclass(frozen=True)
class BlockMask:
    """The places of blocks in a matrix [rows, columns], for each of some groups."""

    n_rows: int
    n_columns: int
    block: tuple[int, int]
    present: bytes  # one for each place of a block, all groups
    n_groups: int = 1

    def __post_init__(self) -> None:
        (rows, columns), n = self.block, len(self.present)
        wrong = ""
        if self.n_groups < 1:
            wrong = f"{self.n_groups} groups"
        elif rows < 1 or columns < 1 or self.n_rows % rows or self.n_columns % columns:
            wrong = f"a matrix of [{self.n_rows}, {self.n_columns}] in blocks of {rows} × {columns}"
        elif n != self.n_groups * self.n_places:
            wrong = f"a mask of {n}, expected {self.n_groups * self.n_places}: one of each block"
        if wrong:
            raise SparsityError(
                f"a block-sparse operation got {wrong}.",
                source=user_source(),
                hint="sizes are multiples of the block's; the mask has a byte for every block",
            )

    @property
    def n_places(self) -> int:
        return (self.n_rows // self.block[0]) * (self.n_columns // self.block[1])

    @property
    def area(self) -> int:
        return self.block[0] * self.block[1]

    @cached_property
    def grid(self) -> np.ndarray:
        """bool[groups, rows of blocks, columns of blocks]."""
        shape = self.n_groups, self.n_rows // self.block[0], self.n_columns // self.block[1]
        return (np.frombuffer(self.present, np.uint8) != 0).reshape(shape)

    @property
    def n_blocks(self) -> int:
        return int(self.grid.sum())

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix in memory."""
        return self.n_blocks, self.area

    @cached_property
    def first_block(self) -> Ints:
        """int64[groups + 1]: where each group's blocks begin."""
        return np.concatenate(([0], np.cumsum(self.grid.sum(axis=(1, 2)))))

    @property
    def side(self) -> int:
        """Of the squares that blocks are cut into: the largest with vertices."""
        return max(s for s in BLOCK_SIDES if not self.block[0] % s and not self.block[1] % s)

    def squares(self, group: int) -> tuple[CSRMatrix, Ints]:
        """A group's pattern in squares, and where each of their values is in the group's blocks."""
        at_row, at_column = np.nonzero(self.grid[group])
        rows, columns = self.block
        numbers = np.arange(len(at_row) * self.area)
        coo = COOMatrix(
            self.n_rows, self.n_columns, numbers, at_column * columns, at_row * rows, self.block
        )
        csr = coo.with_block((self.side, self.side)).to_csr()
        return csr, csr.nz_values

    def counted_elements(self, triangle: SubBlockMask) -> "KeptElements":
        """Elements that count, as stretches of the rows of blocks."""
        rows, columns = self.block
        group, at_row, at_column = np.nonzero(self.grid)
        number = np.arange(len(group))[:, None]
        inner = np.arange(rows)[None, :]
        row = at_row[:, None] * rows + inner
        first = np.zeros_like(row)
        last = np.full_like(row, columns)
        diagonal = row - at_column[:, None] * columns
        if triangle is SubBlockMask.ZERO_UPPER_TRIANGLE:
            last = np.clip(diagonal + 1, 0, columns)
        elif triangle is SubBlockMask.ZERO_LOWER_TRIANGLE:
            first = np.clip(diagonal, 0, columns)
        begin = number * self.area + inner * columns + first
        count = last - first
        row = row + group[:, None] * self.n_rows
        there = count.reshape(-1) > 0
        result = (column.reshape(-1)[there] for column in (row, begin, count))
        return KeptElements(*result)


@dataclass(frozen=True)
class KeptElements:
    """Stretches of elements: which row of all groups they belong to, and where they are."""

    row: Ints
    begin: Ints
    count: Ints

    def of(self, flat: Tensor) -> Tensor:
        """A view of these elements of a matrix in memory."""
        return pieces_of(flat, Runs(flat.offset + self.begin, self.count, np.ones_like(self.count)))

    def by_rows(self) -> "KeptElements":
        """The kept elements, row by row, columns ascending."""
        order = np.lexsort((self.begin, self.row))
        return KeptElements(self.row[order], self.begin[order], self.count[order])

    def in_rows(self, width: int) -> tuple["KeptElements", int]:
        """Their places in a matrix with a row of `width` for each row that has any; its rows."""
        _, number = np.unique(self.row, return_inverse=True)
        ends = np.cumsum(self.count)
        before = ends - self.count
        is_first = np.concatenate(([True], number[1:] != number[:-1]))
        within = before - before[is_first][number] if len(number) else before
        n_rows = int(number.max(initial=-1)) + 1
        return KeptElements(self.row, number * width + within, self.count), n_rows

    @property
    def width(self) -> int:
        """The most elements of a row."""
        if not len(self.row):
            return 0
        return int(np.bincount(self.row, weights=self.count).max())
