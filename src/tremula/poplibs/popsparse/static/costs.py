"""Cycles of static sparse vertices: the formulae of PopLibs' planner for them (SDK 3.3).

PopLibs registers no cycles for these vertices; its planner has formulae, and those are what is used
here, for the planner and for the vertices alike. Each is a sum over rows and non-zero blocks, so it
takes their numbers and not a mean: `n_rows` rows with `n_blocks` blocks in all, on `n` columns.
All arguments may be columns.
"""

from typing import NamedTuple

import numpy as np

from tremula.base.types import FLOAT, Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div

Ints = np.ndarray
Count = np.ndarray | int

BLOCK_SIDES = (1, 4, 8, 16)

# -- elements, on a worker -------------------------------------------------------------------------

# Slots of a worker: once; for a row with its first value; for each further value. Two widths of the
# dense operand have dedicated loops.
_WORKER = {
    "half": {4: (31, 7, 2), 8: (31, 8, 3)},
    "float": {2: (29, 5, 2), 4: (30, 6, 3)},
}
# Any other width: once, a row; each whole vector of columns with its first value, and with each
# further one; and the same for a vector that is not whole.
_ANY_WIDTH = {
    "half": (33, 11, 8, (14, 3), (9, 2)),
    "float": (31, 12, 4, (10, 3), (10, 2)),
}


def element_worker_slots(n_rows: Count, n_values: Count, n: Count, element: Type) -> Ints:
    """Slots of a worker that multiplies `n_values` values in `n_rows` rows by `n` columns."""
    rows, values, width = np.broadcast_arrays(
        np.asarray(n_rows, np.int64), np.asarray(n_values, np.int64), np.asarray(n, np.int64)
    )
    further = np.maximum(values - rows, 0)
    once, row, vector, (first, more), (rest_first, rest_more) = _ANY_WIDTH[element.name.lower()]
    n_whole, has_rest = width // vector, width % vector > 0
    slots = once + rows * (row + n_whole * first + has_rest * rest_first)
    slots = slots + further * (n_whole * more + has_rest * rest_more)
    for special, (s_once, s_row, s_more) in _WORKER[element.name.lower()].items():
        slots = np.where(width == special, s_once + rows * s_row + further * s_more, slots)
    return slots


# -- blocks, on the matrix unit --------------------------------------------------------------------

SUPERVISOR = 30  # cycles once
ROW, BLOCK = 17, 16  # supervisor cycles of a row of blocks, and of a block besides its loading
LOAD_BYTES = 8  # of a block, per cycle


class _BlockSlots(NamedTuple):
    """Slots of a worker: once, for a row of blocks, and for a block: `first` + `each` (n - 1)."""

    once: int
    row: int
    first: int
    each: int


_BLOCK_SLOTS = {
    ("half", 4): _BlockSlots(17, 1, 14, 1),
    ("half", 8): _BlockSlots(13, 1, 14, 2),
    ("half", 16): _BlockSlots(13, 1, 19, 4),
    ("float", 4): _BlockSlots(13, 1, 12, 4),
    ("float", 8): _BlockSlots(13, 4, 19, 8),
    ("float", 16): _BlockSlots(16, 4, 74, 16),
}


def _slots_of_block(side: int, n: Ints, element: Type) -> Ints:
    """Slots of a worker for one block and its `n` columns."""
    name = element.name.lower()
    slots = _BLOCK_SLOTS[name, side]
    result = slots.first + slots.each * (np.maximum(n, 1) - 1)
    if (name, side) == ("half", 4):  # up to two columns do without the pipeline
        return np.where(n <= 2, 7 + n, result)
    if (name, side) == ("float", 16):
        return np.where(n <= 1, 58, result)
    return result


def block_cycles(
    n_rows: Count, n_blocks: Count, n: Count, side: int, element: Type, n_workers: int
) -> Ints:
    """Tile cycles of a vertex with `n_blocks` blocks in `n_rows` rows; `n` columns per worker."""
    width = np.asarray(n, np.int64)
    slots = _BLOCK_SLOTS[element.name.lower(), side]
    load = side * side * element.n_bytes // LOAD_BYTES
    of_block = BLOCK + load + n_workers * _slots_of_block(side, width, element)
    rows, blocks = np.asarray(n_rows, np.int64), np.asarray(n_blocks, np.int64)
    return (
        SUPERVISOR
        + slots.once * n_workers
        + rows * (slots.row * n_workers + ROW)
        + (blocks * of_block)
    )


ZEROING = 12  # slots of a worker before it zeroes


def zeroing_cycles(n_bytes: Count, side: int, element: Type, chip: Chip) -> Ints:
    """Partial sums of floats in blocks of 8 and 16 start from zeros that workers write."""
    if element is not FLOAT or side < 8:
        return np.zeros_like(np.asarray(n_bytes, np.int64))
    n_stores = ceil_div(n_bytes, chip.store_bytes_per_cycle)
    return chip.n_workers * (ZEROING + ceil_div(n_stores, chip.n_workers))


# -- adding up partial results ---------------------------------------------------------------------

REDUCE = 16  # slots of a worker before its vectors


def planned_reduce_cycles(n: Count, depth: Count, element: Type, n_workers: int) -> Ints:
    """What the planner expects of adding up `depth` partial results of `n` elements each."""
    width, step = (4, 5) if element is FLOAT else (8, 8)
    vectors = ceil_div(ceil_div(n, n_workers), width)
    return n_workers * (REDUCE + vectors * (step + 5 + np.asarray(depth, np.int64)))


# Slots of a worker: once; for elements that fill no vector, by depth; for a vector, by depth.
_REDUCE = {"float": (4, 13, 7), "half": (8, 11, 8)}


def reduce_worker_slots(n: Count, depth: Count, element: Type) -> Ints:
    """Slots of one worker that adds up `depth` partial results of `n` elements each."""
    n, depth = np.asarray(n, np.int64), np.asarray(depth, np.int64)
    width, rest, vector = _REDUCE[element.name.lower()]
    few = np.where(n % width > 0, 2 * depth + rest, 0)
    return 32 + few + (3 * depth + vector) * (n // width)


def vertex_cycles(
    n_rows: Count, n_blocks: Count, n: Count, side: int, element: Type, chip: Chip
) -> Ints:
    """Tile cycles of a vertex as the planner sees it: rows and values of an average worker."""
    if side == 1:
        rows = ceil_div(n_rows, chip.n_workers)
        per_row = ceil_div(n_blocks, n_rows)
        return chip.n_workers * element_worker_slots(rows, rows * per_row, n, element)
    per_row = ceil_div(n_blocks, n_rows)
    columns = ceil_div(n, chip.n_workers)
    rows = np.asarray(n_rows, np.int64)
    return block_cycles(rows, rows * per_row, columns, side, element, chip.n_workers)


# -- gradients: the formulae of the dynamic vertices, which compute the same -----------------------

# Element by element: slots once, for a row, for a value; two widths have dedicated loops.
_GRAD_W_WIDTHS = {
    "float": {4: (30, 9, 5), 2: (32, 7, 4)},
    "half": {8: (30, 11, 5), 4: (32, 10, 4)},
}


def element_grad_w_slots(n_rows: Count, n_values: Count, n: Count, element: Type) -> Ints:
    """Slots of a worker for `n_values` gradients in `n_rows` rows, each over `n` columns."""
    rows, values = np.asarray(n_rows, np.int64), np.asarray(n_values, np.int64)
    width = np.asarray(n, np.int64)
    if element is FLOAT:
        result = 34 + rows * 9 + values * (9 + width // 2 + (width & 1))
    else:
        rest = 3 * (width & 2 > 0) + 4 * (width & 1)
        result = 35 + rows * 8 + values * (11 + width // 4 + rest)
    for special, (once, row, value) in _GRAD_W_WIDTHS[element.name.lower()].items():
        result = np.where(width == special, once + rows * row + values * value, result)
    return result


# Blocks by vectors: slots once, for a row, for a block, and for each of its columns.
_BLOCK_GRAD_W = {
    ("float", 4): (27, 9, 45, 12), ("half", 4): (26, 9, 29, 6), ("float", 8): (24, 7, 208, 48),
    ("half", 8): (26, 9, 113, 24), ("float", 16): (27, 9, 505, 96), ("half", 16): (27, 9, 441, 96),
}  # fmt: skip


def block_grad_w_cycles(n_rows: Count, n_blocks: Count, n: Count, side: int, element: Type) -> Ints:
    """Slots of a worker for the gradients of `n_blocks` blocks in `n_rows` rows of them."""
    once, row, block, column = _BLOCK_GRAD_W[element.name.lower(), side]
    width = np.asarray(n, np.int64)
    return once + np.asarray(n_rows, np.int64) * row + n_blocks * (block + width * column)


def gather_cycles(n: Count, element: Type, n_workers: int) -> Ints:
    """Tile cycles to put `n` values in another order (SparseGatherElementWise)."""
    n = np.asarray(n, np.int64)
    if element is FLOAT:
        vectors, rest, saved = ceil_div(n // 2, n_workers), 5 * (n % 2), 3
        vector_slots = np.where(vectors > 0, 5 + 3 * (vectors - 1), 0)
    else:
        vectors, saved = ceil_div(n // 4, n_workers), 5
        rest = np.array([0, 10, 10, 14])[n % 4]
        vector_slots = np.where(vectors > 0, 8 + 5 * (vectors - 1), 0)
    with_rest = vector_slots + rest - np.where(vectors > 0, saved, 0)
    return 18 + n_workers * (23 + np.maximum(vector_slots, with_rest))


def block_transpose_cycles(n_blocks: Count, side: int, element: Type, n_workers: int) -> Ints:
    """Tile cycles to transpose blocks (the buckets' transpose before a gradient)."""
    grain, step = (2, 3) if element is FLOAT else (4, 4)
    each = ceil_div(n_blocks, n_workers)
    n_grains = side // grain
    if n_grains == 1:
        worker = np.where(each <= 1, 29, 37 + step * (each - 2))
    else:
        worker = 29 + each * (18 + n_grains * (12 + step * (n_grains - 2)))
    return 7 + n_workers * worker
