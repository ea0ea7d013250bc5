"""Casts of large arrays on the host are those of the definition."""

import numpy as np
import pytest

from tremula.base.floats import QuarterFormat, float32_to_quarter, quarter_to_float32
from tremula.column_loops.quarter_casts import N_COMPILED, decoded, encoded


@pytest.mark.slow
@pytest.mark.parametrize("quarter_format", list(QuarterFormat))
@pytest.mark.parametrize("saturates", [False, True])
def test_compiled_casts_are_the_definition(quarter_format, saturates):
    """Any bits, and numbers near every code, at scales from end to end, in both directions."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 2**32, N_COMPILED, dtype=np.uint32)
    near = quarter_to_float32(np.arange(256), quarter_format)
    middles = (near[1:] + near[:-1]) / 2
    for scale in (-32, -7, 0, 31):
        values = np.ldexp(np.concatenate([near, middles, random.normal(size=999)]), scale)
        values = np.concatenate([bits.view(np.float32), values.astype(np.float32)])
        codes = encoded(values, quarter_format, scale, saturates=saturates)
        expected = float32_to_quarter(values, quarter_format, scale, saturates=saturates)
        np.testing.assert_array_equal(codes, expected)
        values = decoded(codes, quarter_format, scale)
        np.testing.assert_array_equal(values, quarter_to_float32(codes, quarter_format, scale))


def test_halves_are_decoded_through_floats():
    """A scale beyond half's range gives infinity, as a cast from float does."""
    codes = np.arange(256, dtype=np.uint8)
    for many in (codes, np.tile(codes, N_COMPILED // 256)):
        halves = decoded(many, QuarterFormat.F143, 12, np.float16)
        assert halves.dtype == np.float16
        assert halves[0x7F] == np.inf
        assert halves[0x40] == 4096
