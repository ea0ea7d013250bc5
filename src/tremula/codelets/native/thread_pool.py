"""Threads for native code: the parts of a job on all cores, safe with threads and with `fork`.

A job is a function `int64 run(int64 argument, int64 part, int64 n_parts)` and a number of parts.
The thread that brings the job works on its parts, too, so a job ends well without any helper: a
forked process has none until it starts some. OpenMP, Numba's default, ends such a process.

The pool is a record of 64-bit words. WORD says which job this is, how many parts it has and which
part is next. A part is taken by a compare-and-swap of WORD, which fails if the job changed since
the thread looked: what the thread read about the job then belongs to the part it took.

        caller                              helpers
    fills in the job, sets WORD ──────►  see a part that is not taken (or are woken)
    takes parts                          take parts
    waits until N_DONE = n_parts  ◄────  count N_DONE up

One job runs at a time. A thread that comes while another's job runs does its own job alone.
"""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

import atexit
import ctypes
import os
import threading
from functools import cache

import numpy as np
from llvmlite import ir
from numba import njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.core.ccallback import CFunc
from numba.core.types import ExternalFunction
from numba.extending import intrinsic

from tremula.base.processes import fork_safe
from tremula.codelets.native.stored_code import callback

# Words of the record. Those that threads write at once are on different cache lines.
_WORD, _N_DONE, _IS_BUSY, _N_ASLEEP, _STOP = 0, 8, 16, 24, 25
_FUNCTION, _ARGUMENT, _N_THREADS = 32, 33, 34
_MUTEX, _CONDITION, _N_WORDS = 40, 56, 72  # 128 bytes each: more than any system needs
# WORD: 24 bits of the job's number, 20 of its number of parts, 20 of the next part.
_PART_BITS = 20
MAX_PARTS = (1 << _PART_BITS) - 1
# How often a helper looks for work, letting others run, before it sleeps: for about 50 µs.
_N_LOOKS = 200

_I64 = ir.IntType(64)
_inner = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


# -- what Numba lacks ------------------------------------------------------------------------------


def _pointer(builder: ir.IRBuilder, record: ir.Value, index: ir.Value) -> ir.Value:
    return builder.gep(builder.inttoptr(record, _I64.as_pointer()), [index])


@intrinsic
def _get(typing_context, record, index):
    """A word, read in the order that all threads see."""

    def codegen(context, builder, signature, args):
        return builder.load_atomic(_pointer(builder, *args), "seq_cst", 8)

    return types.int64(types.int64, types.int64), codegen


@intrinsic
def _set(typing_context, record, index, value):
    """Write a word, in the order that all threads see."""

    def codegen(context, builder, signature, args):
        builder.store_atomic(args[2], _pointer(builder, *args[:2]), "seq_cst", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen


@intrinsic
def _add(typing_context, record, index, value):
    """Add to a word; returns what it was."""

    def codegen(context, builder, signature, args):
        return builder.atomic_rmw("add", _pointer(builder, *args[:2]), args[2], "seq_cst")

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def _swap(typing_context, record, index, expected, value):
    """Replace a word if it still has the expected value; returns whether it had."""

    def codegen(context, builder, signature, args):
        pointer = _pointer(builder, *args[:2])
        result = builder.cmpxchg(pointer, args[2], args[3], "seq_cst")
        return builder.zext(builder.extract_value(result, 1), _I64)

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


@intrinsic
def _call(typing_context, function, argument, part, n_parts):
    """Call a function of a job, by its address."""

    def codegen(context, builder, signature, args):
        kind = ir.FunctionType(_I64, [_I64, _I64, _I64])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])

    return types.int64(types.int64, types.int64, types.int64, types.int64), codegen


_of_one = types.int32(types.intp)
_lock, _unlock, _wake_all = (
    ExternalFunction(name, _of_one)
    for name in ("pthread_mutex_lock", "pthread_mutex_unlock", "pthread_cond_broadcast")
)
_sleep = ExternalFunction("pthread_cond_wait", types.int32(types.intp, types.intp))
_let_others_run = ExternalFunction("sched_yield", types.int32())


# -- native code -----------------------------------------------------------------------------------


@_inner
def _has_part(record, helper):
    """Whether a part is left that this helper may take."""
    word = _get(record, _WORD)
    is_left = (word & MAX_PARTS) < ((word >> _PART_BITS) & MAX_PARTS)
    return is_left and helper < _get(record, _N_THREADS) - 1


@_inner
def _take_parts(record):
    """Run parts until none is left."""
    while True:
        word = _get(record, _WORD)
        part, n_parts = word & MAX_PARTS, (word >> _PART_BITS) & MAX_PARTS
        if part >= n_parts:
            return
        function, argument = _get(record, _FUNCTION), _get(record, _ARGUMENT)
        if _swap(record, _WORD, word, word + 1) != 0:
            _call(function, argument, part, n_parts)
            _add(record, _N_DONE, 1)


@_inner
def _wait_for_work(record, helper):
    """Look for a while, then sleep; returns whether there is work, rather than an end."""
    for _ in range(_N_LOOKS):
        if _has_part(record, helper) or _get(record, _STOP) != 0:
            return _get(record, _STOP) == 0
        _let_others_run()
    mutex, condition = record + 8 * _MUTEX, record + 8 * _CONDITION
    _lock(mutex)
    _add(record, _N_ASLEEP, 1)
    while not (_has_part(record, helper) or _get(record, _STOP) != 0):
        _sleep(condition, mutex)
    _add(record, _N_ASLEEP, -1)
    _unlock(mutex)
    return _get(record, _STOP) == 0


def _help(start):
    """What a helper does; `start` is the address of (record, number of the helper)."""
    record, helper = _get(start, 0), _get(start, 1)
    while _wait_for_work(record, helper):
        _take_parts(record)
    return 0


@_inner
def _run_alone(function, argument, n_parts):
    for part in range(n_parts):
        _call(function, argument, part, n_parts)


def _run(record, n_threads, function, argument, n_parts):
    """Run a job on up to `n_threads` threads, this one included."""
    is_free = n_threads > 1 and n_parts <= MAX_PARTS and _swap(record, _IS_BUSY, 0, 1) != 0
    if not is_free:
        _run_alone(function, argument, n_parts)
        return 0
    _set(record, _FUNCTION, function)
    _set(record, _ARGUMENT, argument)
    _set(record, _N_THREADS, n_threads)
    _set(record, _N_DONE, 0)
    job = (_get(record, _WORD) >> (2 * _PART_BITS)) + 1
    _set(record, _WORD, (job << (2 * _PART_BITS)) | (n_parts << _PART_BITS))
    if _get(record, _N_ASLEEP) != 0:
        mutex = record + 8 * _MUTEX
        _lock(mutex)
        _wake_all(record + 8 * _CONDITION)
        _unlock(mutex)
    _take_parts(record)
    while _get(record, _N_DONE) < n_parts:
        _let_others_run()
    _set(record, _IS_BUSY, 0)
    return 0


@cache
def run_address() -> int:
    """The address of `int64 run(pool, n_threads, function, argument, n_parts)`."""
    return _address_of(callback("int64(int64, int64, int64, int64, int64)", nogil=True)(_run))


@cache
def _help_address() -> int:
    return _address_of(callback("int64(int64)", nogil=True)(_help))


def _address_of(function: CFunc) -> int:
    assert function.address is not None, "callback compiles at once"
    return function.address


# -- the pool of this process ----------------------------------------------------------------------


class _Pool:
    """A record and its helpers."""

    def __init__(self):
        self._words = np.zeros(_N_WORDS, np.int64)
        self.address = self._words.ctypes.data
        self._system = ctypes.CDLL(None)
        self._started: list[tuple[ctypes.c_ulong, np.ndarray]] = []
        for name, word in (("pthread_mutex_init", _MUTEX), ("pthread_cond_init", _CONDITION)):
            getattr(self._system, name)(ctypes.c_void_p(self.address + 8 * word), None)

    def start(self, n_helpers: int) -> None:
        """Have at least this many helpers, as far as the system has threads for them."""
        help_address = ctypes.c_void_p(_help_address())
        for helper in range(len(self._started), n_helpers):
            start, thread = np.array([self.address, helper], np.int64), ctypes.c_ulong()
            argument = ctypes.c_void_p(start.ctypes.data)
            if self._system.pthread_create(ctypes.byref(thread), None, help_address, argument):
                return
            self._started.append((thread, start))

    def stop(self) -> None:
        """End all helpers; jobs run on their callers' threads from now on."""
        self._words[_STOP] = 1
        mutex, condition = (
            ctypes.c_void_p(self.address + 8 * word) for word in (_MUTEX, _CONDITION)
        )
        self._system.pthread_mutex_lock(mutex)
        self._system.pthread_cond_broadcast(condition)
        self._system.pthread_mutex_unlock(mutex)
        for thread, _ in self._started:
            self._system.pthread_join(thread, None)


class _Process:
    """The pool of this process, made when a job comes."""

    pool: _Pool | None = None
    of_parents: list[_Pool] = []  # noqa: RUF012 - programs that were running know their addresses
    starting = fork_safe(threading.Lock())


def pool_address(n_threads: int) -> int:
    """The address of this process's pool, with helpers for a job on `n_threads` threads."""
    with _Process.starting:
        if _Process.pool is None:
            _Process.pool = _Pool()
        _Process.pool.start(n_threads - 1)
        return _Process.pool.address


def _forget_helpers() -> None:
    """A forked process has none of its parent's threads."""
    if _Process.pool is not None:
        _Process.of_parents.append(_Process.pool)
    _Process.pool = None


def _stop_helpers() -> None:
    """Before Python unloads the code that helpers run."""
    if _Process.pool is not None:
        _Process.pool.stop()


os.register_at_fork(after_in_child=_forget_helpers)
atexit.register(_stop_helpers)


def max_threads() -> int:
    """The most threads a job may use: NUMBA_NUM_THREADS, by default the number of cores."""
    from numba import config

    return config.NUMBA_NUM_THREADS  # pyright: ignore[reportAttributeAccessIssue]


def run_parts(function: int, argument: int, n_parts: int, n_threads: int) -> None:
    """Run a job, a function by its address, from Python; returns when all parts are done."""
    _run_from_python()(pool_address(n_threads), n_threads, function, argument, n_parts)


@cache
def _run_from_python():
    return ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 5)(run_address())
