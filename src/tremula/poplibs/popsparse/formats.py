"""Sparse matrices on the host: COO, CSR and CSC, of elements or of blocks.

Indices are those of a block's first element, and pointers count elements, not blocks. Values of a
block lie row by row, in CSC column by column. Constructors check; `from_dense` and the conversions
sort, so that the columns of a row ascend.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np

from tremula.base.source import user_source
from tremula.poplibs.popsparse.errors import SparsityError

Block = tuple[int, int]


@dataclass(frozen=True, eq=False)
class _Matrix:
    """What the formats share."""

    num_rows: int
    num_columns: int
    nz_values: np.ndarray
    column_indices: np.ndarray
    row_indices: np.ndarray
    block: Block = (1, 1)

    format_name = ""

    def __post_init__(self) -> None:
        for name in ("column_indices", "row_indices"):
            result = np.asarray(getattr(self, name), dtype=np.int64)
            object.__setattr__(self, name, result)
        object.__setattr__(self, "nz_values", np.asarray(self.nz_values))
        rows, columns = self.block
        if rows < 1 or columns < 1:
            raise self._failed(f"a block of {rows} × {columns}")
        for what, size, side in (
            ("rows", self.num_rows, rows),
            ("columns", self.num_columns, columns),
        ):
            if size % side:
                raise self._failed(f"{size} {what} are not a multiple of the block's {side}")
        self._check()

    def _check(self) -> None:
        raise NotImplementedError

    def _failed(self, what: str) -> SparsityError:
        return SparsityError(
            f"{self.format_name} Validation failed: {what}",
            source=user_source(),
            hint="indices are those of a block's first element, pointers count elements; "
            "from_dense and conversions make and sort them",
        )

    @property
    def block_size(self) -> int:
        """The number of elements of a block."""
        return self.block[0] * self.block[1]

    @property
    def n_blocks(self) -> int:
        """How many blocks are stored."""
        return len(self.nz_values) // self.block_size

    def _check_indices(self, name: str, side: int, bound: int) -> None:
        indices = getattr(self, name)
        odd = np.flatnonzero(indices % side)
        if len(odd):
            raise self._failed(
                f"{name} {indices[odd[0]]} at index {odd[0]} is not a multiple of block size {side}"
            )
        far = np.flatnonzero((indices < 0) | (indices >= bound))
        if len(far):
            raise self._failed(f"{name} {indices[far[0]]} at index {far[0]} exceeds bound {bound}")

    def _check_pointers(self, name: str, n_blocks: int) -> None:
        pointers, n_values = getattr(self, name), len(self.nz_values)
        if len(pointers) != n_blocks + 1:
            raise self._failed(f"{len(pointers)} {name}, expected {n_blocks + 1}")
        if pointers[-1] != n_values:
            raise self._failed(
                f"the last of {name} is {pointers[-1]}, but there are {n_values} values"
            )
        odd = np.flatnonzero(pointers % self.block_size)
        if len(odd):
            raise self._failed(
                f"{name} {pointers[odd[0]]} at index {odd[0]} is not a multiple of block size "
                f"{self.block_size}"
            )
        if bool((np.diff(pointers) < 0).any()) or pointers[0] != 0:
            at = int(np.flatnonzero(np.diff(pointers, prepend=0) < 0)[0]) if pointers[0] == 0 else 0
            raise self._failed(f"{name} do not ascend from 0: {pointers[at]} at index {at}")

    def _check_count(self, name: str) -> None:
        n = len(getattr(self, name))
        if n * self.block_size != len(self.nz_values):
            raise self._failed(
                f"{n} {name} of blocks with {self.block_size} elements, but "
                f"{len(self.nz_values)} values"
            )

    def to_coo(self) -> "COOMatrix":
        """This matrix as a list of blocks, row by row."""
        raise NotImplementedError

    def to_csr(self) -> "CSRMatrix":
        """This matrix by rows."""
        return CSRMatrix._of(self.to_coo())

    def to_csc(self) -> "CSCMatrix":
        """This matrix by columns."""
        return CSCMatrix._of(self.to_coo())

    def to_dense(self) -> np.ndarray:
        """All elements, zeros too; places that occur twice add up."""
        coo = self.to_coo()
        rows, columns = coo.block
        grid = np.zeros(
            (self.num_rows // rows, self.num_columns // columns, rows, columns),
            coo.nz_values.dtype,
        )
        places = (coo.row_indices // rows, coo.column_indices // columns)
        np.add.at(grid, places, coo.nz_values.reshape(-1, rows, columns))
        return grid.transpose(0, 2, 1, 3).reshape(self.num_rows, self.num_columns)

    def __eq__(self, other: object) -> bool:
        return (
            type(self) is type(other)
            and isinstance(other, _Matrix)
            and (self.num_rows, self.num_columns, self.block)
            == (other.num_rows, other.num_columns, other.block)
            and all(
                np.array_equal(getattr(self, name), getattr(other, name))
                for name in ("nz_values", "column_indices", "row_indices")
            )
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType] - arrays have none

    @classmethod
    def from_dense(cls, dense: object, block: Block = (1, 1)) -> Self:
        """The blocks of a matrix that are not all zero."""
        matrix = np.asarray(dense)
        n_rows, n_columns = matrix.shape
        rows, columns = block
        if min(block) < 1 or n_rows % rows or n_columns % columns:
            raise SparsityError(
                f"a matrix of {n_rows} × {n_columns} is not made of blocks of {rows} × {columns}",
                source=user_source(),
                hint="pad it, or take smaller blocks",
            )
        grid = matrix.reshape(n_rows // rows, rows, n_columns // columns, columns)
        grid = grid.transpose(0, 2, 1, 3)
        at_row, at_column = np.nonzero((grid != 0).any(axis=(2, 3)))
        coo = COOMatrix(
            n_rows, n_columns, grid[at_row, at_column].reshape(-1), at_column * columns,
            at_row * rows, block,
        )  # fmt: skip
        return cls._of(coo)

    @classmethod
    def _of(cls, coo: "COOMatrix") -> Self:
        raise NotImplementedError


def _reject_disorder(
    matrix: _Matrix, same_line: np.ndarray, step: np.ndarray, line: np.ndarray
) -> None:
    """Name the first entry that does not follow the one before it in its row."""
    bad = np.flatnonzero(same_line & (step <= 0))
    if not len(bad):
        return
    at = int(bad[0])
    what = "occurs twice" if step[at] == 0 else "is out of order"
    raise matrix._failed(f"entry {at + 1} of row {int(line[at + 1])} {what}")


class COOMatrix(_Matrix):
    """A list of blocks, in any order: the row and the column of each."""

    format_name = "COO"

    def _check(self) -> None:
        if len(self.row_indices) != len(self.column_indices):
            raise self._failed(
                f"{len(self.row_indices)} row indices, but {len(self.column_indices)} "
                "column indices"
            )
        self._check_count("row_indices")
        self._check_indices("row_indices", self.block[0], self.num_rows)
        self._check_indices("column_indices", self.block[1], self.num_columns)

    def to_coo(self) -> "COOMatrix":
        """The blocks in the order of rows, then of columns."""
        order = np.lexsort((self.column_indices, self.row_indices))
        return COOMatrix(
            self.num_rows, self.num_columns,
            self.nz_values.reshape(-1, self.block_size)[order].reshape(-1),
            self.column_indices[order], self.row_indices[order], self.block,
        )  # fmt: skip

    def duplicates(self) -> np.ndarray:
        """Places in the list of blocks that stand for a block which occurred before."""
        keys = self.row_indices * max(self.num_columns, 1) + self.column_indices
        _, first = np.unique(keys, return_index=True)
        return np.setdiff1d(np.arange(len(keys)), first)

    def with_block(self, block: Block) -> "COOMatrix":
        """This matrix in blocks of another size.

        Smaller blocks divide the present ones. Larger ones are possible where every part is there.
        """
        if min(block) < 1:
            raise self._failed(f"a block of {block[0]} × {block[1]}")
        if self.block[0] % block[0] == 0 and self.block[1] % block[1] == 0:
            return self._cut(block)
        if block[0] % self.block[0] or block[1] % self.block[1]:
            raise SparsityError(
                f"blocks of {self.block[0]} × {self.block[1]} neither divide nor consist of blocks "
                f"of {block[0]} × {block[1]}",
                source=user_source(),
                hint="take a size that divides the present one, or a multiple of it",
            )
        return self._joined(block)

    def _cut(self, block: Block) -> "COOMatrix":
        (rows, columns), (r, c) = self.block, block
        parts = self.nz_values.reshape(-1, rows // r, r, columns // c, c).transpose(0, 1, 3, 2, 4)
        at_row = self.row_indices[:, None, None] + np.arange(0, rows, r)[None, :, None]
        at_column = self.column_indices[:, None, None] + np.arange(0, columns, c)[None, None, :]
        at_row, at_column = np.broadcast_arrays(at_row, at_column)
        return COOMatrix(
            self.num_rows, self.num_columns, parts.reshape(-1), at_column.reshape(-1),
            at_row.reshape(-1), block,
        ).to_coo()  # fmt: skip

    def _joined(self, block: Block) -> "COOMatrix":
        (rows, columns), (r, c) = block, self.block
        whole = (self.row_indices // rows, self.column_indices // columns)
        keys = whole[0] * (self.num_columns // columns) + whole[1]
        result, number, counts = np.unique(keys, return_inverse=True, return_counts=True)
        n_parts = (rows // r) * (columns // c)
        if bool((counts != n_parts).any()):
            at = int(result[np.flatnonzero(counts != n_parts)[0]])
            row, column = divmod(at, self.num_columns // columns)
            raise SparsityError(
                f"the block of {rows} × {columns} at row {row * rows}, column {column * columns} "
                f"has {int(counts[counts != n_parts][0])} of its {n_parts} parts",
                source=user_source(),
                hint="from_dense(matrix.to_dense(), block) fills up with zeros",
            )
        values = np.zeros((len(result), rows // r, columns // c, r, c), self.nz_values.dtype)
        inside = (self.row_indices % rows // r, self.column_indices % columns // c)
        values[number, inside[0], inside[1]] = self.nz_values.reshape(-1, r, c)
        at_row, at_column = np.divmod(result, self.num_columns // columns)
        return COOMatrix(
            self.num_rows, self.num_columns, values.transpose(0, 1, 3, 2, 4).reshape(-1),
            at_column * columns, at_row * rows, block,
        )  # fmt: skip

    @classmethod
    def _of(cls, coo: "COOMatrix") -> "COOMatrix":
        return coo.to_coo()


class CSRMatrix(_Matrix):
    """Blocks row by row: `row_indices` are pointers to the elements where rows of blocks begin."""

    format_name = "CSR"

    def _check(self) -> None:
        self._check_pointers("row_indices", self.num_rows // self.block[0])
        self._check_count("column_indices")
        self._check_indices("column_indices", self.block[1], self.num_columns)

    def to_coo(self) -> COOMatrix:
        """The blocks in the order of rows, then of columns."""
        counts = np.diff(self.row_indices) // self.block_size
        rows = np.repeat(np.arange(len(counts)) * self.block[0], counts)
        return COOMatrix(
            self.num_rows, self.num_columns, self.nz_values, self.column_indices, rows, self.block
        ).to_coo()

    @classmethod
    def _of(cls, coo: COOMatrix) -> "CSRMatrix":
        ordered = coo.to_coo()
        n = coo.num_rows // coo.block[0]
        counts = np.bincount(ordered.row_indices // coo.block[0], minlength=n)
        pointers = np.concatenate([[0], np.cumsum(counts)]) * coo.block_size
        return cls(
            coo.num_rows, coo.num_columns, ordered.nz_values, ordered.column_indices, pointers,
            coo.block,
        )  # fmt: skip

    def with_values(self, values: np.ndarray) -> "CSRMatrix":
        """This pattern with other values, in its order."""
        return CSRMatrix(
            self.num_rows, self.num_columns, values, self.column_indices, self.row_indices,
            self.block,
        )  # fmt: skip

    def values_of(self, dense: np.ndarray) -> np.ndarray:
        """The elements of a dense matrix at the pattern, in the order of `nz_values`."""
        rows, columns = self.block
        counts = np.diff(self.row_indices) // self.block_size
        at_row = np.repeat(np.arange(len(counts)), counts)
        grid = dense.reshape(self.num_rows // rows, rows, self.num_columns // columns, columns)
        return grid[at_row, :, self.column_indices // columns, :].reshape(-1)

    def check_order(self) -> None:
        """Refuse columns of a row that do not ascend: out of order, or twice the same."""
        row_of = np.repeat(
            np.arange(len(self.row_indices) - 1), np.diff(self.row_indices) // self.block_size
        )
        same_row = row_of[1:] == row_of[:-1]
        _reject_disorder(self, same_row, np.diff(self.column_indices), row_of * self.block[0])


class CSCMatrix(_Matrix):
    """Blocks column by column; `column_indices` are pointers, values of a block by columns."""

    format_name = "CSC"

    def _check(self) -> None:
        self._check_pointers("column_indices", self.num_columns // self.block[1])
        self._check_count("row_indices")
        self._check_indices("row_indices", self.block[0], self.num_rows)

    def to_coo(self) -> COOMatrix:
        """The blocks in the order of rows, then of columns."""
        counts = np.diff(self.column_indices) // self.block_size
        columns = np.repeat(np.arange(len(counts)) * self.block[1], counts)
        by_rows = self.nz_values.reshape(-1, self.block[1], self.block[0]).transpose(0, 2, 1)
        return COOMatrix(
            self.num_rows, self.num_columns, by_rows.reshape(-1), columns, self.row_indices,
            self.block,
        ).to_coo()  # fmt: skip

    @classmethod
    def _of(cls, coo: COOMatrix) -> "CSCMatrix":
        order = np.lexsort((coo.row_indices, coo.column_indices))
        n = coo.num_columns // coo.block[1]
        counts = np.bincount(coo.column_indices // coo.block[1], minlength=n)
        pointers = np.concatenate([[0], np.cumsum(counts)]) * coo.block_size
        blocks = coo.nz_values.reshape(-1, *coo.block)[order].transpose(0, 2, 1)
        return cls(
            coo.num_rows, coo.num_columns, blocks.reshape(-1), pointers, coo.row_indices[order],
            coo.block,
        )  # fmt: skip
