"""The native interpreter: runs the instruction table without Python until a step needs it.

Numba compiles it once per machine, while the user of the first engine waits. So it works on plain
addresses: a function whose arguments are integers compiles several times faster than one that takes
arrays. Everything it reads is found through the *record* of a machine, a column of addresses and
numbers (`runtime/machine.py` fills it). What not every program needs compiles when one does:
threads for large tables and copies, counting, the helpers of steps that Python drives.

It is one file, although a long one: stored machine code is named after the file of a function only,
so a change of a helper in another file would leave code that still has the old helper in it.
"""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

from tremula.codelets.native.stored_code import callback, jit
from tremula.compiler.program_ir import Opcode

# Why the interpreter came back.
DONE, AT_STEP, BUDGET_SPENT, DIVERGED, BAD_CALL_DEPTH, LOG_FULL = range(6)

# Slots of the `registers` array.
PC, CALL_DEPTH, STOP, N_REGISTERS = 0, 1, 2, 3
MAX_CALL_DEPTH = 64

_END, _EXECUTE, _COPY, _JUMP = (
    int(Opcode.END),
    int(Opcode.EXECUTE),
    int(Opcode.COPY),
    int(Opcode.JUMP),
)
_LOOP_BEGIN, _LOOP_END = int(Opcode.LOOP_BEGIN), int(Opcode.LOOP_END)
_BRANCH_ZERO, _BRANCH_NONZERO = int(Opcode.BRANCH_ZERO), int(Opcode.BRANCH_NONZERO)
_SWITCH, _CALL, _RETURN, _STAMP = (
    int(Opcode.SWITCH),
    int(Opcode.CALL),
    int(Opcode.RETURN),
    int(Opcode.STAMP),
)
_HOST, _LOOP_FOREVER = int(Opcode.HOST), int(Opcode.LOOP_FOREVER)

# A copy of fewer bytes than this stays on one thread.
PARALLEL_COPY_BYTES = 1 << 18
# Into how many parts a large copy is cut; more than threads, so that they stay busy.
COPY_CHUNKS = 64


# Slots of a machine's record: addresses of columns, and numbers. Columns are int64 unless they are
# said to be bytes.
(
    REGISTERS,
    COUNTERS,
    CALL_STACK,
    CODE,  # [n, CODE_WORDS]
    CODE_WORDS,
    STEP_OF,
    CASES,  # [n, 2]: value, target
    ARENAS,
    N_REPLICAS,
    KERNEL,
    COLUMNS,  # [n_replicas, n_tables]
    N_TABLES,
    N_ROWS,
    CHUNK_FIRST,
    N_CHUNKS,
    BOUNDS,
    SETS,  # [n, 6]: tables, gathers and scatters of a compute set, first and last of each
    COPY_ROWS,  # [n, 5]: source, destination, count, both strides, in items
    COPY_INFO,  # [n, 5]: first row, last row, item bytes, overlaps, total bytes
    BUFFER,  # bytes, for copies whose sides overlap
    CLOCK,
    N_CHIPS,
    EXECUTED,
    CYCLES,  # [n_steps, n_chips]
    JOINS,  # bytes
    IS_ACTIVE,  # bytes [n_steps, n_chips]
    STOPS,  # bytes
    CHIP_TILES,
    COMPUTE,  # [n_steps, n_chips]
    SLOT_OF_STEP,  # of steps that are counted; -1: the cost is known
    COUNTING,  # the columns of counted steps, listed below
    N_WORKERS,
    COUNT_STEP,  # the address of `_count_step`
    RUN_PARTS,  # the address of `thread_pool._run`, or 0: no threads
    POOL,  # its first three arguments
    N_THREADS,
    RUN_PART,
    # What `_run_part` is to do: rows of a table (a kernel), or of a copy (no kernel).
    PART_KERNEL,
    PART_ARENA,
    PART_COLUMNS,
    PART_FIRST,
    PART_N_ROWS,
    PART_ITEM_BYTES,
    PART_RESULTS,
    PART_COUNTER,  # the kernel that counts, or 0
    PART_CYCLES,  # of the first row
    LOG,  # where branches go and what counted steps take: see runtime/history.py
    LOG_SIZE,  # 0: nothing is recorded
    LOG_AT,
    N_SLOTS,
) = range(50)

# Columns of counted steps, in the order of CountedSteps.columns. A slot is such a step.
(
    COUNT_KERNEL,
    ROW_FIRST,
    KNOWN,
    PLACE,
    ROW_CYCLES,
    IS_WORKER,
    WORKERS,  # [n, N_WORKERS]
    ALONE,
    TILE_FIRST,
    TILE,
    COPIES,
    TABLE_FIRST,
    TIMES,
    CHIPS,  # [n_slots, n_chips]
    LAST,
    TOTAL,
    BUSY,
    TABLE_TOTALS,
) = range(18)

_I64, _POINTER = ir.IntType(64), ir.IntType(8).as_pointer()


def _inner(function):
    """Compile a function that only compiled functions call: wrappers for others take time."""
    compiled = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return compiled(function)


def _make_load(n_bits):
    """Loads one signed item, by the address of a column and an index."""

    @intrinsic
    def load(typing_context, column, index):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(n_bits).as_pointer())
            value = builder.load(builder.gep(pointer, [args[1]]), align=1)
            return value if n_bits == 64 else builder.sext(value, _I64)

        return types.int64(types.int64, types.int64), codegen

    return load


def _make_store(n_bits):
    """Stores one item, by the address of a column and an index."""

    @intrinsic
    def store(typing_context, column, index, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(n_bits).as_pointer())
            value = args[2] if n_bits == 64 else builder.trunc(args[2], ir.IntType(n_bits))
            builder.store(value, builder.gep(pointer, [args[1]]), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return store


_load_8, _load_16, _load_32, _at = (_make_load(n) for n in (8, 16, 32, 64))
_store_8, _store_16, _store_32, _put = (_make_store(n) for n in (8, 16, 32, 64))


@intrinsic
def _call_kernel(typing_context, address, arena, columns, begin, end):
    """Call a kernel by its address; see docs/architecture.md for the ABI."""
    signature = types.int64(types.int64, types.int64, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        kernel_type = ir.FunctionType(_I64, [_POINTER, _I64.as_pointer(), _I64, _I64])
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], _POINTER)
        columns = builder.inttoptr(args[2], _I64.as_pointer())
        return builder.call(kernel, [arena, columns, args[3], args[4]])

    return signature, codegen


@intrinsic
def _call_counted(typing_context, address, arena, columns, begin, end, cycles):
    """Call a counting kernel by its address."""

    def codegen(context, builder, signature, args):
        arguments = [_POINTER, _I64.as_pointer(), _I64, _I64, _I64.as_pointer()]
        kernel_type = ir.FunctionType(_I64, arguments)
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], _POINTER)
        columns, cycles = (builder.inttoptr(args[i], _I64.as_pointer()) for i in (2, 5))
        return builder.call(kernel, [arena, columns, args[3], args[4], cycles])

    return types.int64(*(types.int64,) * 6), codegen


@_inner
def _run_rows(kernel, counter, arena, columns, begin, end, cycles):
    """Run rows of a table, with its counting kernel if there is one."""
    if counter != 0:
        return _call_counted(counter, arena, columns, begin, end, cycles)
    return _call_kernel(kernel, arena, columns, begin, end)


@intrinsic
def _call_late(typing_context, address, machine, argument):
    """Call a function that compiled late, by its address: `_count_step`."""

    def codegen(context, builder, signature, args):
        function = builder.inttoptr(args[0], ir.FunctionType(_I64, [_I64, _I64]).as_pointer())
        return builder.call(function, [args[1], args[2]])

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def _call_pool(typing_context, run, pool, n_threads, function, machine, n_parts):
    """Call the function of a thread pool that runs a job, by its address."""

    def codegen(context, builder, signature, args):
        run_type = ir.FunctionType(_I64, [_I64] * 5)
        return builder.call(builder.inttoptr(args[0], run_type.as_pointer()), args[1:])

    return types.int64(*(types.int64,) * 6), codegen


@_inner
def _run_parts(machine, n_parts):
    """Run what PART_… slots say on the threads of the pool."""
    _call_pool(
        _at(machine, RUN_PARTS), _at(machine, POOL), _at(machine, N_THREADS),
        _at(machine, RUN_PART), machine, n_parts,
    )  # fmt: skip


@intrinsic
def _copy_bytes(typing_context, destination, source, n_bytes):
    """Copy bytes between addresses that do not overlap."""

    def codegen(context, builder, signature, args):
        destination, source = (builder.inttoptr(a, _POINTER) for a in args[:2])
        raw_memcpy(builder, destination, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@_inner
def _move(destination, destination_step, source, source_step, count, item_bytes):
    """Copy `count` items between addresses; steps are in bytes."""
    if source_step == item_bytes and destination_step == item_bytes:
        _copy_bytes(destination, source, count * item_bytes)
    elif item_bytes == 4:
        for i in range(count):
            _store_32(destination + i * destination_step, 0, _load_32(source + i * source_step, 0))
    elif item_bytes == 2:
        for i in range(count):
            _store_16(destination + i * destination_step, 0, _load_16(source + i * source_step, 0))
    elif item_bytes == 8:
        for i in range(count):
            _put(destination + i * destination_step, 0, _at(source + i * source_step, 0))
    else:
        for i in range(count):
            _store_8(destination + i * destination_step, 0, _load_8(source + i * source_step, 0))


@_inner
def _copy_rows(arena, rows, first, last, item_bytes):
    """Copy rows of COPY_ROWS, one after another."""
    for number in range(first, last):
        row = rows + number * 40
        source, destination = arena + _at(row, 0) * item_bytes, arena + _at(row, 1) * item_bytes
        source_step, destination_step = _at(row, 3) * item_bytes, _at(row, 4) * item_bytes
        _move(destination, destination_step, source, source_step, _at(row, 2), item_bytes)


@_inner
def _copy_through_buffer(arena, rows, first, last, item_bytes, buffer):
    """A copy whose two sides overlap: read everything, then write."""
    for phase in range(2):
        place = buffer
        for number in range(first, last):
            row = rows + number * 40
            count, step = _at(row, 2), _at(row, 3 + phase) * item_bytes
            address = arena + _at(row, phase) * item_bytes
            if phase == 0:
                _move(place, item_bytes, address, step, count, item_bytes)
            else:
                _move(address, step, place, item_bytes, count, item_bytes)
            place += count * item_bytes


@_inner
def _run_copy(machine, arena, copy):
    """Run one planned copy."""
    info, rows = _at(machine, COPY_INFO) + copy * 40, _at(machine, COPY_ROWS)
    first, last, item_bytes = _at(info, 0), _at(info, 1), _at(info, 2)
    is_large = _at(info, 4) >= PARALLEL_COPY_BYTES and last - first >= COPY_CHUNKS
    if _at(info, 3) != 0:
        _copy_through_buffer(arena, rows, first, last, item_bytes, _at(machine, BUFFER))
    elif is_large and _at(machine, RUN_PARTS) != 0:
        _put(machine, PART_KERNEL, 0)
        _put(machine, PART_ARENA, arena)
        _put(machine, PART_FIRST, first)
        _put(machine, PART_N_ROWS, last - first)
        _put(machine, PART_ITEM_BYTES, item_bytes)
        _run_parts(machine, COPY_CHUNKS)
    else:
        _copy_rows(arena, rows, first, last, item_bytes)


@_inner
def _load_integer(address, n_bytes):
    """A little-endian scalar, sign-extended."""
    if n_bytes == 1:
        return _load_8(address, 0)
    if n_bytes == 2:
        return _load_16(address, 0)
    return _load_32(address, 0) if n_bytes == 4 else _at(address, 0)


@_inner
def _store_integer(address, n_bytes, value):
    for i in range(n_bytes):
        _store_8(address, i, value >> (8 * i))


@_inner
def _run_table(machine, arena, columns, table, counts):
    """Run a table's kernel over all its rows, a large one on several threads."""
    kernel, n_chunks = _at(_at(machine, KERNEL), table), _at(_at(machine, N_CHUNKS), table)
    counter, cycles = np.int64(0), np.int64(0)
    if counts:
        counting = _at(machine, COUNTING)
        counter = _at(_at(counting, COUNT_KERNEL), table)
        cycles = _at(counting, ROW_CYCLES) + 8 * _at(_at(counting, ROW_FIRST), table)
    if n_chunks < 2 or _at(machine, RUN_PARTS) == 0:
        n_rows = _at(_at(machine, N_ROWS), table)
        return _run_rows(kernel, counter, arena, columns, 0, n_rows, cycles)
    _put(machine, PART_KERNEL, kernel)
    _put(machine, PART_ARENA, arena)
    _put(machine, PART_COLUMNS, columns)
    _put(machine, PART_FIRST, _at(_at(machine, CHUNK_FIRST), table))
    _put(machine, PART_COUNTER, counter)
    _put(machine, PART_CYCLES, cycles)
    _run_parts(machine, n_chunks)
    every = np.int64(1)
    for chunk in range(n_chunks):
        every &= _at(_at(machine, PART_RESULTS), chunk)
    return every


@_inner
def _run_compute_set(machine, arena, replica, compute_set, counts):
    """Gather, run the kernels, scatter. Returns the AND of what the vertices returned.

    If it `counts`, tables with a counting kernel fill their rows of ROW_CYCLES.
    """
    ranges = _at(machine, SETS) + compute_set * 48
    columns = _at(machine, COLUMNS) + 8 * replica * _at(machine, N_TABLES)
    for copy in range(_at(ranges, 2), _at(ranges, 3)):
        _run_copy(machine, arena, copy)
    result = np.int64(1)
    for table in range(_at(ranges, 0), _at(ranges, 1)):
        result &= _run_table(machine, arena, _at(columns, table), table, counts)
    for copy in range(_at(ranges, 4), _at(ranges, 5)):
        _run_copy(machine, arena, copy)
    return result


@_inner
def _advance_clock(machine, step):
    """Advance the modelled clock of the chips that take part in a step."""
    clock, n_chips = _at(machine, CLOCK), _at(machine, N_CHIPS)
    cycles, is_active = _at(machine, CYCLES), _at(machine, IS_ACTIVE) + step * n_chips
    cycles += 8 * step * n_chips
    if _load_8(_at(machine, JOINS), step) != 0:
        latest = _at(clock, 0)
        for chip in range(1, n_chips):
            if _at(clock, chip) > latest:
                latest = _at(clock, chip)
        for chip in range(n_chips):
            _put(clock, chip, latest + _at(cycles, chip))
    else:
        for chip in range(n_chips):
            if _load_8(is_active, chip) != 0:
                _put(clock, chip, _at(clock, chip) + _at(cycles, chip))


@_inner
def _branch_target(machine, pc, op, row):
    """Where a branch or switch goes, or -1 if the replicas disagree."""
    arenas, place, n_bytes = _at(machine, ARENAS), _at(row, 1), _at(row, 2)
    value = _load_integer(_at(arenas, 0) + place, n_bytes)
    for replica in range(1, _at(machine, N_REPLICAS)):
        if _load_integer(_at(arenas, replica) + place, n_bytes) != value:
            return -1
    if op == _SWITCH:
        cases = _at(machine, CASES)
        for case in range(_at(row, 3), _at(row, 4)):
            if _at(cases, 2 * case) == value:
                return _at(cases, 2 * case + 1)
        return _at(row, 5)
    return _at(row, 3) if (value == 0) == (op == _BRANCH_ZERO) else pc + 1


@_inner
def _log(machine, value):
    """Record one event, if anybody wants to know."""
    at = _at(machine, LOG_AT)
    if at < _at(machine, LOG_SIZE):
        _put(_at(machine, LOG), at, value)
        _put(machine, LOG_AT, at + 1)


@_inner
def _log_counted(machine, step):
    """Record what a counted step took on each chip."""
    n_chips = _at(machine, N_CHIPS)
    for chip in range(n_chips):
        _log(machine, _at(_at(machine, COMPUTE), step * n_chips + chip))


@_inner
def _is_log_full(machine):
    room = _at(machine, LOG_SIZE) - _at(machine, LOG_AT)
    return _at(machine, LOG_SIZE) > 0 and room < _at(machine, N_CHIPS)


@_inner
def _control(machine, pc, op, row):
    """The next instruction after a loop, jump, call or return; -1 if calls are too deep."""
    a, b, c = _at(row, 1), _at(row, 2), _at(row, 3)
    registers, counters = _at(machine, REGISTERS), _at(machine, COUNTERS)
    call_stack, depth = _at(machine, CALL_STACK), _at(registers, CALL_DEPTH)
    if op == _LOOP_BEGIN:
        _put(counters, a, b)
        return pc + 1 if b > 0 else c
    if op == _LOOP_END:
        _put(counters, a, _at(counters, a) - 1)
        return b if _at(counters, a) > 0 else pc + 1
    if op == _JUMP:
        return a
    if op == _LOOP_FOREVER:
        return pc + 1 if _at(registers, STOP) != 0 else a
    if op == _CALL:
        if depth >= MAX_CALL_DEPTH:
            return -1
        _put(call_stack, depth, pc + 1)
        _put(registers, CALL_DEPTH, depth + 1)
        return a
    if op == _RETURN:
        if depth < 1:
            return -1
        _put(registers, CALL_DEPTH, depth - 1)
        return _at(call_stack, depth - 1)
    return pc + 1


@_inner
def _stamp(machine, arena, address, tile, since):
    """Store a chip's cycle counter, less an earlier one if there is one."""
    cycles = _at(_at(machine, CLOCK), tile // _at(machine, CHIP_TILES))
    if since >= 0:
        cycles -= _at(arena + since, 0)
    _put(arena + address, 0, cycles)


@_inner
def _work(machine, op, row):
    """Run a compute set, copy or stamp on every replica."""
    a, b, c = _at(row, 1), _at(row, 2), _at(row, 3)
    for replica in range(_at(machine, N_REPLICAS)):
        arena = _at(_at(machine, ARENAS), replica)
        if op == _EXECUTE:
            result = _run_compute_set(machine, arena, replica, a, False)
            if b >= 0:
                _store_integer(arena + b, c, result)
        elif op == _COPY:
            _run_copy(machine, arena, a)
        else:
            _stamp(machine, arena, a, b, c)


@jit("int64(int64, int64)", nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def interpret(machine, budget):
    """Run from registers[PC] until the end, a step for Python, or `budget` steps were taken."""
    registers, stops = _at(machine, REGISTERS), _at(machine, STOPS)
    executed, step_of = _at(machine, EXECUTED), _at(machine, STEP_OF)
    pc = _at(registers, PC)
    while True:
        row = _at(machine, CODE) + 8 * pc * _at(machine, CODE_WORDS)
        op, step = _at(row, 0), _at(step_of, pc)
        _put(registers, PC, pc)
        if op == _END:
            return DONE
        if _is_log_full(machine):
            return LOG_FULL
        if step >= 0 or op == _LOOP_END or op == _LOOP_FOREVER:
            budget -= 1
            if budget < 0:
                return BUDGET_SPENT
        if step >= 0:
            if op == _HOST or _load_8(stops, step) != 0:
                return AT_STEP
            _put(executed, step, _at(executed, step) + 1)
            is_counted = _at(_at(machine, SLOT_OF_STEP), step) >= 0
            if is_counted:
                _call_late(_at(machine, COUNT_STEP), machine, pc)
            _advance_clock(machine, step)
            if is_counted:  # it has run
                _log_counted(machine, step)
                pc += 1
                continue
        if op == _EXECUTE or op == _COPY or op == _STAMP:
            _work(machine, op, row)
            pc += 1
        elif op == _BRANCH_ZERO or op == _BRANCH_NONZERO or op == _SWITCH:
            pc = _branch_target(machine, pc, op, row)
            if pc < 0:
                return DIVERGED
            _log(machine, pc)
        else:
            pc = _control(machine, pc, op, row)
            if pc < 0:
                return BAD_CALL_DEPTH
            if op == _LOOP_FOREVER:
                _log(machine, pc)


# -- threads ---------------------------------------------------------------------------------------


def _run_part(machine, part, n_parts):
    """One chunk of a table, or an equal share of a copy's rows."""
    kernel, arena = _at(machine, PART_KERNEL), _at(machine, PART_ARENA)
    first = _at(machine, PART_FIRST)
    if kernel != 0:
        bounds, columns = _at(machine, BOUNDS), _at(machine, PART_COLUMNS)
        begin, end = _at(bounds, first + part), _at(bounds, first + part + 1)
        counter, cycles = _at(machine, PART_COUNTER), _at(machine, PART_CYCLES)
        result = _run_rows(kernel, counter, arena, columns, begin, end, cycles)
        _put(_at(machine, PART_RESULTS), part, result)
    else:
        n_rows, item_bytes = _at(machine, PART_N_ROWS), _at(machine, PART_ITEM_BYTES)
        begin, end = part * n_rows // n_parts, (part + 1) * n_rows // n_parts
        _copy_rows(arena, _at(machine, COPY_ROWS), first + begin, first + end, item_bytes)
    return 0


@cache
def run_part() -> Any:
    """The function, by address, that runs one part of what PART_… slots say."""
    signature = "int64(int64, int64, int64)"
    return callback(signature, nogil=True, error_model="numpy")(_run_part)


# -- steps whose cost depends on data --------------------------------------------------------------


@_inner
def _deal(counting, n_workers, begin, end):
    """Add each row to the least loaded worker of its tile, as `sweeps.deal_to_workers` does."""
    for row in range(begin, end):
        load = _at(counting, WORKERS) + 8 * n_workers * _at(_at(counting, PLACE), row)
        least = 0
        for worker in range(1, n_workers):
            if _at(load, worker) < _at(load, least):
                least = worker
        _put(load, least, _at(load, least) + _at(_at(counting, ROW_CYCLES), row))


@_inner
def _add_table(counting, begin, end, total):
    """Fill in the rows whose cycles are known; adds the others to `total`, if it is an address."""
    cycles, counted = _at(counting, ROW_CYCLES), np.int64(0)
    for row in range(begin, end):
        known = _at(_at(counting, KNOWN), row)
        if known >= 0:
            _put(cycles, row, known)
        else:
            counted += _at(cycles, row)
    if total != 0:
        _put(total, 0, _at(total, 0) + counted)


@_inner
def _load_tiles(machine, slot, compute_set, is_first):
    """Deal what the vertices of a step took to the workers of their tiles."""
    counting, n_workers = _at(machine, COUNTING), _at(machine, N_WORKERS)
    workers, alone, tile_first = (
        _at(counting, WORKERS),
        _at(counting, ALONE),
        _at(counting, TILE_FIRST),
    )
    for i in range(_at(tile_first, slot + 1) - _at(tile_first, slot)):
        _put(alone, i, 0)
        for worker in range(n_workers):
            _put(workers, i * n_workers + worker, 0)
    ranges = _at(machine, SETS) + compute_set * 48
    totals = _at(counting, TABLE_TOTALS) + 8 * _at(_at(counting, TABLE_FIRST), slot)
    for table in range(_at(ranges, 0), _at(ranges, 1)):
        begin = _at(_at(counting, ROW_FIRST), table)
        end = begin + _at(_at(machine, N_ROWS), table)
        total = totals + 8 * (table - _at(ranges, 0)) if is_first else 0
        _add_table(counting, begin, end, total)
        if _at(_at(counting, IS_WORKER), table) != 0:
            _deal(counting, n_workers, begin, end)
        else:
            for row in range(begin, end):
                place = _at(_at(counting, PLACE), row)
                _put(alone, place, _at(alone, place) + _at(_at(counting, ROW_CYCLES), row))


@_inner
def _add_tiles(machine, slot, is_first):
    """Add the tiles' cycles to the step's. On each tile the slowest of all replicas counts."""
    counting, n_workers = _at(machine, COUNTING), _at(machine, N_WORKERS)
    last, total, busy = _at(counting, LAST), _at(counting, TOTAL), _at(counting, BUSY)
    first = _at(_at(counting, TILE_FIRST), slot)
    for row in range(first, _at(_at(counting, TILE_FIRST), slot + 1)):
        of_tile = _at(counting, WORKERS) + 8 * n_workers * (row - first)
        most, every = np.int64(0), np.int64(0)
        for worker in range(n_workers):
            every += _at(of_tile, worker)
            most = max(most, _at(of_tile, worker))
        others = _at(_at(counting, ALONE), row - first) + _at(_at(counting, COPIES), row)
        taken = most * n_workers + others
        if is_first:
            _put(last, row, 0)
            _put(busy, row, _at(busy, row) + every + others)
        if taken > _at(last, row):
            _put(total, row, _at(total, row) + taken - _at(last, row))
            _put(last, row, taken)


@_inner
def _set_chips(machine, slot, step):
    """The step's cycles on each chip are those of its slowest tile there."""
    counting, n_chips = _at(machine, COUNTING), _at(machine, N_CHIPS)
    cycles = _at(machine, CYCLES) + 8 * n_chips * step
    compute = _at(machine, COMPUTE) + 8 * n_chips * step
    chips = _at(counting, CHIPS) + 8 * n_chips * slot
    for chip in range(n_chips):
        _put(cycles, chip, _at(cycles, chip) - _at(compute, chip))
        _put(compute, chip, 0)
    tile_first, last = _at(counting, TILE_FIRST), _at(counting, LAST)
    for row in range(_at(tile_first, slot), _at(tile_first, slot + 1)):
        chip = _at(_at(counting, TILE), row) // _at(machine, CHIP_TILES)
        if _at(last, row) > _at(compute, chip):
            _put(compute, chip, _at(last, row))
    for chip in range(n_chips):
        _put(cycles, chip, _at(cycles, chip) + _at(compute, chip))
        _put(chips, chip, _at(chips, chip) + _at(compute, chip))


def _count_step(machine, pc):
    """Run a step with its counting kernels; its cycles on each chip are then what it took."""
    row, step = (
        _at(machine, CODE) + 8 * pc * _at(machine, CODE_WORDS),
        _at(_at(machine, STEP_OF), pc),
    )
    compute_set, flag = _at(row, 1), _at(row, 2)
    slot = _at(_at(machine, SLOT_OF_STEP), step)
    for replica in range(_at(machine, N_REPLICAS)):
        arena = _at(_at(machine, ARENAS), replica)
        result = _run_compute_set(machine, arena, replica, compute_set, True)
        if flag >= 0:
            _store_integer(arena + flag, _at(row, 3), result)
        _load_tiles(machine, slot, compute_set, replica == 0)
        _add_tiles(machine, slot, replica == 0)
    times = _at(_at(machine, COUNTING), TIMES)
    _put(times, slot, _at(times, slot) + 1)
    _set_chips(machine, slot, step)
    return 0


@cache
def count_step() -> Any:
    """The function, by address, that runs and counts the step at an instruction."""
    return callback("int64(int64, int64)", nogil=True, error_model="numpy")(_count_step)


# -- steps that Python drives ----------------------------------------------------------------------


@jit()
def run_in_order(kernel, arena, columns, rows, n_rows):
    """Run rows of a table one after another, in the order of the column `rows`."""
    result = 1
    for i in range(n_rows):
        row = _at(rows, i)
        result &= _call_kernel(kernel, arena, columns, row, row + 1)
    return result


@jit()
def run_copies(machine, arena, first, last):
    """Planned copies, one after another."""
    for copy in range(first, last):
        _run_copy(machine, arena, copy)
