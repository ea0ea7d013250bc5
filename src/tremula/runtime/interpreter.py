"""The native interpreter: runs the instruction table without Python until a step needs it."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

import numpy as np
from llvmlite import ir
from numba import carray, njit, prange, types  # pyright: ignore[reportPrivateImportUsage]
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

from tremula.compiler.passes.sweeps import deal_to_workers
from tremula.compiler.program_ir import Op

# Why the interpreter came back.
DONE, AT_STEP, BUDGET_SPENT, DIVERGED, BAD_CALL_DEPTH = range(5)

# Slots of the `registers` array.
PC, CALL_DEPTH, STOP, N_REGISTERS = 0, 1, 2, 3
MAX_CALL_DEPTH = 64

_END, _EXECUTE, _COPY, _JUMP = int(Op.END), int(Op.EXECUTE), int(Op.COPY), int(Op.JUMP)
_LOOP_BEGIN, _LOOP_END = int(Op.LOOP_BEGIN), int(Op.LOOP_END)
_BRANCH_ZERO, _BRANCH_NONZERO = int(Op.BRANCH_ZERO), int(Op.BRANCH_NONZERO)
_SWITCH, _CALL, _RETURN, _STAMP = int(Op.SWITCH), int(Op.CALL), int(Op.RETURN), int(Op.STAMP)
_HOST, _LOOP_FOREVER = int(Op.HOST), int(Op.LOOP_FOREVER)

# A copy of fewer bytes than this stays on one thread.
PARALLEL_COPY_BYTES = 1 << 18
# Into how many parts a large copy is cut; more than threads, so that they stay busy.
COPY_CHUNKS = 64


@intrinsic
def call_kernel(typing_context, address, arena, columns, begin, end):
    """Call a kernel by its address; see docs/architecture.md for the ABI."""
    signature = types.int64(types.int64, types.int64, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        i64, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        kernel_type = ir.FunctionType(i64, [pointer, i64.as_pointer(), i64, i64])
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], pointer)
        columns = builder.inttoptr(args[2], i64.as_pointer())
        return builder.call(kernel, [arena, columns, args[3], args[4]])

    return signature, codegen


@intrinsic
def _call_counted(typing_context, address, arena, columns, begin, end, cycles):
    """Call a counting kernel by its address."""

    def codegen(context, builder, signature, args):
        i64, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        i64_pointer = i64.as_pointer()
        kernel_type = ir.FunctionType(i64, [pointer, i64_pointer, i64, i64, i64_pointer])
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], pointer)
        columns, cycles = (builder.inttoptr(args[i], i64_pointer) for i in (2, 5))
        return builder.call(kernel, [arena, columns, args[3], args[4], cycles])

    return types.int64(*(types.int64,) * 6), codegen


@njit(nogil=True, cache=True)
def _run_rows(kernel, counting, arena, columns, begin, end, cycles):
    """Run rows of a table, with its counting kernel if there is one."""
    if counting:
        return _call_counted(counting, arena, columns, begin, end, cycles)
    return call_kernel(kernel, arena, columns, begin, end)


@intrinsic
def pointer_to(typing_context, address):
    """An integer address as a void pointer."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@njit(parallel=True, nogil=True, cache=True)
def _run_chunks(kernel, counting, arena, columns, bounds, first, n_chunks, cycles):
    """Run a large table in chunks, one per thread."""
    result = np.ones(n_chunks, np.int64)
    for chunk in prange(n_chunks):
        begin, end = bounds[first + chunk], bounds[first + chunk + 1]
        result[chunk] = _run_rows(kernel, counting, arena, columns, begin, end, cycles)
    every = np.int64(1)
    for chunk in range(n_chunks):
        every &= result[chunk]
    return every


def _make_copy_word(n_bits):
    """Copies one item of so many bits from one address to another."""

    @intrinsic
    def copy_word(typing_context, destination, source):
        def codegen(context, builder, signature, args):
            pointer = ir.IntType(n_bits).as_pointer()
            value = builder.load(builder.inttoptr(args[1], pointer), align=1)
            builder.store(value, builder.inttoptr(args[0], pointer), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return copy_word


_copy_8, _copy_16, _copy_32, _copy_64 = (_make_copy_word(n) for n in (8, 16, 32, 64))


@intrinsic
def _copy_bytes(typing_context, destination, source, n_bytes):
    """Copy bytes between addresses that do not overlap."""

    def codegen(context, builder, signature, args):
        pointer = ir.IntType(8).as_pointer()
        raw_memcpy(
            builder,
            builder.inttoptr(args[0], pointer),
            builder.inttoptr(args[1], pointer),
            args[2],
            1,
        )
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@njit(nogil=True, cache=True)
def _move(destination, destination_step, source, source_step, count, item_bytes):
    """Copy `count` items between addresses; steps are in bytes."""
    if source_step == item_bytes and destination_step == item_bytes:
        _copy_bytes(destination, source, count * item_bytes)
    elif item_bytes == 4:
        for i in range(count):
            _copy_32(destination + i * destination_step, source + i * source_step)
    elif item_bytes == 2:
        for i in range(count):
            _copy_16(destination + i * destination_step, source + i * source_step)
    elif item_bytes == 8:
        for i in range(count):
            _copy_64(destination + i * destination_step, source + i * source_step)
    else:
        for i in range(count):
            _copy_8(destination + i * destination_step, source + i * source_step)


@njit(nogil=True, cache=True)
def _copy_rows(arena, rows, first, last, item_bytes):
    """Copy rows (source, destination, count, source stride, destination stride), in items."""
    for row in range(first, last):
        source, destination = arena + rows[row, 0] * item_bytes, arena + rows[row, 1] * item_bytes
        source_step, destination_step = rows[row, 3] * item_bytes, rows[row, 4] * item_bytes
        _move(destination, destination_step, source, source_step, rows[row, 2], item_bytes)


@njit(nogil=True, cache=True)
def _copy_through_buffer(arena, rows, first, last, item_bytes, n_bytes):
    """A copy whose two sides overlap: read everything, then write."""
    buffer = np.empty(n_bytes, np.uint8)
    for phase in range(2):
        place = np.int64(buffer.ctypes.data)
        for row in range(first, last):
            count, step = rows[row, 2], rows[row, 3 + phase] * item_bytes
            address = arena + rows[row, phase] * item_bytes
            if phase == 0:
                _move(place, item_bytes, address, step, count, item_bytes)
            else:
                _move(address, step, place, item_bytes, count, item_bytes)
            place += count * item_bytes


@njit(parallel=True, nogil=True, cache=True)
def _copy_parallel(arena, rows, first, last, item_bytes):
    n = last - first
    for chunk in prange(COPY_CHUNKS):
        begin, end = chunk * n // COPY_CHUNKS, (chunk + 1) * n // COPY_CHUNKS
        _copy_rows(arena, rows, first + begin, first + end, item_bytes)


@njit(nogil=True, cache=True)
def run_copy(arena, rows, info, copy):
    """Run one planned copy. info[copy] = first row, last row, item bytes, overlaps, total bytes."""
    first, last, item_bytes = info[copy, 0], info[copy, 1], info[copy, 2]
    overlaps, n_bytes = info[copy, 3], info[copy, 4]
    if overlaps:
        _copy_through_buffer(arena, rows, first, last, item_bytes, n_bytes)
    elif n_bytes >= PARALLEL_COPY_BYTES and last - first >= COPY_CHUNKS:
        _copy_parallel(arena, rows, first, last, item_bytes)
    else:
        _copy_rows(arena, rows, first, last, item_bytes)


@njit(nogil=True, cache=True)
def _load_integer(arena, n_arena_bytes, address, n_bytes):
    """A little-endian scalar, sign-extended."""
    memory = carray(pointer_to(arena), n_arena_bytes, np.uint8)
    value = np.int64(0)
    for i in range(n_bytes):
        value |= np.int64(memory[address + i]) << (8 * i)
    shift = 64 - 8 * n_bytes
    return (value << shift) >> shift


@njit(nogil=True, cache=True)
def _store_integer(arena, n_arena_bytes, address, n_bytes, value):
    memory = carray(pointer_to(arena), n_arena_bytes, np.uint8)
    for i in range(n_bytes):
        memory[address + i] = np.uint8((value >> (8 * i)) & 255)


@njit(nogil=True, cache=True)
def _run_compute_set(
    arena, replica, compute_set, counts, tables, sets, rows, copy_info, counting, row_first, cycles
):
    """Gather, run the kernels, scatter. Returns the AND of what the vertices returned.

    sets[cs] = first table, last table, first gather, last gather, first scatter, last scatter. If
    it `counts`, tables with a `counting` kernel fill their rows of `cycles`.
    """
    kernel, columns, n_rows, chunk_first, n_chunks, bounds = tables
    for copy in range(sets[compute_set, 2], sets[compute_set, 3]):
        run_copy(arena, rows, copy_info, copy)
    result = np.int64(1)
    for table in range(sets[compute_set, 0], sets[compute_set, 1]):
        counter, at = np.int64(0), np.int64(0)
        if counts:
            counter, at = counting[table], cycles.ctypes.data + 8 * row_first[table]
        first, own = chunk_first[table], columns[replica, table]
        if n_chunks[table] > 1:
            result &= _run_chunks(
                kernel[table], counter, arena, own, bounds, first, n_chunks[table], at
            )
        else:
            result &= _run_rows(kernel[table], counter, arena, own, 0, n_rows[table], at)
    for copy in range(sets[compute_set, 4], sets[compute_set, 5]):
        run_copy(arena, rows, copy_info, copy)
    return result


@njit(nogil=True, cache=True)
def _load_tiles(slot, first_table, last_table, n_rows, is_first, counting):
    """Deal what the vertices of a step took to the workers of their tiles."""
    (
        _, _, row_first, known, place, cycles, is_worker, workers, alone, tile_first, _, _,
        table_first, _, _, _, _, _, table_totals,
    ) = counting  # fmt: skip
    n_tiles = tile_first[slot + 1] - tile_first[slot]
    workers[:n_tiles] = 0
    alone[:n_tiles] = 0
    for table in range(first_table, last_table):
        begin, end = row_first[table], row_first[table] + n_rows[table]
        counted = np.int64(0)
        for row in range(begin, end):
            if known[row] >= 0:
                cycles[row] = known[row]
            else:
                counted += cycles[row]
        if is_first:
            table_totals[table_first[slot] + table - first_table] += counted
        if is_worker[table]:
            deal_to_workers(place[begin:end], cycles[begin:end], workers)
        else:
            for row in range(begin, end):
                alone[place[row]] += cycles[row]


@njit(nogil=True, cache=True)
def _add_tiles(slot, is_first, counting):
    """Add the tiles' cycles to the step's. On each tile the slowest of all replicas counts."""
    workers, alone, tile_first, copies = counting[7], counting[8], counting[9], counting[11]
    last, total, busy = counting[15], counting[16], counting[17]
    for row in range(tile_first[slot], tile_first[slot + 1]):
        of_tile = workers[row - tile_first[slot]]
        others = alone[row - tile_first[slot]] + copies[row]
        taken = of_tile.max() * len(of_tile) + others
        if is_first:
            last[row] = 0
            busy[row] += of_tile.sum() + others
        if taken > last[row]:
            total[row] += taken - last[row]
            last[row] = taken


@njit(nogil=True, cache=True)
def count_step(
    step, compute_set, flag, flag_bytes, arenas, n_arena_bytes, tables, sets, rows, copy_info,
    counting, cycles, compute, chip_tiles,
):  # fmt: skip
    """Run a compute set with its counting kernels; its cycles on each chip are then what it took.

    `counting` is CountedSteps.as_tuple().
    """
    kernel, row_first, row_cycles = counting[1], counting[2], counting[5]
    tile_first, tile, times, last = counting[9], counting[10], counting[13], counting[15]
    slot = counting[0][step]
    for replica in range(len(arenas)):
        result = _run_compute_set(
            arenas[replica], replica, compute_set, True, tables, sets, rows, copy_info,
            kernel, row_first, row_cycles,
        )  # fmt: skip
        if flag >= 0:
            _store_integer(arenas[replica], n_arena_bytes, flag, flag_bytes, result)
        first_table, last_table = sets[compute_set, 0], sets[compute_set, 1]
        _load_tiles(slot, first_table, last_table, tables[2], replica == 0, counting)
        _add_tiles(slot, replica == 0, counting)
    times[slot] += 1
    cycles[step] -= compute[step]
    compute[step] = 0
    for row in range(tile_first[slot], tile_first[slot + 1]):
        chip = tile[row] // chip_tiles
        compute[step, chip] = max(compute[step, chip], last[row])
    cycles[step] += compute[step]
    counting[14][slot] += compute[step]


@njit(nogil=True, cache=True)
def advance_clock(clock, step, cycles, joins, is_active):
    """Advance the modelled clock of the chips that take part in a step."""
    if joins[step]:
        latest = clock[0]
        for chip in range(1, len(clock)):
            latest = max(latest, clock[chip])
        for chip in range(len(clock)):
            clock[chip] = latest + cycles[step, chip]
    else:
        for chip in range(len(clock)):
            if is_active[step, chip]:
                clock[chip] += cycles[step, chip]


@njit(nogil=True, cache=True)
def _replicas_agree(arenas, n_arena_bytes, address, n_bytes):
    value = _load_integer(arenas[0], n_arena_bytes, address, n_bytes)
    for arena in arenas[1:]:
        if _load_integer(arena, n_arena_bytes, address, n_bytes) != value:
            return False
    return True


@njit(nogil=True, cache=True)
def _branch_target(pc, op, code, cases, arenas, n_arena_bytes):
    """Where a branch or switch goes, or -1 if the replicas disagree."""
    address, n_bytes, target = code[pc, 1], code[pc, 2], code[pc, 3]
    if not _replicas_agree(arenas, n_arena_bytes, address, n_bytes):
        return -1
    value = _load_integer(arenas[0], n_arena_bytes, address, n_bytes)
    if op == _SWITCH:
        for case in range(code[pc, 3], code[pc, 4]):
            if cases[case, 0] == value:
                return cases[case, 1]
        return code[pc, 5]
    return target if (value == 0) == (op == _BRANCH_ZERO) else pc + 1


@njit(nogil=True, cache=True)
def _control(pc, op, a, b, c, registers, counters, call_stack):
    """The next instruction after a loop, jump, call or return; -1 if calls are too deep."""
    if op == _LOOP_BEGIN:
        counters[a] = b
        return pc + 1 if b > 0 else c
    if op == _LOOP_END:
        counters[a] -= 1
        return b if counters[a] > 0 else pc + 1
    if op == _JUMP:
        return a
    if op == _LOOP_FOREVER:
        return pc + 1 if registers[STOP] else a
    if op == _CALL:
        if registers[CALL_DEPTH] >= MAX_CALL_DEPTH:
            return -1
        call_stack[registers[CALL_DEPTH]] = pc + 1
        registers[CALL_DEPTH] += 1
        return a
    if op == _RETURN:
        if registers[CALL_DEPTH] < 1:
            return -1
        registers[CALL_DEPTH] -= 1
        return call_stack[registers[CALL_DEPTH]]
    return pc + 1


@njit(nogil=True, cache=True)
def _stamp(arena, n_arena_bytes, address, since, cycles):
    """Store a cycle counter, less an earlier one if there is one."""
    if since >= 0:
        cycles -= _load_integer(arena, n_arena_bytes, since, 8)
    _store_integer(arena, n_arena_bytes, address, 8, cycles)


@njit(nogil=True, cache=True)
def _work(
    op, a, b, c, arenas, n_arena_bytes, tables, sets, rows, copy_info, counting, clock, chip_tiles
):
    """Run a compute set, copy or stamp on every replica."""
    for replica in range(len(arenas)):
        arena = arenas[replica]
        if op == _EXECUTE:
            result = _run_compute_set(
                arena, replica, a, False, tables, sets, rows, copy_info,
                counting[1], counting[2], counting[5],
            )  # fmt: skip
            if b >= 0:
                _store_integer(arena, n_arena_bytes, b, c, result)
        elif op == _COPY:
            run_copy(arena, rows, copy_info, a)
        else:
            _stamp(arena, n_arena_bytes, a, c, clock[b // chip_tiles])


@njit(nogil=True, cache=True)
def interpret(
    registers, counters, call_stack, budget, code, step_of, cases,
    arenas, n_arena_bytes, tables, sets, rows, copy_info, counting,
    clock, executed, cycles, compute, joins, is_active, stops_at_step, chip_tiles,
):  # fmt: skip
    """Run from registers[PC] until the end, a step for Python, or `budget` steps were taken."""
    pc = registers[PC]
    while True:
        op, a, b, c = code[pc, 0], code[pc, 1], code[pc, 2], code[pc, 3]
        step = step_of[pc]
        registers[PC] = pc
        if op == _END:
            return DONE
        if step >= 0 or op == _LOOP_END or op == _LOOP_FOREVER:
            budget -= 1
            if budget < 0:
                return BUDGET_SPENT
        if step >= 0:
            if op == _HOST or stops_at_step[step]:
                return AT_STEP
            executed[step] += 1
            if counting[0][step] >= 0:
                count_step(
                    step, a, b, c, arenas, n_arena_bytes, tables, sets, rows, copy_info,
                    counting, cycles, compute, chip_tiles,
                )  # fmt: skip
                op = _JUMP  # it has run: go on behind it
                a = pc + 1
            advance_clock(clock, step, cycles, joins, is_active)
        if op == _EXECUTE or op == _COPY or op == _STAMP:
            _work(
                op, a, b, c, arenas, n_arena_bytes, tables, sets, rows, copy_info, counting, clock,
                chip_tiles,
            )  # fmt: skip
            pc += 1
        elif op == _BRANCH_ZERO or op == _BRANCH_NONZERO or op == _SWITCH:
            pc = _branch_target(pc, op, code, cases, arenas, n_arena_bytes)
            if pc < 0:
                return DIVERGED
        else:
            pc = _control(pc, op, a, b, c, registers, counters, call_stack)
            if pc < 0:
                return BAD_CALL_DEPTH
