"""Cycles of slicing vertices, for vertices and for the planner: PopLibs' published estimates."""

import numpy as np

from tremula.base.types import Type
from tremula.hardware import Chip
from tremula.poplibs.counts import ceil_div

Ints = np.ndarray
Number = Ints | int

# Worker slots, from PopLibs' estimators (provenance: published).
SLICE_START = 30
SLICE_IN_RANGE = 19
SLICE_OUT_OF_RANGE = 8
UPDATE_START = 31
UPDATE_IN_RANGE = 11
UPDATE_OUT_OF_RANGE = 5
UPDATE_PER_ATOM = 3
UPDATE_SUPERVISOR = 25
SHORT_ROW_SLOTS = {4: {2: 8, 4: 16}, 2: {4: 9}}  # of an element's bytes: row length, slots
SEARCH_STEP, SEARCH_END = 20, 29  # binary search in sorted indices
SUBWORD_ELEMENT = 20
DYNAMIC_SUPERVISOR, DYNAMIC_START, DYNAMIC_PER_SLICE = 25, 39, 24
DYNAMIC_START_BYTES, DYNAMIC_PER_SLICE_BYTES = 76, 72  # of 8-bit types


def most_hits(n_lookups: Number, share: Number | float, n_workers: int = 1) -> Ints:
    """Expected number of indices in range of the busiest of n workers.

    Indices are taken to be uniformly distributed, so a worker's hits are binomial; a step waits for
    the worker with the most. One worker: the mean, which is what the planner counts with.
    """
    mean = n_lookups * np.asarray(share, float)
    if n_workers > 1:
        # The expected largest of n normal numbers, to second order.
        root = np.sqrt(2 * np.log(n_workers))
        sigmas = root - (np.log(np.log(n_workers)) + np.log(4 * np.pi)) / (2 * root)
        mean = mean + max(0.0, sigmas) * np.sqrt(mean * (1 - np.minimum(share, 1)))
    return np.minimum(np.ceil(mean).astype(np.int64), n_lookups)


def copy_slots(n_elems: Number, n_bytes: int, chip: Chip) -> Ints:
    """Slots to copy a row: 2 per data path of words, 2 per store of halves, 3 of bytes."""
    row_bytes = np.asarray(n_elems) * n_bytes
    if n_bytes >= 4:
        return 2 * ceil_div(row_bytes, chip.data_path_bytes)
    return (2 if n_bytes == 2 else 3) * ceil_div(row_bytes, chip.atomic_store_bytes)


def shares_row(n_lookups: Number, n_columns: Number, n_bytes: int, chip: Chip) -> Ints | bool:
    """Whether the workers share the columns of a row: a single one, of whole atomic stores.

    PopLibs' `splitSingleRegion` (popops/DynamicSlice.cpp, codelets/MultiSlice.cpp).
    """
    is_whole = (np.asarray(n_columns) * n_bytes) % chip.atomic_store_bytes == 0
    return (np.asarray(n_lookups) == 1) & is_whole


def share_of_worker(n: Number, n_bytes: int, chip: Chip) -> Ints:
    """How many of n lookups or columns a worker has at most: as many as fill atomic stores."""
    grain = max(1, chip.atomic_store_bytes // n_bytes)
    return np.minimum(ceil_div(ceil_div(n, grain), chip.n_workers) * grain, n)


def multi_slice_cycles(
    n_lookups: Number,
    n_columns: Number,
    n_bytes: int,
    share: Number | float,
    chip: Chip,
    n_vertices: int = 0,
) -> Ints:
    """Tile cycles: the workers share the lookups, of which `share` are expected to be in range.

    A single row is shared by its columns.
    """
    has_one = shares_row(n_lookups, n_columns, n_bytes, chip)
    n_own_columns = share_of_worker(n_columns, n_bytes, chip)
    per_worker = np.where(has_one, 1, share_of_worker(n_lookups, n_bytes, chip))
    in_range = most_hits(per_worker, share, max(1, n_vertices * chip.n_workers))
    width = np.where(has_one, n_own_columns, n_columns)
    result = in_range * (SLICE_IN_RANGE + copy_slots(width, n_bytes, chip))
    return chip.n_workers * (SLICE_START + result + (per_worker - in_range) * SLICE_OUT_OF_RANGE)


def multi_update_cycles(  # noqa: PLR0917 - one column each
    n_lookups: Number,
    n_columns: Number,
    n_bytes: int,
    n_rows: Number,
    n_entries: Number,
    is_sorted: bool | Ints,
    operation: str,
    chip: Chip,
    n_vertices: int = 0,
) -> Ints:
    """Tile cycles: the workers share the rows, and each looks at all lookups (or finds its own)."""
    share = ceil_div(n_rows, chip.n_workers) / n_entries
    in_range = most_hits(n_lookups, share, max(1, n_vertices * chip.n_workers))
    missed = (n_lookups - in_range) * UPDATE_OUT_OF_RANGE
    steps = np.ceil(np.log2(np.maximum(n_lookups, 2))).astype(np.int64)
    missed = np.where(is_sorted, SEARCH_STEP * steps + SEARCH_END, missed)
    per_hit = hit_slots(n_columns, n_bytes, operation, chip)
    worker = UPDATE_START + in_range * per_hit + missed
    return UPDATE_SUPERVISOR + chip.n_workers * worker


def hit_slots(n_columns: Number, n_bytes: int, operation: str, chip: Chip) -> Ints:
    """Slots of an index in range. Sums of short rows have loops that load and store them whole."""
    if operation == "set":
        return UPDATE_IN_RANGE + copy_slots(n_columns, n_bytes, chip)
    slots = UPDATE_IN_RANGE + update_slots(n_columns, n_bytes, chip)
    for short, short_slots in (
        SHORT_ROW_SLOTS.get(n_bytes, {}).items() if operation == "add" else ()
    ):
        slots = np.where(np.asarray(n_columns) == short, short_slots, slots)
    return slots


def update_slots(n_columns: Number, n_bytes: int, chip: Chip) -> Ints:
    """Slots to combine a row: 3 per further atomic store; an odd number of halves, one by one."""
    row_bytes, atom = np.asarray(n_columns) * n_bytes, chip.atomic_store_bytes
    whole = UPDATE_PER_ATOM * np.maximum(row_bytes // atom - 1, 0)
    return np.where(row_bytes % atom == 0, whole, np.asarray(n_columns) * SUBWORD_ELEMENT)


def fill_cycles(n_elems: Number, type: Type, chip: Chip) -> Ints:
    """Tile cycles to fill elements with one value."""
    width = chip.vector_width(type)
    per_worker = ceil_div(n_elems, chip.n_workers)
    return chip.n_workers * (23 + ceil_div(per_worker, width))


def partials_cycles(n_outputs: Number, n_partials: Number, type: Type, chip: Chip) -> Ints:
    """Tile cycles of a strided reduction: one 64-bit vector of outputs after the other.

    PopLibs' lib/popops/reduction/CycleEstimationFunctions.cpp, sums of floats.
    """
    vectors = ceil_div(ceil_div(n_outputs, chip.vector_width(type)), chip.n_workers)
    return chip.n_workers * (15 + vectors * (10 + np.asarray(n_partials)))


def scaled_add_cycles(n_elems: Number, type: Type, chip: Chip) -> Ints:
    """Tile cycles of base += scale * update."""
    vectors = ceil_div(ceil_div(n_elems, chip.vector_width(type)), chip.n_workers)
    return 57 + chip.n_workers * (24 + 2 * vectors)


def dynamic_slice_cycles(n_slices: Number, n_columns: Number, n_bytes: int, chip: Chip) -> Ints:
    """Tile cycles of a dynamic slice or update: the workers share each slice's columns."""
    start, per_slice = DYNAMIC_START, DYNAMIC_PER_SLICE
    if n_bytes == 1:
        start, per_slice = DYNAMIC_START_BYTES, DYNAMIC_PER_SLICE_BYTES
    vectors = ceil_div(np.asarray(n_columns) * n_bytes, chip.data_path_bytes)
    vectors = ceil_div(vectors, chip.n_workers)
    return DYNAMIC_SUPERVISOR + chip.n_workers * (start + n_slices * (per_slice + 2 * vectors))
