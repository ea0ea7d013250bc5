"""8-bit floats in C++ mean what their metadata byte says, in both formats."""

import numpy as np
import pytest

from tremula.codelets.cpp import load_cpp_codelets


def _decode(code: int, n_mantissa_bits: int, bias: int, scale: int) -> float:
    """The value of a code, written down from the format's definition."""
    if code == 0x80:
        return np.nan
    exponent = (code & 0x7F) >> n_mantissa_bits
    fraction = (code & (2**n_mantissa_bits - 1)) / 2**n_mantissa_bits
    magnitude = (
        fraction * 2.0 ** (1 - bias) if exponent == 0 else (1 + fraction) * 2.0 ** (exponent - bias)
    )
    return (-1 if code & 0x80 else 1) * magnitude * 2.0**scale


SHAPES = {0x80: (3, 8, 0), 0xBF: (3, 8, -1), 0x82: (3, 8, 2), 0x00: (2, 16, 0), 0x3E: (2, 16, -2)}


@pytest.mark.parametrize("metadata", SHAPES)
def test_every_code_reads_and_writes_back(codelets, call, metadata):
    """All 256 codes read as half × 2**scale, and written again give the same code."""
    codes = np.arange(256)
    row = {"a": codes, "b": 0 * codes, "values": 0 * codes, "total": 0, "bits": 0 * codes}
    done = call(codelets["Eighths"], [row], {"a": metadata, "b": metadata, "total": metadata})
    expected = np.array([_decode(code, *SHAPES[metadata]) for code in codes])
    np.testing.assert_array_equal(done.fields["values"][0], expected.astype(np.float16))
    is_exact = np.isnan(expected) | (expected.astype(np.float16) == expected)
    np.testing.assert_array_equal(done.fields["bits"][0][is_exact], codes[is_exact])
    np.testing.assert_array_equal(done.fields["b"][0], codes)
    assert done.all_true == (metadata >= 0x80)


def test_writes_round_to_even_and_overflow_is_nan(codelets, call):
    """Between formats values round to the nearest, ties to even; what is too large is NaN."""
    wide = {c: _decode(c, 3, 8, 2) for c in range(256) if c != 0x80}
    codes = np.array(sorted(wide))
    row = {"a": codes, "b": 0 * codes, "values": 0 * codes, "total": 0, "bits": 0 * codes}
    done = call(codelets["Eighths"], [row], {"a": 0x82, "b": 0x00, "total": 0x80})
    f152 = {c: _decode(c, 2, 16, 0) for c in range(256) if c != 0x80}
    for code, got in zip(codes, done.fields["b"][0], strict=True):
        nearest = min(f152, key=lambda c: (abs(f152[c] - wide[code]), c & 1))
        assert f152[got] == f152[nearest], (code, wide[code])
    small = call(codelets["Eighths"], [row], {"a": 0x82, "b": 0xBC, "total": 0x80})
    assert (np.asarray(small.fields["b"][0]) == 0x80).sum() > 10


UNPACKS = """
#include <poplar/QuarterFloat.hpp>
#include <poplar/Vertex.hpp>
using namespace poplar;
// As PopLibs does it: a separate function, on the bits of the byte.
static quarter_metadata unpackMetadata(const MetadataType *in) {
  quarter_metadata out;
  out.fmt = *in & 0x80 ? quarter_metadata::f143 : quarter_metadata::f152;
  out.scale = static_cast<char>(*in & 0x3f);
  if (out.scale & 0x20) out.scale |= 0xc0;
  return out;
}
class Cast : public Vertex {
public:
  Vector<Input<Vector<quarter>>> a;
  Output<Vector<float>> viaOwn, viaOurs;
  Output<Vector<quarter>> b;
  Vector<Output<float>> parts;
  bool compute() {
    const quarter_metadata meaning = unpackMetadata(a.getMetadata());
    for (unsigned i = 0; i < a[0].size(); ++i) {
      const quarter raw = a[0][i];
      viaOwn[i] = poplar::toHalf(raw, meaning);
      viaOurs[i] = toFloat(raw, poplar::unpackMetadata(a.getMetadata()));
      b[i] = toQuarter(toHalf(raw, meaning), poplar::unpackMetadata(b.getMetadata()));
    }
    parts[0] = meaning.scale;
    parts[1] = 2 * parts[0];
    parts[1] += 1;
    parts[2] = parts[1];
    return true;
  }
};
"""


@pytest.mark.slow
@pytest.mark.parametrize("metadata", SHAPES)
def test_metadata_is_unpacked_as_poplibs_does(call, metadata):
    """getMetadata points at the byte; own and our unpackMetadata agree; outputs of lists assign."""
    codes = np.arange(0, 256, 5)
    row = {"a": [codes], "viaOwn": 0.0 * codes, "viaOurs": 0.0 * codes, "b": 0 * codes,
           "parts": [0.0, 0.0, 0.0]}  # fmt: skip
    cast = load_cpp_codelets(UNPACKS)["Cast"]
    done = call(cast, [row], {"a": metadata, "b": metadata})
    expected = np.array([_decode(code, *SHAPES[metadata]) for code in codes])
    np.testing.assert_array_equal(done.fields["viaOurs"][0], expected.astype(np.float32))
    np.testing.assert_array_equal(done.fields["viaOwn"][0], expected.astype(np.float16))
    scale = SHAPES[metadata][2]
    assert [float(p[0]) for p in done.fields["parts"][0]] == [scale, 2 * scale + 1, 2 * scale + 1]
