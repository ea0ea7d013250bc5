"""Planned copies: rows of items between addresses, large copies on several threads."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from tremula.runtime.interpreter import record
from tremula.runtime.interpreter.instructions import (
    call_pool,
    copy_bytes,
    inner,
    load_8,
    load_16,
    load_32,
    read,
    store_8,
    store_16,
    store_32,
    write,
)


@inner
def run_parts(machine, n_parts):
    """Run what PART_… slots say on the threads of the pool."""
    call_pool(
        read(machine, record.RUN_PARTS), read(machine, record.POOL),
        read(machine, record.N_THREADS), read(machine, record.RUN_PART), machine, n_parts,
    )  # fmt: skip


@inner
def _move(destination, destination_step, source, source_step, count, item_bytes):
    """Copy `count` items between addresses; steps are in bytes."""
    if source_step == item_bytes and destination_step == item_bytes:
        copy_bytes(destination, source, count * item_bytes)
    elif item_bytes == 4:
        for i in range(count):
            store_32(destination + i * destination_step, 0, load_32(source + i * source_step, 0))
    elif item_bytes == 2:
        for i in range(count):
            store_16(destination + i * destination_step, 0, load_16(source + i * source_step, 0))
    elif item_bytes == 8:
        for i in range(count):
            write(destination + i * destination_step, 0, read(source + i * source_step, 0))
    else:
        for i in range(count):
            store_8(destination + i * destination_step, 0, load_8(source + i * source_step, 0))


@inner
def copy_rows(arena, rows, first, last, item_bytes):
    """Copy rows of record.COPY_ROWS, one after another."""
    for number in range(first, last):
        row = rows + number * 40
        source, destination = arena + read(row, 0) * item_bytes, arena + read(row, 1) * item_bytes
        source_step, destination_step = read(row, 3) * item_bytes, read(row, 4) * item_bytes
        _move(destination, destination_step, source, source_step, read(row, 2), item_bytes)


@inner
def _copy_through_buffer(arena, rows, first, last, item_bytes, buffer):
    """A copy whose two sides overlap: read everything, then write."""
    for phase in range(2):
        place = buffer
        for number in range(first, last):
            row = rows + number * 40
            count, step = read(row, 2), read(row, 3 + phase) * item_bytes
            address = arena + read(row, phase) * item_bytes
            if phase == 0:
                _move(place, item_bytes, address, step, count, item_bytes)
            else:
                _move(address, step, place, item_bytes, count, item_bytes)
            place += count * item_bytes


@inner
def run_copy(machine, arena, copy):
    """Run one planned copy."""
    info, rows = read(machine, record.COPY_INFO) + copy * 40, read(machine, record.COPY_ROWS)
    first, last, item_bytes = read(info, 0), read(info, 1), read(info, 2)
    is_large = read(info, 4) >= record.PARALLEL_COPY_BYTES and last - first >= record.COPY_CHUNKS
    if read(info, 3) != 0:
        _copy_through_buffer(arena, rows, first, last, item_bytes, read(machine, record.BUFFER))
    elif is_large and read(machine, record.RUN_PARTS) != 0:
        write(machine, record.PART_KERNEL, 0)
        write(machine, record.PART_ARENA, arena)
        write(machine, record.PART_FIRST, first)
        write(machine, record.PART_N_ROWS, last - first)
        write(machine, record.PART_ITEM_BYTES, item_bytes)
        run_parts(machine, record.COPY_CHUNKS)
    else:
        copy_rows(arena, rows, first, last, item_bytes)
