"""Half and 8-bit floats inside codelets, against NumPy."""

import math

import numpy as np
import pytest

from tests.sampling import in_turn
from tremula.base.floats import (
    QuarterFormat,
    float32_to_quarter,
    pack_metadata,
    quarter_to_float32,
)
from tremula.base.types import float32, half, int32, quarter
from tremula.codelets import InOut, Input, Output, Vector, Vertex, codelet_of


class HalfArithmetic(Vertex):
    a: Input[Vector[half]]
    b: Input[Vector[half]]
    out: Output[Vector[half]]
    mixed: Output[Vector[float32]]
    flags: Output[Vector[int32]]

    def compute(self):
        for i in range(len(self.a)):
            a = self.a[i]
            b = self.b[i]
            n = 7 * i
            self.out[n] = a + b
            self.out[n + 1] = a - b
            self.out[n + 2] = a * b
            self.out[n + 3] = a / b
            self.out[n + 4] = -a * 3 + 1
            self.out[n + 5] = a * b + a
            self.out[n + 6] = max(a, b) + min(a, b) * abs(a)
            self.mixed[i] = a * 0.1 + b
            self.flags[i] = (1 if a < b else 0) + (2 if a == b else 0) + int(a)


def random_halves(n):
    """Halves of all sizes, with zeros, denormals and overflow among them."""
    bits = np.random.default_rng(3).integers(0, 0x7C00, n).astype(np.uint16)
    bits |= np.random.default_rng(4).integers(0, 2, n).astype(np.uint16) << 15
    return bits.view(np.float16)


def test_half_rounds_after_each_operation(make_table):
    """half with half or integer rounds like np.float16; half with float32 is float32."""
    n = 4000
    sizes = {"a": n, "b": n, "out": 7 * n, "mixed": n, "flags": n}
    table = make_table(codelet_of(HalfArithmetic), 1, 0, sizes)
    a, b = random_halves(2 * n).reshape(2, n)
    a[: n // 2] = np.linspace(-8, 8, n // 2).astype(np.float16)
    b[:100] = a[:100]
    table.fill("a", a)
    table.fill("b", b)
    table.run()
    one, three = np.float16(1), np.float16(3)
    with np.errstate(all="ignore"):
        extremes = np.where(b > a, b, a) + np.where(b < a, b, a) * abs(a)
        rows = [a + b, a - b, a * b, a / b, -a * three + one, a * b + a, extremes]
        mixed = a.astype(np.float32) * np.float32(0.1) + b.astype(np.float32)
    np.testing.assert_array_equal(table.values("out").reshape(n, 7).T, rows)
    np.testing.assert_array_equal(table.values("mixed"), mixed)
    flags = (a < b) * 1 + (a == b) * 2 + np.trunc(a).astype(np.int32)
    np.testing.assert_array_equal(table.values("flags"), flags)


class HalfFunctions(Vertex):
    x: Input[Vector[half]]
    out: Output[Vector[half]]
    total: InOut[half]
    s: half

    def compute(self):
        total = 0
        for i in range(len(self.x)):
            x = abs(self.x[i]) + 1
            self.out[i] = math.exp(-x) + math.log(x) + math.sqrt(x) + math.tanh(x)
            total += half(float32(x) * 0.5)
        self.total = total
        self.s += np.sum(self.x) + np.dot(self.x, self.x) + x**2


@pytest.mark.slow
def test_half_functions_and_sums(make_table):
    """Functions of halves compute in float32 and round; sums of halves stay halves."""
    table = make_table(codelet_of(HalfFunctions), 2, 5, 9)
    table.run()
    x = np.abs(table.values("x").reshape(2, 9)) + np.float16(1)

    def rounded(function, values):
        return function(values.astype(np.float32)).astype(np.float16)

    expected = rounded(np.exp, -x) + rounded(np.log, x) + rounded(np.sqrt, x) + rounded(np.tanh, x)
    np.testing.assert_allclose(table.values("out").reshape(2, 9), expected, rtol=2e-3)
    totals = []
    for row in x:
        total = np.float16(0)
        for value in row:
            total += np.float16(np.float32(value) * np.float32(0.5))
        totals.append(total)
    np.testing.assert_array_equal(table.values("total"), np.array(totals))


class QuarterCopy(Vertex):
    x: Input[Vector[quarter]]
    first: Output[half]
    out: Output[Vector[float32]]
    back: Output[Vector[quarter]]
    one: Output[quarter]
    values: Input[Vector[float32]]

    def compute(self):
        for i, value in enumerate(self.x):
            self.out[i] = value
        for i in range(len(self.values)):
            self.back[i] = self.values[i]
        self.first = self.x[-1]
        self.one = self.values[0]


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "quarter_format"), in_turn([-7, 0, 4, 31], QuarterFormat))
def test_quarter_reads_and_writes(make_table, quarter_format, scale):
    """All codes read as floats, and floats of all sizes write as the definition says."""
    n = 3000
    sizes = {"x": 256, "out": 256, "back": n, "values": n}
    metadata = pack_metadata(quarter_format, scale)
    table = make_table(codelet_of(QuarterCopy), 1, 0, sizes, metadata)
    bits = np.random.default_rng(0).integers(0, 2**32, n, dtype=np.uint32)
    values = bits.view(np.float32)
    codes = quarter_to_float32(np.arange(256), quarter_format, scale)
    values[:255] = (codes[1:] + codes[:-1]) / 2
    values[300:1000] = np.random.default_rng(1).normal(size=700) * 2.0 ** (scale + 3)
    table.fill("x", np.arange(256))
    table.fill("values", values)
    python = table.copy()
    table.run()
    np.testing.assert_array_equal(table.values("out"), codes)
    back = float32_to_quarter(values, quarter_format, scale)
    np.testing.assert_array_equal(table.values("back"), back)
    with np.errstate(over="ignore"):
        assert table.values("first")[0] == codes[-1].astype(np.float16)
    assert table.values("one")[0] == back[0]
    python.interpret()
    np.testing.assert_array_equal(table.arena, python.arena)
