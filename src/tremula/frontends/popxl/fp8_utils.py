"""8-bit floats on the host: numbers times a power of two, rounded to 4 or 5 bits of exponent."""

import numpy as np

from tremula.base.floats import QuarterFormat
from tremula.column_loops.quarter_casts import decoded, encoded
from tremula.frontends.popxl.dtypes import dtype, float8_143, float8_152, float32

FORMATS = {float8_143.name: QuarterFormat.F143, float8_152.name: QuarterFormat.F152}
MAX_LOG2_SCALE, MIN_LOG2_SCALE = 31, -32


def format_of(type_: dtype) -> QuarterFormat:
    if type_.name not in FORMATS:
        raise TypeError(
            f"{type_!r} is not an 8-bit float: use popxl.float8_143 or popxl.float8_152"
        )
    return FORMATS[type_.name]


def host_pow2scale_cast_to_fp8(
    src: np.ndarray,
    dtype: dtype = float8_143,
    log2_scale: int = 0,
    nan_on_overflow: bool = True,
) -> np.ndarray:
    """Numbers times 2^log2_scale as 8-bit floats: arrays of one-byte records."""
    _check_scale(log2_scale)
    values = np.asarray(src)
    # A factor of 2^log2_scale is the opposite of a format's scale.
    codes = encoded(values, format_of(dtype), -log2_scale, saturates=not nan_on_overflow)
    return np.asarray(codes, order="C").reshape(values.shape).view(dtype.numpy_dtype)


def host_pow2scale_cast_from_fp8(
    src: np.ndarray,
    dtype: dtype = float32,
    log2_scale: int = 0,
) -> np.ndarray:
    """8-bit floats times 2^log2_scale as ordinary numbers."""
    _check_scale(log2_scale)
    result = dtype_of_array(src)
    values = decoded(src.view(np.uint8), format_of(result), log2_scale, dtype.numpy_dtype)
    return np.asarray(values).reshape(src.shape)


def host_fp8_mse_scale(src: object, dtype: dtype = float8_143) -> tuple[float, int]:
    """(mean squared error, log2_scale) of the scale at which 8 bits lose least.

    Of all scales at which every number is in the format's range and has all of its digits, which
    lose alike, the middle one. If there is none, that at which the largest number is in range.
    """
    values = np.asarray(src)
    if values.dtype not in (np.float16, np.float32):
        raise TypeError(f"a scale is for arrays of float16 or float32, got {values.dtype}")
    scale = _middle_scale(np.abs(values.astype(np.float64)), format_of(dtype))
    codes = host_pow2scale_cast_to_fp8(values, dtype, scale, nan_on_overflow=False)
    back = host_pow2scale_cast_from_fp8(codes, float32, -scale).astype(np.float64)
    return float(np.mean((back - values) ** 2)) if values.size else 0.0, scale


def host_fp8_mse_scale_pb(src: object, dtype: dtype = float8_143) -> int:
    """The log2_scale at which 8 bits lose least."""
    return host_fp8_mse_scale(src, dtype)[1]


def _middle_scale(sizes: np.ndarray, quarter_format: QuarterFormat) -> int:
    present = sizes[(sizes > 0) & np.isfinite(sizes)]
    if not len(present):
        return 0
    high = int(np.floor(np.log2(quarter_format.largest / present.max())))
    low = int(np.ceil(np.log2(quarter_format.least_normal / present.min())))
    high, low = (max(-MAX_LOG2_SCALE, min(MAX_LOG2_SCALE, v)) for v in (high, low))
    return high - (high - low + 1) // 2 if low <= high else high


def dtype_of_array(src: np.ndarray) -> dtype:
    return dtype.as_dtype(src.dtype)


def _check_scale(log2_scale: int) -> None:
    if not MIN_LOG2_SCALE <= log2_scale < MAX_LOG2_SCALE + 1:
        raise ValueError(
            f"log2_scale must be from {MIN_LOG2_SCALE} to {MAX_LOG2_SCALE}, got {log2_scale}"
        )
