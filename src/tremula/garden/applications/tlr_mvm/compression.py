"""Tile low-rank matrices on the host: a covariance kernel, its compression, NumPy's three phases.

A matrix of n x n is cut into blocks of n_block x n_block. Block (i, j) becomes U V with a rank that
meets the tolerance. All V of a column of blocks are stacked on each other, all U of a row of blocks
beside each other, so that a product has three phases:

    1  z_j = V_j x_j       for each column j of blocks
    2  the parts of all z, ordered by columns, are put in the order of rows
    3  y_i = U_i z_i       for each row i
"""

from dataclasses import dataclass

import numpy as np

from tremula.base.errors import InvalidOption


@dataclass(frozen=True, slots=True)
class TlrMatrix:
    """Stacked factors of all blocks; `ranks[i, j]` rows of `v[j]` belong to block (i, j)."""

    n_block: int
    ranks: np.ndarray  # int64[n_blocks, n_blocks]
    v: tuple[np.ndarray, ...]  # for each column, float32[its ranks' sum, n_block]
    u: tuple[np.ndarray, ...]  # for each row, float32[n_block, its ranks' sum]

    @property
    def n(self) -> int:
        return self.n_block * len(self.ranks)

    @property
    def total_rank(self) -> int:
        return int(self.ranks.sum())

    @property
    def compression(self) -> float:
        """Elements of the dense matrix for each one that is kept."""
        return self.n**2 / (2 * self.total_rank * self.n_block)

    def row_order(self) -> np.ndarray:
        """int64[total_rank]: where in the order of columns each entry of the order of rows is."""
        flat = self.ranks.T.ravel()  # column by column
        start = (np.cumsum(flat) - flat).reshape(self.ranks.T.shape).T
        pieces = [
            np.arange(begin, begin + rank)
            for begin, rank in zip(start.ravel().tolist(), self.ranks.ravel().tolist(), strict=True)
        ]
        return np.concatenate(pieces)

    def multiply(self, x: np.ndarray, order: np.ndarray) -> np.ndarray:
        """The three phases in NumPy; `order` is row_order()."""
        parts = np.split(x, len(self.v))
        by_columns = np.concatenate([v @ part for v, part in zip(self.v, parts, strict=True)])
        by_rows = by_columns[order]
        ends = np.cumsum(self.ranks.sum(1))[:-1]
        pieces = np.split(by_rows, ends)
        return np.concatenate([u @ piece for u, piece in zip(self.u, pieces, strict=True)])


def compressed(matrix: np.ndarray, n_block: int, tolerance: float) -> TlrMatrix:
    """Singular values of each block are cut so that the whole is within `tolerance` (Frobenius).

    Each of the b² blocks may lose tolerance / b of the matrix's norm. Squares of singular values
    are known to 1e-16 of the largest, so tolerances below 1e-7 are out of reach.
    """
    n = len(matrix)
    if matrix.shape != (n, n) or n % n_block:
        raise InvalidOption(
            f"a matrix of shape {list(matrix.shape)} cannot be cut into blocks of {n_block}.",
            hint="take a square matrix whose size is a multiple of the block's",
        )
    if not 1e-7 <= tolerance < 1:
        raise InvalidOption(
            f"the tolerance is {tolerance}, not between 1e-7 and 1.", hint="take 1e-4"
        )
    n_blocks = n // n_block
    allowed = tolerance * float(np.linalg.norm(matrix)) / n_blocks
    ranks = np.zeros((n_blocks, n_blocks), np.int64)
    factors: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    blocks = matrix.reshape(n_blocks, n_block, n_blocks, n_block).swapaxes(1, 2)
    for i in range(n_blocks):
        row = blocks[i].astype(np.float64)
        # Left singular vectors, and squares of singular values, from the least on.
        squares, vectors = np.linalg.eigh(row @ row.swapaxes(1, 2))
        lost = np.sqrt(np.maximum(np.cumsum(squares, axis=1), 0))
        for j in range(n_blocks):
            ranks[i, j] = rank = max(1, int((lost[j] > allowed).sum()))
            u = vectors[j][:, ::-1][:, :rank]
            factors[i, j] = u, u.T @ row[j]
    every = range(n_blocks)
    return TlrMatrix(
        n_block,
        ranks,
        v=tuple(_float(np.concatenate([factors[i, j][1] for i in every])) for j in every),
        u=tuple(_float(np.concatenate([factors[i, j][0] for j in every], 1)) for i in every),
    )


def _float(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32)


def covariance(n_side: int, length: float = 0.3) -> np.ndarray:
    """exp(-distance / length) between all points of a grid on the unit square, float32[n, n].

    Points stand in Morton's order, so that blocks of the matrix are between compact patches: far
    patches see each other blurred, which is why their blocks have low rank.
    """
    y, x = (morton_order(n_side) / n_side).astype(np.float32).T
    return np.exp(-np.hypot(y[:, None] - y, x[:, None] - x) / np.float32(length))


def morton_order(n_side: int) -> np.ndarray:
    """int64[n_side², 2]: all cells of a grid along a Z-shaped curve; n_side is a power of two."""
    n_bits = n_side.bit_length() - 1
    if n_side != 1 << n_bits:
        raise InvalidOption(f"{n_side} is not a power of two.", hint="take a side of 32, 64, …")
    code = np.arange(n_side**2)
    y, x = np.zeros_like(code), np.zeros_like(code)
    for bit in range(n_bits):
        x |= (code >> (2 * bit) & 1) << bit
        y |= (code >> (2 * bit + 1) & 1) << bit
    return np.stack([y, x], 1)
