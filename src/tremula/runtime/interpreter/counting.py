"""Steps whose cost depends on data: they run with kernels that count their cycles."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from functools import cache
from typing import Any

import numpy as np

from tremula.codelets.native.stored_code import callback
from tremula.runtime.interpreter import record
from tremula.runtime.interpreter.compute_sets import run_compute_set, store_integer
from tremula.runtime.interpreter.instructions import inner, read, write


@inner
def _deal(counting, n_workers, begin, end):
    """Add each row to the least loaded worker of its tile, as `sweeps.deal_to_workers` does."""
    for row in range(begin, end):
        place = read(read(counting, record.PLACE), row)
        load = read(counting, record.WORKERS) + 8 * n_workers * place
        least = 0
        for worker in range(1, n_workers):
            if read(load, worker) < read(load, least):
                least = worker
        write(load, least, read(load, least) + read(read(counting, record.ROW_CYCLES), row))


@inner
def _add_table(counting, begin, end, total):
    """Fill in the rows whose cycles are known; adds the others to `total`, if it is an address."""
    cycles, counted = read(counting, record.ROW_CYCLES), np.int64(0)
    for row in range(begin, end):
        known = read(read(counting, record.KNOWN), row)
        if known >= 0:
            write(cycles, row, known)
        else:
            counted += read(cycles, row)
    if total != 0:
        write(total, 0, read(total, 0) + counted)


@inner
def _load_tiles(machine, slot, compute_set, is_first):
    """Deal what the vertices of a step took to the workers of their tiles."""
    counting, n_workers = read(machine, record.COUNTING), read(machine, record.N_WORKERS)
    workers = read(counting, record.WORKERS)
    alone = read(counting, record.ALONE)
    tile_first = read(counting, record.TILE_FIRST)
    for i in range(read(tile_first, slot + 1) - read(tile_first, slot)):
        write(alone, i, 0)
        for worker in range(n_workers):
            write(workers, i * n_workers + worker, 0)
    ranges = read(machine, record.SETS) + compute_set * 48
    first = read(read(counting, record.TABLE_FIRST), slot)
    totals = read(counting, record.TABLE_TOTALS) + 8 * first
    for table in range(read(ranges, 0), read(ranges, 1)):
        begin = read(read(counting, record.ROW_FIRST), table)
        end = begin + read(read(machine, record.N_ROWS), table)
        total = totals + 8 * (table - read(ranges, 0)) if is_first else 0
        _add_table(counting, begin, end, total)
        if read(read(counting, record.IS_WORKER), table) != 0:
            _deal(counting, n_workers, begin, end)
        else:
            for row in range(begin, end):
                place = read(read(counting, record.PLACE), row)
                cycles = read(read(counting, record.ROW_CYCLES), row)
                write(alone, place, read(alone, place) + cycles)


@inner
def _add_tiles(machine, slot, is_first):
    """Add the tiles' cycles to the step's. On each tile the slowest of all replicas counts."""
    counting, n_workers = read(machine, record.COUNTING), read(machine, record.N_WORKERS)
    last = read(counting, record.LAST)
    total = read(counting, record.TOTAL)
    busy = read(counting, record.BUSY)
    first = read(read(counting, record.TILE_FIRST), slot)
    for row in range(first, read(read(counting, record.TILE_FIRST), slot + 1)):
        of_tile = read(counting, record.WORKERS) + 8 * n_workers * (row - first)
        most, every = np.int64(0), np.int64(0)
        for worker in range(n_workers):
            every += read(of_tile, worker)
            most = max(most, read(of_tile, worker))
        others = read(read(counting, record.ALONE), row - first)
        others += read(read(counting, record.COPIES), row)
        taken = most * n_workers + others
        if is_first:
            write(last, row, 0)
            write(busy, row, read(busy, row) + every + others)
        if taken > read(last, row):
            write(total, row, read(total, row) + taken - read(last, row))
            write(last, row, taken)


@inner
def _set_chips(machine, slot, step):
    """The step's cycles on each chip are those of its slowest tile there."""
    counting, n_chips = read(machine, record.COUNTING), read(machine, record.N_CHIPS)
    cycles = read(machine, record.CYCLES) + 8 * n_chips * step
    compute = read(machine, record.COMPUTE) + 8 * n_chips * step
    chips = read(counting, record.CHIPS) + 8 * n_chips * slot
    for chip in range(n_chips):
        write(cycles, chip, read(cycles, chip) - read(compute, chip))
        write(compute, chip, 0)
    tile_first, last = read(counting, record.TILE_FIRST), read(counting, record.LAST)
    for row in range(read(tile_first, slot), read(tile_first, slot + 1)):
        chip = read(read(counting, record.TILE), row) // read(machine, record.CHIP_TILES)
        if read(last, row) > read(compute, chip):
            write(compute, chip, read(last, row))
    for chip in range(n_chips):
        write(cycles, chip, read(cycles, chip) + read(compute, chip))
        write(chips, chip, read(chips, chip) + read(compute, chip))


def _count_step(machine, pc):
    """Run a step with its counting kernels; its cycles on each chip are then what it took."""
    row = read(machine, record.CODE) + 8 * pc * read(machine, record.CODE_WORDS)
    step = read(read(machine, record.STEP_OF), pc)
    compute_set, flag = read(row, 1), read(row, 2)
    slot = read(read(machine, record.SLOT_OF_STEP), step)
    for replica in range(read(machine, record.N_REPLICAS)):
        arena = read(read(machine, record.ARENAS), replica)
        result = run_compute_set(machine, arena, replica, compute_set, True)
        if flag >= 0:
            store_integer(arena + flag, read(row, 3), result)
        _load_tiles(machine, slot, compute_set, replica == 0)
        _add_tiles(machine, slot, replica == 0)
    times = read(read(machine, record.COUNTING), record.TIMES)
    write(times, slot, read(times, slot) + 1)
    _set_chips(machine, slot, step)
    return 0


@cache
def count_step() -> Any:
    """The function, by address, that runs and counts the step at an instruction."""
    return callback("int64(int64, int64)", nogil=True, error_model="numpy")(_count_step)
