"""The loop over instructions: `interpret`."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from tremula.codelets.native.stored_code import jit
from tremula.compiler.program_ir import Opcode
from tremula.runtime.interpreter import record
from tremula.runtime.interpreter.compute_sets import load_integer, run_compute_set, store_integer
from tremula.runtime.interpreter.copies import run_copy
from tremula.runtime.interpreter.instructions import call_late, inner, load_8, read, write

_END = int(Opcode.END)
_EXECUTE = int(Opcode.EXECUTE)
_COPY = int(Opcode.COPY)
_JUMP = int(Opcode.JUMP)
_LOOP_BEGIN, _LOOP_END = int(Opcode.LOOP_BEGIN), int(Opcode.LOOP_END)
_BRANCH_ZERO, _BRANCH_NONZERO = int(Opcode.BRANCH_ZERO), int(Opcode.BRANCH_NONZERO)
_SWITCH = int(Opcode.SWITCH)
_CALL = int(Opcode.CALL)
_RETURN = int(Opcode.RETURN)
_STAMP = int(Opcode.STAMP)
_HOST, _LOOP_FOREVER = int(Opcode.HOST), int(Opcode.LOOP_FOREVER)


@inner
def _advance_clock(machine, step):
    """Advance the modelled clock of the chips that take part in a step."""
    clock, n_chips = read(machine, record.CLOCK), read(machine, record.N_CHIPS)
    cycles = read(machine, record.CYCLES)
    is_active = read(machine, record.IS_ACTIVE) + step * n_chips
    cycles += 8 * step * n_chips
    if load_8(read(machine, record.JOINS), step) != 0:
        latest = read(clock, 0)
        for chip in range(1, n_chips):
            if read(clock, chip) > latest:
                latest = read(clock, chip)
        for chip in range(n_chips):
            write(clock, chip, latest + read(cycles, chip))
    else:
        for chip in range(n_chips):
            if load_8(is_active, chip) != 0:
                write(clock, chip, read(clock, chip) + read(cycles, chip))


@inner
def _branch_target(machine, pc, op, row):
    """Where a branch or switch goes, or -1 if the replicas disagree."""
    arenas, place, n_bytes = read(machine, record.ARENAS), read(row, 1), read(row, 2)
    value = load_integer(read(arenas, 0) + place, n_bytes)
    for replica in range(1, read(machine, record.N_REPLICAS)):
        if load_integer(read(arenas, replica) + place, n_bytes) != value:
            return -1
    if op == _SWITCH:
        cases = read(machine, record.CASES)
        for case in range(read(row, 3), read(row, 4)):
            if read(cases, 2 * case) == value:
                return read(cases, 2 * case + 1)
        return read(row, 5)
    return read(row, 3) if (value == 0) == (op == _BRANCH_ZERO) else pc + 1


@inner
def _log(machine, value):
    """Record one event, if there is a log with room for it."""
    end = read(machine, record.LOG_AT)
    if end < read(machine, record.LOG_SIZE):
        write(read(machine, record.LOG), end, value)
        write(machine, record.LOG_AT, end + 1)


@inner
def _log_counted(machine, step):
    """Record what a counted step took on each chip."""
    n_chips = read(machine, record.N_CHIPS)
    for chip in range(n_chips):
        _log(machine, read(read(machine, record.COMPUTE), step * n_chips + chip))


@inner
def _is_log_full(machine):
    room = read(machine, record.LOG_SIZE) - read(machine, record.LOG_AT)
    return read(machine, record.LOG_SIZE) > 0 and room < read(machine, record.N_CHIPS)


@inner
def _control(machine, pc, op, row):
    """The next instruction after a loop, jump, call or return; -1 if calls are too deep."""
    a, b, c = read(row, 1), read(row, 2), read(row, 3)
    registers, counters = read(machine, record.REGISTERS), read(machine, record.COUNTERS)
    call_stack, depth = read(machine, record.CALL_STACK), read(registers, record.CALL_DEPTH)
    if op == _LOOP_BEGIN:
        write(counters, a, b)
        return pc + 1 if b > 0 else c
    if op == _LOOP_END:
        write(counters, a, read(counters, a) - 1)
        return b if read(counters, a) > 0 else pc + 1
    if op == _JUMP:
        return a
    if op == _LOOP_FOREVER:
        return pc + 1 if read(registers, record.STOP) != 0 else a
    if op == _CALL:
        if depth >= record.MAX_CALL_DEPTH:
            return -1
        write(call_stack, depth, pc + 1)
        write(registers, record.CALL_DEPTH, depth + 1)
        return a
    if op == _RETURN:
        if depth < 1:
            return -1
        write(registers, record.CALL_DEPTH, depth - 1)
        return read(call_stack, depth - 1)
    return pc + 1


@inner
def _stamp(machine, arena, address, tile, since):
    """Store a chip's cycle counter, less an earlier one if there is one."""
    cycles = read(read(machine, record.CLOCK), tile // read(machine, record.CHIP_TILES))
    if since >= 0:
        cycles -= read(arena + since, 0)
    write(arena + address, 0, cycles)


@inner
def _work(machine, op, row):
    """Run a compute set, copy or stamp on every replica."""
    a, b, c = read(row, 1), read(row, 2), read(row, 3)
    for replica in range(read(machine, record.N_REPLICAS)):
        arena = read(read(machine, record.ARENAS), replica)
        if op == _EXECUTE:
            result = run_compute_set(machine, arena, replica, a, False)
            if b >= 0:
                store_integer(arena + b, c, result)
        elif op == _COPY:
            run_copy(machine, arena, a)
        else:
            _stamp(machine, arena, a, b, c)


@jit("int64(int64, int64)", nogil=True, error_model="numpy", no_cfunc_wrapper=True)
def interpret(machine, budget):
    """Run from registers[PC] until the end, a step for Python, or `budget` steps were taken."""
    registers, stops = read(machine, record.REGISTERS), read(machine, record.STOPS)
    executed, step_of = read(machine, record.EXECUTED), read(machine, record.STEP_OF)
    pc = read(registers, record.PC)
    while True:
        row = read(machine, record.CODE) + 8 * pc * read(machine, record.CODE_WORDS)
        op, step = read(row, 0), read(step_of, pc)
        write(registers, record.PC, pc)
        if op == _END:
            return record.DONE
        if _is_log_full(machine):
            return record.LOG_FULL
        if step >= 0 or op == _LOOP_END or op == _LOOP_FOREVER:
            budget -= 1
            if budget < 0:
                return record.BUDGET_SPENT
        if step >= 0:
            if op == _HOST or load_8(stops, step) != 0:
                return record.AT_STEP
            write(executed, step, read(executed, step) + 1)
            is_counted = read(read(machine, record.SLOT_OF_STEP), step) >= 0
            if is_counted:
                call_late(read(machine, record.COUNT_STEP), machine, pc)
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
                return record.DIVERGED
            _log(machine, pc)
        else:
            pc = _control(machine, pc, op, row)
            if pc < 0:
                return record.BAD_CALL_DEPTH
            if op == _LOOP_FOREVER:
                _log(machine, pc)
