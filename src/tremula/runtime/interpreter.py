"""The native interpreter: runs the instruction table without Python until a step needs it."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

import numpy as np
from llvmlite import ir
from numba import carray, njit, prange, types  # pyright: ignore[reportPrivateImportUsage]
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

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
def pointer_to(typing_context, address):
    """An integer address as a void pointer."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), codegen


@njit(parallel=True, nogil=True, cache=True)
def _run_chunks(kernel, arena, columns, bounds, first, n_chunks):
    """Run a large table in chunks, one per thread."""
    result = np.ones(n_chunks, np.int64)
    for chunk in prange(n_chunks):
        result[chunk] = call_kernel(
            kernel, arena, columns, bounds[first + chunk], bounds[first + chunk + 1]
        )
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
def run_compute_set(arena, replica, compute_set, tables, sets, rows, copy_info):
    """Gather, run the kernels, scatter. Returns the AND of what the vertices returned.

    sets[cs] = first table, last table, first gather, last gather, first scatter, last scatter.
    """
    kernel, columns, n_rows, chunk_first, n_chunks, bounds = tables
    for copy in range(sets[compute_set, 2], sets[compute_set, 3]):
        run_copy(arena, rows, copy_info, copy)
    result = np.int64(1)
    for table in range(sets[compute_set, 0], sets[compute_set, 1]):
        if n_chunks[table] > 1:
            result &= _run_chunks(
                kernel[table],
                arena,
                columns[replica, table],
                bounds,
                chunk_first[table],
                n_chunks[table],
            )
        else:
            result &= call_kernel(kernel[table], arena, columns[replica, table], 0, n_rows[table])
    for copy in range(sets[compute_set, 4], sets[compute_set, 5]):
        run_copy(arena, rows, copy_info, copy)
    return result


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
def _work(op, a, b, c, arenas, n_arena_bytes, tables, sets, rows, copy_info, clock, chip_tiles):
    """Run a compute set, copy or stamp on every replica."""
    for replica in range(len(arenas)):
        arena = arenas[replica]
        if op == _EXECUTE:
            result = run_compute_set(arena, replica, a, tables, sets, rows, copy_info)
            if b >= 0:
                _store_integer(arena, n_arena_bytes, b, c, result)
        elif op == _COPY:
            run_copy(arena, rows, copy_info, a)
        else:
            _stamp(arena, n_arena_bytes, a, c, clock[b // chip_tiles])


@njit(nogil=True, cache=True)
def interpret(
    registers, counters, call_stack, budget, code, step_of, cases,
    arenas, n_arena_bytes, tables, sets, rows, copy_info,
    clock, executed, cycles, joins, is_active, stops_at_step, chip_tiles,
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
            advance_clock(clock, step, cycles, joins, is_active)
        if op == _EXECUTE or op == _COPY or op == _STAMP:
            _work(
                op, a, b, c, arenas, n_arena_bytes, tables, sets, rows, copy_info, clock, chip_tiles
            )
            pc += 1
        elif op == _BRANCH_ZERO or op == _BRANCH_NONZERO or op == _SWITCH:
            pc = _branch_target(pc, op, code, cases, arenas, n_arena_bytes)
            if pc < 0:
                return DIVERGED
        else:
            pc = _control(pc, op, a, b, c, registers, counters, call_stack)
            if pc < 0:
                return BAD_CALL_DEPTH
