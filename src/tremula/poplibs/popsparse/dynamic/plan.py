"""How a dynamic sparse product is split over tiles, for a number of non-zeros but no pattern.

R is sparse [X = outputs][Y = inputs], S dense [Y][Z = batch], Q the result [X][Z]. A plan cuts X, Y
and Z into partitions; tile (x, y, z) multiplies a share of R by a share of S. Non-zeros of a
*sub-group* (x, y) lie in the *buckets* of its Pz tiles. All splits are tried, with PopLibs'
formulae for a uniform pattern; the cheapest that fits the memory is taken.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil, gcd

import numpy as np

from tremula.base.source import user_source
from tremula.base.types import FLOAT, Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div
from tremula.poplibs.popsparse.dynamic import costs
from tremula.poplibs.popsparse.dynamic.worker_split import split_between_workers
from tremula.poplibs.popsparse.errors import SparsityError
from tremula.poplibs.popsparse.static.costs import block_grad_w_cycles, element_grad_w_slots

Ints = np.ndarray
MAX_WORD = 65535
WORD_BYTES = 2  # of meta-information


@dataclass(frozen=True, slots=True)
class DynamicProblem:
    """Sizes of a fully connected layer with at most a share of its weights."""

    n_out: int
    n_in: int
    n_batch: int
    side: int
    density: float
    element: Type
    partials: Type
    oversize: float = 0.3
    with_grad_a: bool = False
    with_grad_w: bool = False

    @property
    def z_grain(self) -> int:
        if self.side > 1:
            return 1
        return 2 if self.element is FLOAT else 4

    @property
    def n_x(self) -> int:
        return self.n_out // self.side

    @property
    def n_y(self) -> int:
        return self.n_in // self.side

    @property
    def n_z(self) -> int:
        return self.n_batch // self.z_grain

    @property
    def area(self) -> int:
        return self.side * self.side

    @property
    def n_values(self) -> int:
        """Blocks there is room for, before buckets are made larger."""
        return ceil(self.n_x * self.n_y * self.density - 1e-9)


@dataclass(frozen=True, slots=True)
class DynamicPlan:
    """The partition, bucket sizes and what they are expected to cost."""

    problem: DynamicProblem
    cycles: int
    n_bytes: int
    x: int
    y: int
    z: int
    n_values: int  # elements of a bucket
    n_meta: int  # words of a bucket
    rows_per_tile: int  # of a uniform pattern: rows of blocks with any, and blocks in each
    blocks_per_row: int

    @property
    def n_tiles(self) -> int:
        return self.x * self.y * self.z

    @property
    def tile_x(self) -> int:
        """Rows of blocks of a partition."""
        return -(-self.problem.n_x // self.x)

    @property
    def tile_y(self) -> int:
        return -(-self.problem.n_y // self.y)

    @property
    def tile_z(self) -> int:
        """Columns of a partition."""
        return -(-self.problem.n_z // self.z) * self.problem.z_grain


def uniform(density: float, n_x: Ints, n_y: Ints) -> tuple[Ints, Ints]:
    """(rows with any non-zero, non-zeros in each) of a uniform pattern."""
    n_x, n_y = np.asarray(n_x, np.float64), np.asarray(n_y, np.float64)
    rows = np.ceil(n_x * (1 - (1 - density) ** n_y) - 1e-9).astype(np.int64)
    values = np.ceil(n_x * n_y * density - 1e-9).astype(np.int64)
    return rows, ceil_div(values, np.maximum(rows, 1))


def value_capacity(problem: DynamicProblem, n_tiles: Ints) -> Ints:
    """Elements of a bucket."""
    group_bytes = problem.area * problem.element.n_bytes
    multiple = 4 // gcd(4, group_bytes)
    share = ceil_div(problem.n_values, n_tiles)
    n = np.floor(share * (1 + problem.oversize) + 0.5).astype(np.int64)
    n = ceil_div(n, multiple) * multiple * problem.area
    if problem.with_grad_w:
        grain = max(8 // problem.partials.n_bytes, 1)
        n = ceil_div(n, grain) * grain
    return n


def meta_capacity(problem: DynamicProblem, rows: Ints, per_row: Ints, n_workers: int) -> Ints:
    """Words of a bucket: what a uniform pattern needs, with slack, for two sub-groups."""
    fixed = 7 + 4 * n_workers * problem.with_grad_w
    if problem.side == 1:
        fixed = 9 + n_workers * (5 + 5 * problem.with_grad_w)
    words = np.ceil(rows * (2 + per_row) * (1 + problem.oversize) - 1e-9).astype(np.int64)
    return ceil_div(2 * fixed + words, 4) * 4


def _least_parts(n: int, limit: int) -> Ints:
    """Every number of parts that is the least with its size of a part."""
    sizes = np.unique(-(-n // np.arange(1, min(n, limit) + 1)))
    return np.unique(-(-n // sizes))


@dataclass(frozen=True)
class _DynamicCandidates:
    """Columns: partitions, and what follows from them."""

    problem: DynamicProblem
    chip: Chip
    x: Ints
    y: Ints
    z: Ints

    @property
    def n_tiles(self) -> Ints:
        return self.x * self.y * self.z

    def take(self, which: Ints) -> "_DynamicCandidates":
        return _DynamicCandidates(
            self.problem, self.chip, self.x[which], self.y[which], self.z[which]
        )


def _all_candidates(problem: DynamicProblem, chip: Chip, n_tiles: int) -> _DynamicCandidates:
    x, y = _least_parts(problem.n_x, n_tiles), _least_parts(problem.n_y, n_tiles)
    z = np.array([p for p in range(1, min(problem.n_z, n_tiles) + 1) if problem.n_z % p == 0])
    columns = [c.reshape(-1) for c in np.meshgrid(x, y, z, indexing="ij")]
    fits = np.prod(columns, axis=0) <= n_tiles
    result = _DynamicCandidates(problem, chip, *(c[fits] for c in columns))
    if problem.side > 1:
        return result
    size = 4 if problem.element is FLOAT else 2
    tile_x, tile_y = ceil_div(problem.n_x, result.x), ceil_div(problem.n_y, result.y)
    tile_z = ceil_div(problem.n_z, result.z) * problem.z_grain
    in_words = np.maximum((tile_y - 1) * tile_z * size, tile_x - 1) <= MAX_WORD
    return result.take(np.flatnonzero(in_words))


@dataclass(frozen=True)
class _Costs:
    """Cycles and temporary bytes of all candidates, pass by pass."""

    c: _DynamicCandidates

    def __post_init__(self) -> None:
        p, c = self.c.problem, self.c
        self._set("tile_x", ceil_div(p.n_x, c.x))
        self._set("tile_y", ceil_div(p.n_y, c.y))
        self._set("tile_z", ceil_div(p.n_z, c.z) * p.z_grain)
        rows, per_row = uniform(p.density, self.tile_x, self.tile_y)
        self._set("rows", rows)
        self._set("per_row", per_row)
        self._set("n_values", value_capacity(p, c.n_tiles))
        self._set("n_meta", meta_capacity(p, rows, per_row, c.chip.n_workers))

    def _set(self, name: str, value: Ints) -> None:
        object.__setattr__(self, name, value)

    tile_x: Ints = None  # type: ignore[assignment]
    tile_y: Ints = None  # type: ignore[assignment]
    tile_z: Ints = None  # type: ignore[assignment]
    rows: Ints = None  # type: ignore[assignment]
    per_row: Ints = None  # type: ignore[assignment]
    n_values: Ints = None  # type: ignore[assignment]
    n_meta: Ints = None  # type: ignore[assignment]

    @property
    def bucket_bytes(self) -> Ints:
        return self.n_values * self.c.problem.element.n_bytes + self.n_meta * WORD_BYTES

    def total(self) -> tuple[Ints, Ints]:
        """(cycles, temporary bytes)."""
        cycles, n_bytes = self._product_pass(is_gradient=False)
        if self.c.problem.with_grad_a:
            more, back_bytes = self._product_pass(is_gradient=True)
            cycles, n_bytes = cycles + more, np.maximum(n_bytes, back_bytes)
        if self.c.problem.with_grad_w:
            more, grad_bytes = self._weights_pass()
            cycles, n_bytes = cycles + more, np.maximum(n_bytes, grad_bytes)
        return cycles, n_bytes

    def _exchange(self, n_bytes: Ints, n_consecutive: Ints) -> Ints:
        rate = self.c.chip.exchange_bytes_per_cycle
        is_shared = (n_consecutive % 2 == 0) | (n_consecutive == self.c.n_tiles)
        return costs.exchange_cycles(n_bytes, rate, is_shared & (n_consecutive > 1))

    def _product_pass(self, *, is_gradient: bool) -> tuple[Ints, Ints]:
        """S to its partitions, buckets to all of their sub-group's tiles, product, reduction."""
        p, c, n_workers = self.c.problem, self.c, self.c.chip.n_workers
        size = p.element.n_bytes
        # The gradient's X is the forward pass's Y: the same tiles, with the roles exchanged.
        parts_x, parts_y = (c.y, c.x) if is_gradient else (c.x, c.y)
        tile_x, tile_y = (self.tile_y, self.tile_x) if is_gradient else (self.tile_x, self.tile_y)
        n_y = p.n_x if is_gradient else p.n_y
        before = ceil_div(n_y * p.n_z, c.n_tiles) * p.side * p.z_grain * size
        dense_bytes = tile_y * p.side * self.tile_z * size
        moves = dense_bytes > before
        # x is the fastest of a tile's coordinates, also in the gradient.
        run = np.where(is_gradient, 1, parts_x)
        cycles = np.where(moves, self._exchange(dense_bytes, run), 0)
        # Tiles that differ in z alone stand side by side only where x is not split.
        run = np.where(c.x == 1, c.z, 1)
        cycles = cycles + np.where(c.z > 1, self._exchange(c.z * self.bucket_bytes, run), 0)
        partials = tile_x * p.side * self.tile_z
        cycles = cycles + n_workers * ceil_div(partials, n_workers)
        cycles = cycles + self._compute(is_gradient=is_gradient)
        turned_bytes = 0
        if is_gradient and p.side > 1:
            turned_bytes = self.n_values * size
            cycles = cycles + costs.bucket_transpose_cycles(
                self.n_values // p.area, p.side, p.element, n_workers
            )
        partial_bytes = partials * p.partials.n_bytes
        rate = c.chip.exchange_bytes_per_cycle
        reduced = costs.exchange_cycles(partial_bytes, rate, np.zeros(len(c.x), bool))
        reduced = reduced + costs.reduce_cycles(
            ceil_div(partials, parts_y), parts_y, p.partials, p.element, n_workers
        )
        cast: Ints | int = 0
        if p.partials is not p.element:
            cast = costs.cast_cycles(partials, p.partials, p.element, n_workers)
        cycles = cycles + np.where(parts_y > 1, reduced, cast)
        needs_cast = p.partials is not p.element
        temporary_bytes = np.where((c.z > 1) | needs_cast, partial_bytes, 0)
        # The other buckets of the sub-group, or two on their way.
        buckets = np.maximum(c.z - 1, 2) * self.bucket_bytes
        moved_bytes = np.where(moves, dense_bytes, 0)
        in_product = moved_bytes + buckets + temporary_bytes + turned_bytes
        # Partial results, those received from other tiles, and the sums (`addReductionCost`).
        sum_bytes = ceil_div(partials, parts_y) * size
        in_reduction = temporary_bytes + np.where(parts_y > 1, partial_bytes, 0)
        in_reduction = in_reduction + np.where((parts_y > 1) | needs_cast, sum_bytes, 0)
        return cycles, np.maximum(in_product, in_reduction)

    def _compute(self, *, is_gradient: bool) -> Ints:
        p, n_workers = self.c.problem, self.c.chip.n_workers
        search = costs.SearchCost(self.c.z, self.c.z, 1)
        if p.side > 1:
            z = ceil_div(self.tile_z, n_workers)
            blocks = self.rows * self.per_row
            return costs.block_cycles(
                self.rows, blocks, z, p.side, (p.element, p.partials), search, n_workers,
                is_gradient=is_gradient,
            )  # fmt: skip
        if is_gradient:
            worker = costs.transpose_worker(
                self.per_row, ceil_div(self.rows, n_workers), self.tile_z, p.element
            )
            return costs.element_supervisor("transpose", search) + n_workers * worker
        worker = self._busiest_worker()
        return costs.element_supervisor("forward", search) + n_workers * worker

    def _busiest_worker(self) -> Ints:
        """Slots of the busiest worker where they share rows and columns."""
        p = self.c.problem
        z_grains = self.tile_z // p.z_grain
        pairs, number = np.unique(
            np.stack([self.rows, z_grains, self.per_row]), axis=1, return_inverse=True
        )
        result = [self._worker_slots(*column) for column in pairs.T.tolist()]
        return np.array(result, np.int64)[number.reshape(-1)]

    def _worker_slots(self, rows: int, z_grains: int, per_row: int) -> int:
        p = self.c.problem
        parts = split_between_workers(rows, z_grains, self.c.chip.n_workers)
        sizes = {(r1 - r0, c1 - c0) for r0, r1, c0, c1 in parts}
        return max(
            int(costs.element_worker("forward", r, r * per_row, z * p.z_grain, p.element))
            for r, z in sizes
        )

    def _weights_pass(self) -> tuple[Ints, Ints]:
        """Both dense operands to each tile in turn, for all of the batch, and the products."""
        p, c, n_workers = self.c.problem, self.c, self.c.chip.n_workers
        size = p.element.n_bytes
        n_bytes = (self.tile_x + self.tile_y) * p.side * self.tile_z * size
        exchange = c.z * self._exchange(n_bytes, c.x)
        values = ceil_div(self.n_values // p.area, n_workers)
        rows = ceil_div(self.rows, c.z)
        if p.side == 1:
            worker = element_grad_w_slots(rows, values, self.tile_z, p.element)
        else:
            worker = block_grad_w_cycles(rows, values, self.tile_z, p.side, p.element)
        compute = c.z * (costs.grad_w_supervisor(costs.SearchCost()) + n_workers * worker)
        return exchange + compute, self.n_values * p.partials.n_bytes + 2 * n_bytes


@cache
def plan_dynamic(
    problem: DynamicProblem, chip: Chip, n_tiles: int, proportion: float = 0.6
) -> DynamicPlan:
    """The cheapest partition; memory is doubled until one fits, and at last not looked at."""
    candidates = _all_candidates(problem, chip, n_tiles)
    if not len(candidates.x):
        raise SparsityError(
            f"no partition of [{problem.n_out}, {problem.n_in}] × [{problem.n_in}, "
            f"{problem.n_batch}] fits {n_tiles} tiles.",
            source=user_source(),
            hint="take a smaller batch, or blocks instead of elements",
        )
    result = _Costs(candidates)
    cycles, n_bytes = result.total()
    bound = max(proportion * chip.n_bytes_per_tile, 1.0)
    while bound < 2 * chip.n_bytes_per_tile and not bool((n_bytes <= bound).any()):
        bound *= 2
    fits = n_bytes <= bound
    if not bool(fits.any()):
        fits = np.ones(len(n_bytes), bool)
    order = np.lexsort((n_bytes, cycles))
    best = int(order[np.flatnonzero(fits[order])[0]])
    at = lambda column: int(np.asarray(column)[best])  # noqa: E731
    return DynamicPlan(
        problem, at(cycles), at(n_bytes), at(candidates.x), at(candidates.y), at(candidates.z),
        at(result.n_values), at(result.n_meta), at(result.rows), at(result.per_row),
    )  # fmt: skip
