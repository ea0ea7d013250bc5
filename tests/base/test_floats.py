"""Small floats: half with its roundings, both 8-bit formats over all codes, the metadata byte."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tremula.base.errors import OverflowInField, TensorMetadataError
from tremula.base.floats import (
    QuarterFormat,
    float32_to_quarter,
    pack_metadata,
    quarter_table,
    quarter_to_float32,
    unpack_metadata,
)

FORMATS = list(QuarterFormat)


@pytest.mark.parametrize("quarter_format", FORMATS)
@pytest.mark.parametrize("scale", [-32, -3, 0, 5, 31])
def test_every_code_survives_the_round_trip(quarter_format, scale):
    """All 256 codes decode and encode to themselves, at every scale."""
    codes = np.arange(256, dtype=np.uint8)
    values = quarter_to_float32(codes, quarter_format, scale)
    assert np.flatnonzero(np.isnan(values)).tolist() == [0x80]
    np.testing.assert_array_equal(float32_to_quarter(values, quarter_format, scale), codes)


@pytest.mark.parametrize("quarter_format", FORMATS)
def test_encoding_is_the_nearest_code(quarter_format):
    """Encoding picks the code of least distance, even ones at ties, by brute force."""
    table = quarter_table(quarter_format)[:128].astype(np.float64)
    middles = (table[1:] + table[:-1]) / 2
    random = np.random.default_rng(0).random(500) * quarter_format.largest
    values = np.concatenate([table, middles, np.nextafter(middles, 0), random, -middles])
    values = values.astype(np.float32).astype(np.float64)
    for value in values:
        distance = np.abs(table - abs(value))
        nearest = np.flatnonzero(distance == distance.min())
        code = min(nearest, key=lambda c: c % 2)
        expected = code | 0x80 if value < 0 and code else code
        assert float32_to_quarter(np.float32(value), quarter_format) == expected, value


def test_limits_of_the_formats():
    """The largest values, overflow, NaN and the absence of a negative zero are as documented."""
    assert quarter_table(QuarterFormat.F143)[0x7F] == 240
    assert quarter_table(QuarterFormat.F152)[0x7F] == 57344
    values = np.array([np.inf, -1e30, np.nan, -0.0, -1e-30], np.float32)
    for quarter_format in FORMATS:
        codes = float32_to_quarter(values, quarter_format)
        assert list(codes) == [0x80, 0x80, 0x80, 0, 0]
        clipped = float32_to_quarter(values, quarter_format, saturates=True)
        assert list(clipped) == [0x80, 0xFF, 0x80, 0, 0]


@pytest.mark.parametrize("quarter_format", FORMATS)
def test_codes_are_those_of_the_published_formats(quarter_format):
    """Values of all codes, and codes of numbers, are those of LLVM's E4M3FNUZ and E5M2FNUZ."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    name = {"F143": "float8_e4m3fnuz", "F152": "float8_e5m2fnuz"}[quarter_format.name]
    published = getattr(ml_dtypes, name)
    codes = np.arange(256, dtype=np.uint8)
    table = codes.view(published).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 2**32, 50_000, dtype=np.uint32)
    normal = np.random.default_rng(1).normal(size=50_000).astype(np.float32)
    numbers = np.concatenate([bits.view(np.float32), normal])
    with np.errstate(all="ignore"):
        rounded = numbers.astype(published).view(np.uint8)
    for scale in range(-32, 32):
        decoded = quarter_to_float32(codes, quarter_format, scale)
        np.testing.assert_array_equal(decoded, np.ldexp(table, scale))
        np.testing.assert_array_equal(float32_to_quarter(decoded, quarter_format, scale), codes)
    np.testing.assert_array_equal(float32_to_quarter(numbers, quarter_format), rounded)


# The numbers of the published notes on both formats: value, scale, code.
KNOWN = {
    QuarterFormat.F143: [
        (0.3, 0, 0x32), (17, 0, 0x60), (19, 0, 0x62), (-2.5, 0, 0xCA), (247, 0, 0x7F),
        (248, 0, 0x80), (1e-4, 0, 0x00), (100, 3, 0x5C),
    ],
    QuarterFormat.F152: [
        (0.3, 0, 0x39), (17, 0, 0x50), (240, 0, 0x60), (61439, 0, 0x7F), (61440, 0, 0x80),
        (1e-4, 0, 0x0B),
    ],
}  # fmt: skip


@pytest.mark.parametrize("quarter_format", FORMATS)
def test_known_codes(quarter_format):
    """Overflow is judged after rounding: 247 is 240 in F143, 248 is NaN."""
    for value, scale, code in KNOWN[quarter_format]:
        assert float32_to_quarter(np.float32(value), quarter_format, scale) == code, value


@pytest.mark.parametrize("quarter_format", FORMATS)
def test_stochastic_rounding_to_8_bits_is_right_on_average(quarter_format):
    """Numbers between two codes, normal and denormal, round up as often as they are near."""
    random = np.random.default_rng(7)
    table = quarter_table(quarter_format)
    for code in (0, 1, 0x40, 0x7E):
        low, high = table[code], table[code + 1]
        values = np.full(20_000, low + np.float32(0.3) * (high - low), np.float32)
        codes = float32_to_quarter(values, quarter_format, random=random)
        assert set(np.unique(codes)) == {code, code + 1}
        assert abs((codes == code + 1).mean() - 0.3) < 0.02
    exact = table[np.r_[0:0x80, 0x81:0x100]]
    again = float32_to_quarter(exact, quarter_format, random=random)
    np.testing.assert_array_equal(quarter_to_float32(again, quarter_format), exact)


@given(st.sampled_from(FORMATS), st.integers(-32, 31))
def test_metadata_round_trip(quarter_format, scale):
    """A format and scale survive packing into one byte."""
    assert unpack_metadata(pack_metadata(quarter_format, scale)) == (quarter_format, scale)


def test_metadata_errors_say_what_is_wrong():
    """A scale out of range and a byte that is none are refused with their numbers."""
    with pytest.raises(OverflowInField, match=r"must be -32 … 31, got 32.*\n.*try"):
        pack_metadata(QuarterFormat.F143, 32)
    with pytest.raises(TensorMetadataError, match="0x40 is not a metadata byte"):
        unpack_metadata(0x40)
