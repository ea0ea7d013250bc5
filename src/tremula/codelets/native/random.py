"""Random numbers and rounding modes in compiled code, from the record of the worker that runs.

python/random.py defines what each function means. Imported only when a codelet needs it.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
import math

import numpy as np
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from tremula.codelets.native.types import bits_to_float, float_to_bits, nearest_half
from tremula.codelets.python import random

_U = np.uint64
_GOLDEN, _MIXERS = _U(random.GOLDEN), (_U(random.MIXERS[0]), _U(random.MIXERS[1]))
_SHIFTS = (_U(0), _U(16), _U(32), _U(48))
_N_DRAWS, _CENTRE = random.NORMAL_TERMS // 4, np.float32(random.NORMAL_CENTRE)
_MODE_WORD = random.MODE_WORD
_STOCHASTIC, _SATURATE = _U(random.STOCHASTIC), _U(random.SATURATE)
_STOCHASTIC_QUARTERS = _U(random.STOCHASTIC_QUARTERS)
_NAN_ON_OVERFLOW = _U(random.NAN_ON_OVERFLOW)
_LARGEST_HALF = np.float32(65504)
_NAN, _INFINITY = np.float32(math.nan), np.float32(math.inf)
_STEP_16, _STEP_24 = np.float32(2.0**-16), np.float32(2.0**-24)


# Words of a worker's record. `memory.load` and `store` also round halves, for which they need this
# module.


@intrinsic
def _word(typingctx, worker, index):
    def codegen(context, builder, signature, args):
        return builder.load(builder.gep(args[0], [args[1]]))

    return types.uint64(worker, types.int64), codegen


@intrinsic
def _set_word(typingctx, worker, index, value):
    def codegen(context, builder, signature, args):
        builder.store(args[2], builder.gep(args[0], [args[1]]))
        return context.get_dummy_value()

    return types.void(worker, types.int64, types.uint64), codegen


@njit(nogil=True, error_model="numpy")
def _rotated(value, n_bits):
    return (value << n_bits) | (value >> (_U(64) - n_bits))


@njit(nogil=True, error_model="numpy")
def random_uint64(worker):
    s0, s1 = _word(worker, 0), _word(worker, 1)
    mixed, both = s0 ^ s1, s0 & s1
    _set_word(worker, 0, _rotated(s0, _U(55)) ^ mixed ^ (mixed << _U(14)))
    _set_word(worker, 1, _rotated(mixed, _U(36)))
    return mixed ^ (_rotated(both, _U(1)) | _rotated(both, _U(2)))


@njit(nogil=True, error_model="numpy")
def random_uint32(worker):
    return np.int64(random_uint64(worker) >> _U(32))


@njit(nogil=True, error_model="numpy")
def random_uniform(worker):
    return np.float32(np.int64(random_uint64(worker) >> _U(40))) * _STEP_24


@njit(nogil=True, error_model="numpy")
def random_normal(worker):
    total = np.int64(0)
    for _ in range(_N_DRAWS):
        bits = random_uint64(worker)
        for shift in _SHIFTS:
            total += np.int64((bits >> shift) & _U(0xFFFF))
    return (np.float32(total) - _CENTRE) * _STEP_16


@njit(nogil=True, error_model="numpy")
def random_state(word, worker):
    return _word(worker, np.int64(word))


@njit(nogil=True, error_model="numpy")
def set_random_state(word, value, worker):
    _set_word(worker, np.int64(word), _U(value))


@njit(nogil=True, error_model="numpy")
def _mixed(value):
    value = value + _GOLDEN
    value = (value ^ (value >> _U(30))) * _MIXERS[0]
    value = (value ^ (value >> _U(27))) * _MIXERS[1]
    return value ^ (value >> _U(31))


@njit(nogil=True, error_model="numpy")
def seed_random(seed, stream, worker):
    first = _mixed(_mixed(_U(seed)) ^ _U(stream))
    _set_word(worker, 0, first)
    _set_word(worker, 1, _mixed(first + _GOLDEN))


# -- rounding to half ------------------------------------------------------------------------------


@njit(nogil=True, error_model="numpy")
def _stochastic_half(value, worker):
    """One of the two halves around a number, each with the probability of its nearness.

    In steps of the half's last digit the number has a fraction; adding a uniform number below 1
    and cutting the fraction off rounds up exactly as often as the fraction says.
    """
    bits = float_to_bits(value) & 0x7FFFFFFF
    exponent = bits >> 23
    if exponent == 255:  # infinity, NaN
        return value
    last_digit = max(exponent, 113) - 10  # halves below 2**-14 are denormal: one size of step
    draw = np.int64(random_uint64(worker) >> _U(40))
    if exponent >= 113:
        draw &= 0xFFF800  # 13 bits: as many as the fraction has, so that the sum is exact
    steps = abs(value) * bits_to_float((254 - last_digit) << 23)
    steps = np.floor(steps + np.float32(draw) * _STEP_24)
    return np.float32(math.copysign(steps * bits_to_float(last_digit << 23), value))


@njit(nogil=True, error_model="numpy")
def saturates(worker):
    """Whether a number that is too large becomes the largest there is."""
    return (_word(worker, _MODE_WORD) & _SATURATE) != 0


@njit(nogil=True, error_model="numpy")
def rounds_quarters_by_chance(worker):
    return (_word(worker, _MODE_WORD) & _STOCHASTIC_QUARTERS) != 0


@njit(nogil=True, error_model="numpy")
def round_by_mode(value, worker):
    """A float32 as the half that the worker's mode says, held in a float32."""
    mode = _word(worker, _MODE_WORD)
    is_stochastic = (mode & _STOCHASTIC) != 0
    rounded = _stochastic_half(value, worker) if is_stochastic else nearest_half(value)
    if abs(rounded) > _LARGEST_HALF and not math.isinf(value):
        limit = _INFINITY
        if mode & _NAN_ON_OVERFLOW:
            limit = _NAN
        elif mode & _SATURATE:
            limit = _LARGEST_HALF
        rounded = np.float32(math.copysign(limit, value))
    return rounded
