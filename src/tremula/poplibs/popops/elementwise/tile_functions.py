"""What Python's operators do not say: plain functions that element-wise codelets call on a tile.

They take numbers of the machine's types (halves arrive as float32) and are compiled into the
codelets that use them, so they have no annotations: one function serves several types.
"""

# ruff: noqa: ANN001, ANN201
# Types convert when they are called here, which pyright cannot know.
# pyright: reportOperatorIssue=false, reportArgumentType=false
import math
from collections.abc import Mapping

import numpy as np

from tremula.base.types import float32, int32, int64, uint32, uint64

ONE_THIRD = 1.0 / 3.0
SQRT_HALF = math.sqrt(0.5)
BELOW_HALF = float(np.nextafter(np.float32(0.5), np.float32(0)))


def int_divide(a, b):
    """C's division: towards zero, and 0 for a divisor of 0."""
    quotient = abs(a) // max(abs(b), 1)
    sign = (1 - 2 * int64((a < 0) != (b < 0))) * int64(b != 0)
    return quotient * sign


def int_remainder(a, b):
    """C's remainder: the sign of the dividend, and 0 for a divisor of 0."""
    sign = (1 - 2 * int64(a < 0)) * int64(b != 0)
    return abs(a) % max(abs(b), 1) * sign


def int_power(a, b):
    """Repeated multiplication; a negative power is 1 over it, rounded towards zero."""
    result, factor, left = int64(1), int64(a), int64(abs(b))
    while left > 0:
        if left & 1:
            result = result * factor
        factor = factor * factor
        left = left >> 1
    return result * int64(b >= 0 or result * result == 1)


def larger(a, b):
    """The larger; NaN if either is."""
    return a if a > b or a != a else b  # noqa: PLR0124 - only NaN differs from itself


def smaller(a, b):
    """The smaller; NaN if either is."""
    return a if a < b or a != a else b  # noqa: PLR0124


def sign_of(a):
    return int32(a > 0) - int32(a < 0)


def inverse(a):
    return float32(1) / a


def inverse_root(a):
    return float32(1) / math.sqrt(a)


def cube_root(a):
    """A power, and one step of Newton's method because a third is no float."""
    size = abs(a)
    first = size ** float32(ONE_THIRD)
    better = first - (first - size / (first * first)) * float32(ONE_THIRD)
    is_plain = size > 0 and math.isfinite(size)
    return math.copysign(better if is_plain else size, a)


def two_to(a):
    return float32(2) ** a


def logistic(a):
    return float32(1) / (float32(1) + math.exp(-a))


def gelu_by_erf(a):
    return float32(0.5) * a * (float32(1) + math.erf(a * float32(SQRT_HALF)))


def round_away(a):
    """Nearest, ties away from zero; adding the number below a half never carries too far."""
    return np.trunc(a + math.copysign(float32(BELOW_HALF), a))


def inverse_std_dev(variance, epsilon):
    return float32(1) / math.sqrt(variance + epsilon)


def variance_of(inv_std_dev, epsilon):
    return float32(1) / (inv_std_dev * inv_std_dev) - epsilon


def bit_count(a):
    """Set bits of the low 32, by adding neighbours."""
    x = uint32(a)
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return uint32(x * 0x01010101) >> 24


def leading_zeros(a):
    """Zero bits above the highest set bit of the low 32."""
    x = uint32(a)
    x = x | (x >> 1)
    x = x | (x >> 2)
    x = x | (x >> 4)
    x = x | (x >> 8)
    x = x | (x >> 16)
    return 32 - bit_count(x)


def shift_right_zeros(a, n_places, n_bits):
    """Right shift of the low n_bits that fills with zeros."""
    low = uint64(a) & (uint64(-1) >> uint64(64 - n_bits))
    return low >> uint64(n_places)


# Everything that generated source may call, by name.
HELPERS: Mapping[str, object] = {
    f.__name__: f
    for f in (
        int_divide, int_remainder, int_power, larger, smaller, sign_of, inverse, inverse_root,
        cube_root, two_to, logistic, gelu_by_erf, round_away, inverse_std_dev, variance_of,
        bit_count, leading_zeros, shift_right_zeros,
    )
} | {"math": math, "np": np, "inf": math.inf, "nan": math.nan}  # fmt: skip
