"""Cycles of dynamic sparse vertices: the formulae of PopLibs' planner for them (SDK 3.3).

The planner's formula for single elements counts what a row does around each group of columns once,
however many groups there are; `element_slots` has it for each, as PopLibs' code does.

A vertex looks through `n_buckets` buckets, of which `n_own` have its sub-group, for `n_groups`
sub-groups each. Result = workers · worker + supervisor, the worker's part a sum over rows with
`per_row` values each, for Z columns. All arguments may be columns.
"""

from dataclasses import dataclass

import numpy as np

from tremula.base.types import FLOAT, HALF, Type
from tremula.poplibs.counts import ceil_div

Ints = np.ndarray
Count = np.ndarray | int


@dataclass(frozen=True, slots=True)
class SearchCost:
    """How many buckets a vertex looks through, how many are its own, sub-groups in each."""

    n_buckets: Count = 1
    n_own: Count = 1
    n_groups: int = 1

    def cycles(self, first: int, each: int, n_cycles: float, own: int) -> Ints:
        """Supervisor cycles; half of the sub-groups of a bucket are looked at to find one."""
        find = (self.n_groups + 1) / 2
        others = np.asarray(self.n_buckets, np.int64) - self.n_own
        return first + each * others * self.n_groups + self.n_own * int(n_cycles * find + own)


# -- elements -------------------------------------------------------------------------------------

_SUPERVISOR = {
    "forward": (30, 32, 47, 46),
    "gradA": (30, 32, 46, 46),
    "transpose": (30, 32, 44, 68),
}


def element_supervisor(kind: str, search: SearchCost) -> Ints:
    """Supervisor cycles of an element vertex: "forward", "gradA" or "transpose"."""
    return search.cycles(*_SUPERVISOR[kind])


def grad_w_supervisor(search: SearchCost) -> Ints:
    """Supervisor cycles of the vertices that compute gradients of values."""
    return 37 + 38 + np.asarray(search.n_own, np.int64) * int(26 * (search.n_groups + 1) / 2)


# Widths with dedicated loops: {Z: (slots once, of a row, of a value)}.
_WIDTHS = {
    ("forward", "float"): {4: (25, 13, 3), 2: (27, 11, 2)},
    ("forward", "half"): {8: (28, 15, 3), 4: (30, 11, 2)},
    ("gradA", "float"): {4: (23, 13, 3), 2: (25, 11, 2)},
    ("gradA", "half"): {8: (26, 15, 3), 4: (28, 11, 2)},
}
# Any other: slots once, of a row; of a row's whole vectors, pairs, single columns.
_ANY = {
    ("forward", "float"): (30, 13, 12), ("forward", "half"): (33, 12, 16, 13, 11),
    ("gradA", "float"): (33, 13, 10), ("gradA", "half"): (32, 11, 14, 13, 10),
}  # fmt: skip


def element_worker(kind: str, n_rows: Count, n_values: Count, z: Count, element: Type) -> Ints:
    """Slots of a worker with `n_values` values in `n_rows` rows, for z columns."""
    rows, values = np.asarray(n_rows, np.int64), np.asarray(n_values, np.int64)
    z = np.asarray(z, np.int64)
    key = kind, element.name.lower()
    if element is FLOAT:
        once, row, vector = _ANY[key]
        inner = np.where(z >= 4, vector * rows + 3 * (z // 4) * values, 0)
        inner = inner + np.where(z & 2 > 0, 8 * rows + 2 * (z // 2) * values, 0)
        inner = inner + np.where(z & 1 > 0, 8 * rows + 2 * values, 0)
        inner = inner + rows * np.where(z % 4 > 0, 3, 1)
    else:
        once, row, vector, pair, single = _ANY[key]
        inner = np.where(z >= 8, vector * rows + 3 * (z // 8) * values, 0)
        inner = inner + np.where(z & 4 > 0, pair * rows + 2 * values, 0)
        inner = inner + np.where(z & 3 > 0, single * rows + 2 * (z & 3) * values, 0)
    result = once + rows * row + inner
    for special, (s_once, s_row, s_value) in _WIDTHS[key].items():
        result = np.where(z == special, s_once + rows * s_row + values * s_value, result)
    return result


# Columns of a group; slots once, of a row, of a row's group, of the half group that is left over.
# Counted in PopLibs' code: before a group's values a worker loads where they begin, after them it
# adds partial results and stores them. A value takes 3 slots in a group, 2 in a half one.
_GROUPS = {"float": (4, 30, 12, 12, 12), "half": (8, 33, 12, 17, 15)}


def element_slots(n_rows: Count, n_values: Count, z: Count, element: Type) -> Ints:
    """Slots of a worker's code with `n_values` values in `n_rows` rows, for z columns."""
    rows, values = np.asarray(n_rows, np.int64), np.asarray(n_values, np.int64)
    z = np.asarray(z, np.int64)
    width, once, row, group, half = _GROUPS[element.name.lower()]
    result = once + rows * row + (z // width) * (group * rows + 3 * values)
    result = result + np.where(z % width > 0, half * rows + 2 * values, 0)
    for special, (s_once, s_row, s_value) in _WIDTHS["forward", element.name.lower()].items():
        result = np.where(z == special, s_once + rows * s_row + values * s_value, result)
    return np.where(rows > 0, result, 0)


def transpose_worker(n_columns: Count, per_column: Count, z: Count, element: Type) -> Ints:
    """Slots of a worker of the gradient of the dense operand, with the forward pass's buckets."""
    columns, y = np.asarray(n_columns, np.int64), np.asarray(per_column, np.int64)
    z = np.asarray(z, np.int64)
    if element is FLOAT:
        inner = 8 + np.where(z >= 2, (2 + 3 * (z // 2)) * y, 0) + (z & 1) * 4 * y
        return 23 + columns * (24 + inner)
    inner = 8 + np.where(z >= 4, (2 + 5 * (z // 4)) * y, 0)
    inner = inner + np.where(z & 3 > 0, (5 + 3 * (z & 3)) * y, 0)
    result = 26 + columns * (22 + inner)
    result = np.where(z == 8, 20 + columns * (18 + 10 * y), result)
    return np.where(z == 4, 20 + columns * (21 + 7 * y), result)


# -- blocks on the matrix unit --------------------------------------------------------------------

# Slots of a block and worker for one, two and more columns, and of each column.
_BLOCK = {
    (4, "float", "float"): (26, (14, 14, 14), 4), (4, "half", "float"): (26, (17, 18, 19), 2),
    (4, "half", "half"): (26, (15, 16, 17), 2), (8, "float", "float"): (23, (22, 22, 23), 8),
    (8, "half", "float"): (20, (22, 23, 23), 4), (8, "half", "half"): (23, (19, 20, 20), 4),
    (16, "half", "float"): (23, (24, 25, 24), 4), (16, "half", "half"): (22, (22, 23, 22), 4),
}  # fmt: skip


def block_cycles(
    n_rows: Count, n_blocks: Count, z: Count, side: int, types: tuple[Type, Type],
    search: SearchCost, n_workers: int, *, is_gradient: bool = False,
) -> Ints:  # fmt: skip
    """Tile cycles of `n_blocks` blocks in `n_rows` rows; z columns per worker.

    With eight units the matrix unit takes a 16 × 16 block in two halves.
    """
    element, partials = types
    once, firsts, column = _BLOCK[side, element.name.lower(), partials.name.lower()]
    halves = 2 if side == 16 and partials is FLOAT else 1
    retain = 0 if is_gradient else 1
    z = np.asarray(z, np.int64)
    first = np.select([z <= 1, z == 2], firsts[:2], firsts[2])
    load = side * side // (2 if element is FLOAT else 4)
    blocks, rows = np.asarray(n_blocks, np.int64), np.asarray(n_rows, np.int64)
    supervisor = search.cycles(40, 33, 46, 56)
    supervisor = supervisor + blocks * (load + 3 + 12 * halves) + retain * rows + 2
    worker = once + blocks * halves * (first + z * column - 3 * retain)
    return supervisor + n_workers * worker


_X_OFFSET_SLOTS = 3  # a worker loads where a row of the result begins


def block_start_cycles(
    n_rows: Count, n_started: Count, side: int, types: tuple[Type, Type], n_workers: int, *,
    is_gradient: bool = False,
) -> Ints:  # fmt: skip
    """What PopLibs' formula for blocks leaves out, counted in its code.

    The formula counts a worker's start once. In the code workers start in each bucket that has
    blocks of theirs, here `n_started` (BlockSparseDenseMatMul.h.S sets their function at the head
    of the loop over buckets), and the forward pass loads a row's place with its first block.
    """
    once = _BLOCK[side, types[0].name.lower(), types[1].name.lower()][0]
    place = 0 if is_gradient else _X_OFFSET_SLOTS
    again = np.asarray(n_started, np.int64) - 1
    return n_workers * (again * once + np.asarray(n_rows, np.int64) * place)


def bucket_transpose_cycles(n_blocks: Count, side: int, element: Type, n_workers: int) -> Ints:
    """Tile cycles to transpose the blocks of a bucket before the dense operand's gradient."""
    grain, step = (2, 3) if element is FLOAT else (4, 4)
    each, n_grains = ceil_div(n_blocks, n_workers), side // grain
    if n_grains == 1:
        worker = np.where(each <= 1, 29, 37 + step * (each - 2))
    else:
        worker = 29 + each * (18 + n_grains * (12 + step * (n_grains - 2)))
    return 7 + n_workers * worker


# -- other steps ----------------------------------------------------------------------------------


def cast_cycles(n: Count, source: Type, target: Type, n_workers: int) -> Ints:
    """Tile cycles to cast n elements."""
    each = ceil_div(n, n_workers)
    width = {FLOAT: 2, HALF: 4}
    return n_workers * (
        26 + np.maximum(ceil_div(each, width[source]), ceil_div(each, width[target]))
    )


def reduce_cycles(n: Count, depth: Count, partials: Type, out: Type, n_workers: int) -> Ints:
    """Tile cycles to add up `depth` partial results of n elements."""
    n, depth = np.asarray(n, np.int64), np.asarray(depth, np.int64)
    if partials is FLOAT:
        loops, rest = n // 4 + (n & 1) + (n & 2 > 0), (n & 3) > 0
        extra, vector = 2 * depth + 13, 3 * depth + (7 if out is FLOAT else 6)
    else:
        loops = n // 8 + (n & 1) + (n & 2 > 0) + (n & 4 > 0)
        rest, extra, vector = (n & 7) > 0, 2 * depth + 11, 3 * depth + (9 if out is FLOAT else 8)
    each, left = loops // n_workers, loops % n_workers > 0
    each = each + (left & ~rest)
    return n_workers * (32 + np.where(left & rest, extra, 0) + vector * each)


def exchange_cycles(n_bytes: Count, bytes_per_cycle: float, is_shared: Count) -> Ints:
    """Cycles to receive; twice as fast where the two tiles of each bus receive the same."""
    rate = np.round(16 * bytes_per_cycle * np.where(is_shared, 2, 1)).astype(np.int64)
    return ceil_div(16 * np.asarray(n_bytes, np.int64), rate)
