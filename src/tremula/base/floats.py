"""8-bit floats in NumPy: the two formats, and their metadata byte.

8-bit floats have no infinity and no negative zero; the code 0x80 is their only NaN. F143 has 4
exponent and 3 mantissa bits (bias 8, largest 240), F152 has 5 and 2 (bias 16, largest 57344). A
value is `code's value * 2**scale`. The metadata byte has the format in bit 7 (1: F143, 0: F152) and
the scale, -32 … 31, as a two's complement number in its low 6 bits; bit 6 is zero.
"""

from enum import Enum
from functools import cache

import numpy as np

from tremula.base.errors import OverflowInField, TensorMetadataError

N_SCALE_BITS = 6
MIN_SCALE, MAX_SCALE = -32, 31
FORMAT_BIT = 0x80
QUARTER_NAN = 0x80
LARGEST_CODE = 0x7F  # and 0xFF, the most negative


class QuarterFormat(Enum):
    """The two 8-bit formats: sign, exponent and mantissa bits in the name."""

    F143 = "F143"
    F152 = "F152"

    @property
    def n_mantissa_bits(self) -> int:
        return 3 if self is QuarterFormat.F143 else 2

    @property
    def bias(self) -> int:
        return 8 if self is QuarterFormat.F143 else 16

    @property
    def largest(self) -> float:
        return 240.0 if self is QuarterFormat.F143 else 57344.0

    @property
    def least_normal(self) -> float:
        """Smaller numbers have fewer digits."""
        return 2.0 ** (1 - self.bias)


def pack_metadata(quarter_format: QuarterFormat, scale: int) -> int:
    """The metadata byte of a format and scale."""
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise OverflowInField(
            f"the scale of an 8-bit float must be {MIN_SCALE} … {MAX_SCALE}, got {scale}.",
            hint="scale the data itself, or choose format F152 for its wider range",
        )
    format_bit = FORMAT_BIT if quarter_format is QuarterFormat.F143 else 0
    return format_bit | (scale & (2**N_SCALE_BITS - 1))


def unpack_metadata(byte: int) -> tuple[QuarterFormat, int]:
    """The format and scale of a metadata byte."""
    if not 0 <= byte <= 0xFF or byte & 0x40:
        raise TensorMetadataError(
            f"{byte:#x} is not a metadata byte: bit 6 must be zero and it must fit 8 bits.",
            hint="make it with pack_metadata(format, scale)",
        )
    low = byte & (2**N_SCALE_BITS - 1)
    scale = low - 2**N_SCALE_BITS if low > MAX_SCALE else low
    return (QuarterFormat.F143 if byte & FORMAT_BIT else QuarterFormat.F152), scale


@cache
def quarter_table(quarter_format: QuarterFormat) -> np.ndarray:
    """float32[256]: the value of every code at scale 0."""
    codes = np.arange(256)
    n_bits = quarter_format.n_mantissa_bits
    exponent = (codes & 0x7F) >> n_bits
    mantissa = codes & (2**n_bits - 1)
    significand = np.where(exponent == 0, mantissa, mantissa + 2**n_bits)
    power = np.maximum(exponent, 1) - quarter_format.bias - n_bits
    table = np.ldexp(np.where(codes >= 0x80, -1.0, 1.0) * significand, power).astype(np.float32)
    table[QUARTER_NAN] = np.nan
    table.flags.writeable = False
    return table


def quarter_to_float32(
    codes: np.ndarray, quarter_format: QuarterFormat, scale: int = 0
) -> np.ndarray:
    """float32 values of 8-bit codes: table value times 2**scale."""
    table = np.ldexp(quarter_table(quarter_format), scale)
    return table[np.asarray(codes, dtype=np.uint8)]


def float32_to_quarter(
    values: np.ndarray,
    quarter_format: QuarterFormat,
    scale: int = 0,
    *,
    saturates: bool = False,
    random: np.random.Generator | None = None,
) -> np.ndarray:
    """uint8 codes of values / 2**scale: the nearest, ties to even; `random` rounds by chance.

    What rounds to more than the largest number is NaN, or that number if the format `saturates`.
    Infinity and NaN are NaN either way.
    """
    values = np.asarray(values, dtype=np.float32)
    is_finite = np.isfinite(values)
    size = np.ldexp(np.where(is_finite, np.abs(values), 0).astype(np.float64), -scale)
    n_bits, bias = quarter_format.n_mantissa_bits, quarter_format.bias
    exponent = np.where(size == 0, 1 - bias, np.maximum(np.frexp(size)[1] - 1, 1 - bias))
    steps = np.ldexp(size, n_bits - exponent)
    rounded = np.rint(steps) if random is None else np.floor(steps + random.random(steps.shape))
    # A step count of 2**(n+1) carries into the exponent by itself.
    code = ((exponent + bias - 1) << n_bits) + rounded.astype(np.int64)
    code = np.minimum(code, LARGEST_CODE if saturates else LARGEST_CODE + 1)
    signed = np.where(code == 0, 0, code | np.where(np.signbit(values), 0x80, 0))
    return np.where(is_finite & (code <= LARGEST_CODE), signed, QUARTER_NAN).astype(np.uint8)
