"""Bounds of variables made as tight as a set of constraints allows, compiled.

Variables are unsigned 64-bit intervals in two columns. A constraint is a row of three columns: its
kind, and where its variables begin in one list. Arithmetic that would leave 64 bits stays at the
largest number, so bounds only ever become too wide, never wrong.
"""

from enum import IntEnum

import numpy as np

from tremula.codelets.native.stored_code import jit

U = np.uint64
LARGEST = U(2**64 - 1)
ZERO, ONE = U(0), U(1)


class ConstraintKind(IntEnum):
    """What a constraint says; r is its first variable, then a, b or a list."""

    SUM = 0  # r = a + b + …
    PRODUCT = 1  # r = a * b
    MAX = 2  # r = max(a, b, …)
    MIN = 3
    FLOORDIV = 4  # r = a // b, b > 0
    CEILDIV = 5
    LESS_OR_EQUAL = 6  # a <= b
    LESS = 7
    EQUAL = 8
    FACTOR_OF = 9  # b divides a
    REIFIED_LESS_OR_EQUAL = 10  # r = (a <= b)
    REIFIED_LESS = 11
    REIFIED_EQUAL = 12
    OR = 13  # r = any of them is not 0
    AND = 14
    NOT = 15
    CALL = 16  # Python decides, once all but r are known


SUM, PRODUCT, MAX, MIN = (
    int(k)
    for k in (ConstraintKind.SUM, ConstraintKind.PRODUCT, ConstraintKind.MAX, ConstraintKind.MIN)
)
FLOORDIV, CEILDIV = int(ConstraintKind.FLOORDIV), int(ConstraintKind.CEILDIV)
LESS_OR_EQUAL, LESS, EQUAL = (
    int(ConstraintKind.LESS_OR_EQUAL),
    int(ConstraintKind.LESS),
    int(ConstraintKind.EQUAL),
)
FACTOR_OF, OR, AND, NOT = (
    int(ConstraintKind.FACTOR_OF),
    int(ConstraintKind.OR),
    int(ConstraintKind.AND),
    int(ConstraintKind.NOT),
)
REIFIED_LE, REIFIED_LT = int(ConstraintKind.REIFIED_LESS_OR_EQUAL), int(ConstraintKind.REIFIED_LESS)
REIFIED_EQ, CALL = int(ConstraintKind.REIFIED_EQUAL), int(ConstraintKind.CALL)

_jit = jit()


@_jit
def _plus(a, b):
    return LARGEST if a > LARGEST - b else a + b


@_jit
def _minus(a, b):
    return ZERO if b > a else a - b


@_jit
def _times(a, b):
    if a == ZERO or b == ZERO:
        return ZERO
    return LARGEST if a > LARGEST // b else a * b


@_jit
def _ceil(a, b):
    return ZERO if a == ZERO else (a - ONE) // b + ONE


@_jit
def _at_least(low, high, v, bound, state):
    """Raise a lower bound; state[0] counts changes, state[1] is 1 once a domain is empty."""
    if bound > low[v]:
        low[v] = bound
        state[0] += 1
        if bound > high[v]:
            state[1] = 1


@_jit
def _at_most(low, high, v, bound, state):
    if bound < high[v]:
        high[v] = bound
        state[0] += 1
        if bound < low[v]:
            state[1] = 1


@_jit
def _sum(low, high, vs, state):
    r, least, most = vs[0], ZERO, ZERO
    for v in vs[1:]:
        least, most = _plus(least, low[v]), _plus(most, high[v])
    _at_least(low, high, r, least, state)
    _at_most(low, high, r, most, state)
    for i in range(1, len(vs)):
        other_least, other_most = ZERO, ZERO
        for j in range(1, len(vs)):
            if j != i:
                other_least = _plus(other_least, low[vs[j]])
                other_most = _plus(other_most, high[vs[j]])
        if other_least > high[r]:
            state[1] = 1
            return
        _at_most(low, high, vs[i], high[r] - other_least, state)
        if other_most != LARGEST:
            _at_least(low, high, vs[i], _minus(low[r], other_most), state)


@_jit
def _product(low, high, vs, state):
    r = vs[0]
    _at_least(low, high, r, _times(low[vs[1]], low[vs[2]]), state)
    _at_most(low, high, r, _times(high[vs[1]], high[vs[2]]), state)
    for i in range(1, 3):
        a, b = vs[i], vs[3 - i]
        if low[b] > ZERO:
            _at_most(low, high, a, high[r] // low[b], state)
        if high[b] > ZERO:
            _at_least(low, high, a, _ceil(low[r], high[b]), state)


@_jit
def _extreme(low, high, vs, is_max, state):
    r = vs[0]
    best_low, best_high = low[vs[1]], high[vs[1]]
    for v in vs[2:]:
        if is_max:
            best_low, best_high = max(best_low, low[v]), max(best_high, high[v])
        else:
            best_low, best_high = min(best_low, low[v]), min(best_high, high[v])
    _at_least(low, high, r, best_low, state)
    _at_most(low, high, r, best_high, state)
    n_able, able = 0, vs[1]
    for v in vs[1:]:
        if is_max:
            _at_most(low, high, v, high[r], state)
            can = high[v] >= low[r]
        else:
            _at_least(low, high, v, low[r], state)
            can = low[v] <= high[r]
        if can:
            n_able, able = n_able + 1, v
    if n_able == 0:
        state[1] = 1
    elif n_able == 1 and is_max:
        _at_least(low, high, able, low[r], state)
    elif n_able == 1:
        _at_most(low, high, able, high[r], state)


@_jit
def _floordiv(low, high, vs, state):
    r, a, b = vs[0], vs[1], vs[2]
    _at_least(low, high, b, ONE, state)
    if state[1]:
        return
    _at_least(low, high, r, low[a] // high[b], state)
    _at_most(low, high, r, high[a] // low[b], state)
    _at_least(low, high, a, _times(low[r], low[b]), state)
    end = _times(_plus(high[r], ONE), high[b])
    if end != LARGEST:
        _at_most(low, high, a, end - ONE, state)
    if low[r] > ZERO:
        _at_most(low, high, b, high[a] // low[r], state)
    if high[r] != LARGEST:
        _at_least(low, high, b, _plus(low[a] // (high[r] + ONE), ONE), state)


@_jit
def _ceildiv(low, high, vs, state):
    r, a, b = vs[0], vs[1], vs[2]
    _at_least(low, high, b, ONE, state)
    if state[1]:
        return
    _at_least(low, high, r, _ceil(low[a], high[b]), state)
    _at_most(low, high, r, _ceil(high[a], low[b]), state)
    _at_most(low, high, a, _times(high[r], high[b]), state)
    if low[r] > ZERO:
        _at_least(low, high, a, _plus(_times(low[r] - ONE, low[b]), ONE), state)
    if high[r] > ZERO:
        _at_least(low, high, b, _ceil(low[a], high[r]), state)
    if low[r] > ONE:
        _at_most(low, high, b, _minus(high[a], ONE) // (low[r] - ONE), state)


@_jit
def _less(low, high, a, b, gap, state):
    """Demand a + gap <= b."""
    if high[b] < gap:
        state[1] = 1
        return
    _at_most(low, high, a, high[b] - gap, state)
    _at_least(low, high, b, _plus(low[a], gap), state)


@_jit
def _equal(low, high, a, b, state):
    _at_least(low, high, a, low[b], state)
    _at_most(low, high, a, high[b], state)
    _at_least(low, high, b, low[a], state)
    _at_most(low, high, b, high[a], state)


@_jit
def _differ(low, high, a, b, state):
    """A value that one has for certain is not at the edge of the other."""
    if low[a] == high[a] == low[b] == high[b]:
        state[1] = 1
    elif low[a] == high[a]:
        if low[b] == low[a]:
            _at_least(low, high, b, _plus(low[b], ONE), state)
        elif high[b] == low[a]:
            _at_most(low, high, b, _minus(high[b], ONE), state)


@_jit
def _divisor_from(whole, first):
    """The least divisor of a number from `first` on; there is one, the number itself."""
    if whole // first < first:  # few quotients: try those
        quotient = whole // first
        while whole % quotient != ZERO:
            quotient -= ONE
        return whole // quotient
    while whole % first != ZERO:
        first += ONE
    return first


@_jit
def _factor_of(low, high, vs, state):
    a, b = vs[0], vs[1]
    _at_least(low, high, b, ONE, state)
    if low[a] != high[a] or low[a] == ZERO or state[1]:
        return
    whole = low[a]
    _at_most(low, high, b, whole, state)
    if state[1]:
        return
    _at_least(low, high, b, _divisor_from(whole, low[b]), state)
    # The largest divisor up to a bound is the counterpart of the least one from another.
    _at_most(low, high, b, whole // _divisor_from(whole, _ceil(whole, high[b])), state)


@_jit
def _boolean(low, high, r, state):
    _at_most(low, high, r, ONE, state)


@_jit
def _reified_order(low, high, vs, gap, state):
    """Whether a + gap <= b."""
    r, a, b = vs[0], vs[1], vs[2]
    _boolean(low, high, r, state)
    if high[a] <= _minus(low[b], gap) and low[b] >= gap:
        _at_least(low, high, r, ONE, state)
    elif high[b] < gap or low[a] > high[b] - gap:
        _at_most(low, high, r, ZERO, state)
    if state[1]:
        return
    if low[r] == ONE:
        _less(low, high, a, b, gap, state)
    elif high[r] == ZERO:
        _less(low, high, b, a, ONE - gap, state)


@_jit
def _reified_equal(low, high, vs, state):
    r, a, b = vs[0], vs[1], vs[2]
    _boolean(low, high, r, state)
    if low[a] > high[b] or low[b] > high[a]:
        _at_most(low, high, r, ZERO, state)
    elif low[a] == high[a] == low[b] == high[b]:
        _at_least(low, high, r, ONE, state)
    if state[1]:
        return
    if low[r] == ONE:
        _equal(low, high, a, b, state)
    elif high[r] == ZERO:
        _differ(low, high, a, b, state)
        _differ(low, high, b, a, state)


@_jit
def _any(low, high, vs, wants_all, state):
    """Whether any of them, or all of them, are not 0."""
    r = vs[0]
    _boolean(low, high, r, state)
    n_true, n_false, n_open, last = 0, 0, 0, vs[0]
    for v in vs[1:]:
        if low[v] > ZERO:
            n_true += 1
        elif high[v] == ZERO:
            n_false += 1
        else:
            n_open, last = n_open + 1, v
    n = len(vs) - 1
    is_true = n_true == n if wants_all else n_true > 0
    is_false = n_false > 0 if wants_all else n_false == n
    if is_true:
        _at_least(low, high, r, ONE, state)
    elif is_false:
        _at_most(low, high, r, ZERO, state)
    if state[1] or is_true or is_false:
        return
    if wants_all and low[r] == ONE:
        for v in vs[1:]:
            _at_least(low, high, v, ONE, state)
    elif not wants_all and high[r] == ZERO:
        for v in vs[1:]:
            _at_most(low, high, v, ZERO, state)
    elif n_open == 1 and wants_all and high[r] == ZERO:
        _at_most(low, high, last, ZERO, state)
    elif n_open == 1 and not wants_all and low[r] == ONE:
        _at_least(low, high, last, ONE, state)


@_jit
def _not(low, high, vs, state):
    r, a = vs[0], vs[1]
    _boolean(low, high, r, state)
    if low[a] > ZERO:
        _at_most(low, high, r, ZERO, state)
    elif high[a] == ZERO:
        _at_least(low, high, r, ONE, state)
    if low[r] == ONE:
        _at_most(low, high, a, ZERO, state)
    elif high[r] == ZERO:
        _at_least(low, high, a, ONE, state)


@_jit
def _apply(kind, low, high, vs, state):
    if kind == SUM:
        _sum(low, high, vs, state)
    elif kind == PRODUCT:
        _product(low, high, vs, state)
    elif kind in (MAX, MIN):
        _extreme(low, high, vs, kind == MAX, state)
    elif kind == FLOORDIV:
        _floordiv(low, high, vs, state)
    elif kind == CEILDIV:
        _ceildiv(low, high, vs, state)
    elif kind == LESS_OR_EQUAL:
        _less(low, high, vs[0], vs[1], ZERO, state)
    elif kind == LESS:
        _less(low, high, vs[0], vs[1], ONE, state)
    elif kind == EQUAL:
        _equal(low, high, vs[0], vs[1], state)
    elif kind == FACTOR_OF:
        _factor_of(low, high, vs, state)
    elif kind == REIFIED_LE:
        _reified_order(low, high, vs, ZERO, state)
    elif kind == REIFIED_LT:
        _reified_order(low, high, vs, ONE, state)
    elif kind == REIFIED_EQ:
        _reified_equal(low, high, vs, state)
    elif kind in (OR, AND):
        _any(low, high, vs, kind == AND, state)
    elif kind == NOT:
        _not(low, high, vs, state)


@_jit
def propagate(low, high, kinds, starts, members, watch_starts, watchers, queue, waiting, n_queued):
    """Apply constraints, first in first out, until nothing changes.

    `queue` is a ring that holds the numbers of constraints, `waiting` says which are in it. Gives
    the number of constraints applied, or -1 minus it if a domain became empty.
    """
    state = np.zeros(2, np.int64)
    before_low, before_high = np.empty(len(low), np.uint64), np.empty(len(low), np.uint64)
    head, n_applied, size = 0, 0, len(queue)
    while n_queued > 0:
        c = queue[head]
        head, n_queued = (head + 1) % size, n_queued - 1
        waiting[c] = False
        vs = members[starts[c] : starts[c + 1]]
        for v in vs:
            before_low[v], before_high[v] = low[v], high[v]
        _apply(kinds[c], low, high, vs, state)
        n_applied += 1
        if state[1]:
            waiting[:] = False
            return -1 - n_applied
        for v in vs:
            if before_low[v] == low[v] and before_high[v] == high[v]:
                continue
            for w in watchers[watch_starts[v] : watch_starts[v + 1]]:
                if not waiting[w]:
                    queue[(head + n_queued) % size] = w
                    n_queued += 1
                    waiting[w] = True
    return n_applied
