"""Walks the instructions of a run again, on every chip's clock, forwards and back.

A short run is walked by these functions as they are, a long one by native code made from them:
`tiers.py` decides. So they take few arguments: five columns of int64, whose parts are named below.

A *folded* loop is one in which data decides nothing. Of its N iterations the first and the last are
walked as they ran, and the second stands for N - 2: from the second on all take the same time, for
a step that joins the chips lets them forget how they came, and without one they do not meet.
"""

import numpy as np

from tremula.compiler.program_ir import Opcode

_END, _JUMP, _CALL, _RETURN = (
    int(Opcode.END),
    int(Opcode.JUMP),
    int(Opcode.CALL),
    int(Opcode.RETURN),
)
_LOOP_BEGIN, _LOOP_END = int(Opcode.LOOP_BEGIN), int(Opcode.LOOP_END)
_BRANCH_ZERO, _BRANCH_NONZERO = int(Opcode.BRANCH_ZERO), int(Opcode.BRANCH_NONZERO)
_SWITCH, _LOOP_FOREVER = int(Opcode.SWITCH), int(Opcode.LOOP_FOREVER)

# The first words of a script: sizes, and where its columns and those of a state begin: script.py.
(
    N_CHIPS, N_STAGES, N_CODE, CODE, STEP_OF, ENTRIES, IS_PLAIN, CALL_NUMBER, FIRST_CHILD, CHILD,
    BASE, STAGE_OF_CONTEXT, IN_PIPELINE, CYCLES, IS_COUNTED, JOINS, TAKES_PART, CALLS, COUNTERS,
    CLOCKS, VISITS, FOLDS, N_STATE_WORDS, N_HEAD,
) = range(24)  # fmt: skip

# The first words of a state. Columns follow: CALLS [MOST_CALLS, 2] (return to, context), COUNTERS
# [n_slots, 2] (iterations left; all of them if folded), CLOCKS [n_chips], VISITS [n_stages],
# FOLDS [MOST_FOLDS, 1 + n_chips] (weight; clocks when it began).
(
    PC, DEPTH, CONTEXT, EVENT, LEFT, RUN, REPEATED, IS_RUNNING, WEIGHT, N_FOLDS, LAST_EVENT, ENTRY,
    N_WORDS,
) = range(13)  # fmt: skip
MOST_CALLS, MOST_FOLDS = 64, 16

# Columns of `runs`; a walk fills those from the first entry on.
(
    PROGRAM, N_STEPS, N_EVENTS, TIMES, CAN_FOLD, FIRST_ENTRY, N_ENTRIES, CYCLES_FROM, CYCLES_TO,
    N_RUN_COLUMNS,
) = range(10)  # fmt: skip

# Columns of `rows`, one row for each entry; then, if requested, start and end on each chip.
# STEP -1: a run begins. LAST: the chip that came last where chips join, else -1. COUNTED: where the
# cycles of a counted step are among the events, else -1.
STEP, PLACE, N_TIMES, LAST, COUNTED, STAGE, MICRO_BATCH, N_ROW_COLUMNS = range(8)

_FEWEST_FOLDED = 4  # iterations; fewer are walked one by one
_MANY = 1 << 62
_PATIENCE = 1 << 24  # instructions without a step: more of them mean a damaged file


def _latest(script, state):
    """The chip that is furthest; of equals, the first."""
    clocks, last = script[CLOCKS], 0
    for chip in range(1, script[N_CHIPS]):
        if state[clocks + chip] > state[clocks + last]:
            last = chip
    return last


def _fold(script, state, weight):
    """What follows stands for several iterations."""
    n_chips = script[N_CHIPS]
    at = script[FOLDS] + state[N_FOLDS] * (1 + n_chips)
    state[at] = weight
    for chip in range(n_chips):
        state[at + 1 + chip] = state[script[CLOCKS] + chip]
    state[N_FOLDS] += 1
    state[WEIGHT] *= weight


def _unfold(script, state):
    """The other iterations take as long as the one that was walked."""
    n_chips = script[N_CHIPS]
    state[N_FOLDS] -= 1
    at = script[FOLDS] + state[N_FOLDS] * (1 + n_chips)
    weight = state[at]
    state[WEIGHT] //= weight
    for chip in range(n_chips):
        clock = script[CLOCKS] + chip
        state[clock] += (weight - 1) * (state[clock] - state[at + 1 + chip])


def _begin_run(script, runs, state, folds):
    """Start the next run on all chips together; returns the chip that came last."""
    last = _latest(script, state)
    latest, run = state[script[CLOCKS] + last], state[RUN]
    for chip in range(script[N_CHIPS]):
        state[script[CLOCKS] + chip] = latest
    for stage in range(script[N_STAGES]):
        state[script[VISITS] + stage] = 0
    program = runs[run, PROGRAM]
    state[PC] = script[script[ENTRIES] + program]
    state[CONTEXT] = program
    state[DEPTH] = 0
    # What can be folded ends by itself, and folding would count its steps wrongly.
    state[LEFT] = _MANY if runs[run, CAN_FOLD] else runs[run, N_STEPS]
    state[LAST_EVENT] = state[EVENT] + runs[run, N_EVENTS]
    state[IS_RUNNING] = 1
    state[N_FOLDS] = 0
    state[WEIGHT] = 1
    if state[REPEATED] == 0:
        runs[run, FIRST_ENTRY] = state[ENTRY]
        runs[run, CYCLES_FROM] = latest
    if folds and runs[run, TIMES] > 1:
        _fold(script, state, runs[run, TIMES])
    return last


def _end_run(script, runs, state):
    run = state[RUN]
    times = runs[run, TIMES]
    state[IS_RUNNING] = 0
    state[EVENT] = state[LAST_EVENT]
    if state[N_FOLDS] and times > 1:  # equal runs, each on all chips together
        latest = state[script[CLOCKS] + _latest(script, state)]
        more = (times - 1) * (latest - state[script[FOLDS] + 1])
        for chip in range(script[N_CHIPS]):
            state[script[CLOCKS] + chip] += more
        state[REPEATED] = times - 1
    state[REPEATED] += 1
    if state[REPEATED] >= times:
        runs[run, N_ENTRIES] = state[ENTRY] - runs[run, FIRST_ENTRY]
        runs[run, CYCLES_TO] = state[script[CLOCKS] + _latest(script, state)]
        state[RUN] += 1
        state[REPEATED] = 0


def _stretched(script, state, chip, cycles):
    """A moment of a folded iteration, as if that took the time of all it stands for."""
    n_chips = script[N_CHIPS]
    for fold in range(state[N_FOLDS] - 1, -1, -1):
        at = script[FOLDS] + fold * (1 + n_chips)
        began = state[at + 1 + chip]
        cycles = began + state[at] * (cycles - began)
    return cycles


def _advance(script, state, events, rows, n):
    """Advance the clocks by the step of a row; its chip that came last, if it joins them."""
    n_chips, step, event = script[N_CHIPS], rows[n, STEP], rows[n, COUNTED]
    has_times = rows.shape[1] > N_ROW_COLUMNS
    joins, last, latest = script[script[JOINS] + step] != 0, -1, np.int64(0)
    if joins:
        last = _latest(script, state)
        latest = state[script[CLOCKS] + last]
    for chip in range(n_chips):
        clock = script[CLOCKS] + chip
        begin = latest if joins else state[clock]
        end = begin + script[script[CYCLES] + step * n_chips + chip]
        if event >= 0 and script[script[TAKES_PART] + step * n_chips + chip]:
            end += events[event + chip]
        if has_times:
            rows[n, N_ROW_COLUMNS + chip] = _stretched(script, state, chip, begin)
            rows[n, N_ROW_COLUMNS + n_chips + chip] = _stretched(script, state, chip, end)
        state[clock] = end
    rows[n, LAST] = last


def _step(script, state, events, step, rows, n):
    """Add an entry; False if what it took is not known."""
    rows[n, COUNTED] = -1
    if script[script[IS_COUNTED] + step]:
        rows[n, COUNTED] = state[EVENT]
        state[EVENT] += script[N_CHIPS]
        if state[EVENT] > state[LAST_EVENT]:
            return False
    context = state[CONTEXT]
    stage = script[script[STAGE_OF_CONTEXT] + context]
    if stage < 0 and not script[script[IN_PIPELINE] + step]:
        for number in range(script[N_STAGES]):
            state[script[VISITS] + number] = 0
    rows[n, STEP] = step
    rows[n, PLACE] = script[script[BASE] + context] + step
    rows[n, N_TIMES] = state[WEIGHT]
    rows[n, STAGE] = stage
    rows[n, MICRO_BATCH] = state[script[VISITS] + stage] - 1 if stage >= 0 else -1
    _advance(script, state, events, rows, n)
    state[LEFT] -= 1
    state[ENTRY] += 1
    return True


def _call(script, state, pc, target):
    """Enter a function; -1 if calls are nested too deeply."""
    depth, context = state[DEPTH], state[CONTEXT]
    if depth >= MOST_CALLS:
        return -1
    at = script[CALLS] + 2 * depth
    state[at] = pc + 1
    state[at + 1] = context
    state[DEPTH] = depth + 1
    number = script[script[FIRST_CHILD] + context] + script[script[CALL_NUMBER] + pc]
    child = script[script[CHILD] + number]
    state[CONTEXT] = child
    stage = script[script[STAGE_OF_CONTEXT] + child]
    if stage >= 0 and script[script[STAGE_OF_CONTEXT] + context] < 0:
        state[script[VISITS] + stage] += 1
    return target


def _loop_end(script, state, pc, slot, body):
    """The next iteration, or the end of the loop."""
    at = script[COUNTERS] + 2 * slot
    left, total = state[at] - 1, state[at + 1]
    if total and left == total - 1:
        _fold(script, state, total - 2)
    elif total and left == total - 2:
        _unfold(script, state)
        left = 1
    state[at] = left
    return body if left > 0 else pc + 1


def _control(script, runs, state, events, pc, op, folds):
    """The next instruction; -1 where nothing more is known."""
    row = script[CODE] + 6 * pc
    a, b, c = script[row + 1], script[row + 2], script[row + 3]
    if op == _JUMP:
        return a
    if op == _CALL:
        return _call(script, state, pc, a)
    if op == _RETURN:
        state[DEPTH] -= 1
        at = script[CALLS] + 2 * state[DEPTH]
        state[CONTEXT] = state[at + 1]
        return state[at]
    if op == _LOOP_BEGIN:
        can_fold = folds and script[script[IS_PLAIN] + pc] and runs[state[RUN], CAN_FOLD]
        can_fold = can_fold and b >= _FEWEST_FOLDED and state[N_FOLDS] < MOST_FOLDS
        state[script[COUNTERS] + 2 * a] = b
        state[script[COUNTERS] + 2 * a + 1] = b if can_fold else 0
        return pc + 1 if b > 0 else c
    if op == _LOOP_END:
        return _loop_end(script, state, pc, a, b)
    if op == _BRANCH_ZERO or op == _BRANCH_NONZERO or op == _SWITCH or op == _LOOP_FOREVER:
        if state[EVENT] >= state[LAST_EVENT]:
            return -1
        target = events[state[EVENT]]
        state[EVENT] += 1
        return target if 0 <= target < script[N_CODE] else -1
    return pc + 1


def walk(script, runs, events, state, folds, marks, rows, n_instructions):
    """Continue from a state until the rows are full or all runs are over: how many were filled.

    `folds`: fold loops and equal runs. `marks`: a row for the beginning of each run. It stops after
    `n_instructions` as well, in a state to continue from.
    """
    n, patience = 0, _PATIENCE
    while n < len(rows) and n_instructions > 0:
        n_instructions -= 1
        if not state[IS_RUNNING]:
            if state[RUN] >= len(runs):
                break
            last = _begin_run(script, runs, state, folds)
            if marks:
                rows[n, STEP] = -1
                rows[n, LAST] = last
                n += 1
            continue
        pc = state[PC]
        op, step = script[script[CODE] + 6 * pc], script[script[STEP_OF] + pc]
        after = np.int64(-1)
        if op != _END and not (step >= 0 and state[LEFT] <= 0):
            if step < 0:
                after = _control(script, runs, state, events, pc, op, folds)
            elif _step(script, state, events, step, rows, n):
                n += 1
                after = _control(script, runs, state, events, pc, op, folds)
        patience = patience - 1 if step < 0 else _PATIENCE
        if after < 0 or patience < 0:
            _end_run(script, runs, state)
        else:
            state[PC] = after
    return n


def walk_back(script, phases, events, rows, n, chip, of_step, of_place):
    """Add what is on the critical path, from a chip at the last of n rows back to the first.

    `of_step` is [n_steps, n_chips, 5]; `of_place` [n_places, 10]: phases on the critical path, then
    those of all chips together. Returns the chip.
    """
    n_chips = script[N_CHIPS]
    for i in range(n - 1, -1, -1):
        step, times, event = rows[i, STEP], rows[i, N_TIMES], rows[i, COUNTED]
        if step >= 0 and script[script[TAKES_PART] + step * n_chips + chip]:
            for phase in range(phases.shape[2]):
                cycles = phases[step, chip, phase]
                if phase == 0 and event >= 0:
                    cycles = events[event + chip]
                of_step[step, chip, phase] += times * cycles
                of_place[rows[i, PLACE], phase] += times * cycles
        if step >= 0:
            for other in range(n_chips):
                if not script[script[TAKES_PART] + step * n_chips + other]:
                    continue
                for phase in range(phases.shape[2]):
                    cycles = phases[step, other, phase]
                    if phase == 0 and event >= 0:
                        cycles = events[event + other]
                    of_place[rows[i, PLACE], phases.shape[2] + phase] += times * cycles
        if rows[i, LAST] >= 0:
            chip = rows[i, LAST]
    return chip


# What `walk` calls, each after those that it calls itself.
HELPERS = (
    _latest, _fold, _unfold, _begin_run, _end_run, _stretched, _advance, _step, _call, _loop_end,
    _control,
)  # fmt: skip
