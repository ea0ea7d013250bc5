"""Casts of arrays to and from 8-bit floats on the host: compiled where there is much to cast."""

import numpy as np

from tremula.base.floats import (
    LARGEST_CODE,
    QUARTER_NAN,
    QuarterFormat,
    float32_to_quarter,
    quarter_to_float32,
)

# From this many elements on compiled loops are worth importing Numba for.
N_COMPILED = 1 << 16


def encoded(
    values: np.ndarray, quarter_format: QuarterFormat, scale: int = 0, *, saturates: bool = False
) -> np.ndarray:
    """uint8 codes of values / 2**scale, as `base.floats.float32_to_quarter` defines them."""
    values = np.asarray(values, np.float32)
    if values.size < N_COMPILED:
        return float32_to_quarter(values, quarter_format, scale, saturates=saturates)
    from tremula.codelets.native import host_casts  # imports Numba

    codes = np.empty(values.shape, np.uint8)
    overflow = LARGEST_CODE if saturates else QUARTER_NAN
    host_casts.encode(
        np.ascontiguousarray(values).reshape(-1), codes.reshape(-1), quarter_format.n_mantissa_bits,
        quarter_format.bias, np.float32(2.0**-scale), overflow,
    )  # fmt: skip
    return codes


def decoded(
    codes: np.ndarray,
    quarter_format: QuarterFormat,
    scale: int = 0,
    dtype: np.dtype | type = np.float32,
) -> np.ndarray:
    """Values of codes times 2**scale, as float32 or float16."""
    with np.errstate(over="ignore"):
        table = quarter_to_float32(np.arange(256), quarter_format, scale).astype(dtype)
    codes = np.asarray(codes, np.uint8)
    if codes.size < N_COMPILED:
        return table[codes]
    from tremula.codelets.native import host_casts  # imports Numba

    values = np.empty(codes.shape, table.dtype)
    as_bits = np.dtype(f"u{table.itemsize}")  # halves are moved as their bits
    host_casts.decode(
        np.ascontiguousarray(codes).reshape(-1),
        table.view(as_bits),
        values.reshape(-1).view(as_bits),
    )
    return values
