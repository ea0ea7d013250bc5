"""The table of element-wise operations: one row each, with all there is to say about it.

Meaning on a tile, meaning in NumPy, types, cost, and where tests take their samples. Costs are
PopLibs' own estimates: the `slots` a worker needs for a vector of `width` elements, loads and
stores included. Operations that its public estimators do not name cost as a similar one.
"""

# ruff: noqa: ANN001, ANN201
# Types convert when they are called in functions of a tile, which pyright cannot know.
# pyright: reportOperatorIssue=false, reportArgumentType=false
import math
from collections.abc import Callable

import numpy as np

from tremula.base.provenance import fitted
from tremula.base.types import (
    BOOL,
    FLOAT,
    HALF,
    INT,
    LONGLONG,
    SHORT,
    SIGNED_CHAR,
    UNSIGNED_CHAR,
    UNSIGNED_INT,
    UNSIGNED_LONGLONG,
    UNSIGNED_SHORT,
    Type,
    float32,
    int32,
    int64,
    uint32,
    uint64,
)
from tremula.poplibs.popops.elementwise.element_op import CostTable, ElementOp, VectorCost, costs
from tremula.poplibs.popops.elementwise.iterative import REPEATED

FLOATS = (FLOAT, HALF)
INTS = (INT, UNSIGNED_INT)
SIGNED_INTEGERS = (INT, SHORT, SIGNED_CHAR, LONGLONG)
INTEGERS = (
    INT, UNSIGNED_INT, SHORT, UNSIGNED_SHORT, SIGNED_CHAR, UNSIGNED_CHAR, LONGLONG,
    UNSIGNED_LONGLONG,
)  # fmt: skip
NUMBERS = (*FLOATS, *INTEGERS)
SIGNED = (*FLOATS, *SIGNED_INTEGERS)
BITS = (*INTEGERS, BOOL)
ANY = (*NUMBERS, BOOL)

# -- on a tile: what Python's operators do not say ---------------------------------------------
# These take numbers of the machine's types (halves arrive as float32) and are compiled into the
# codelets that use them. One function serves several types, so they have no annotations.

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
    """A power, and one step of Newton's method because a third is not a float."""
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
    """Nearest, ties away from zero; adding the float just below a half never carries too far."""
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


# -- NumPy references that NumPy lacks ---------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _in_double(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A float function computed in float64 and rounded once."""

    def compute(*operands: np.ndarray) -> np.ndarray:
        wide = [np.asarray(o, np.float64) for o in operands]
        return np.asarray(function(*wide)).astype(np.asarray(operands[0]).dtype)

    return compute


def _c_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "f":
        return a / b
    return ((a - np.fmod(a, b)) // b).astype(a.dtype)


def _power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Powers of integers wrap, and negative ones are rounded towards zero."""
    if a.dtype.kind == "f":
        return np.power(a, b)
    size = np.power(a, np.abs(b))
    return np.where((b >= 0) | (size * size == 1), size, 0).astype(a.dtype)


def _bit_count(a: np.ndarray) -> np.ndarray:
    return np.bitwise_count(np.asarray(a).view(np.uint32)).astype(a.dtype)


def _leading_zeros(a: np.ndarray) -> np.ndarray:
    bits = np.asarray(a).view(np.uint32).astype(np.float64)
    return (32 - np.where(bits == 0, 0, np.frexp(bits)[1])).astype(a.dtype)


def _shift_zeros(a: np.ndarray, n: np.ndarray) -> np.ndarray:
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return (a.view(unsigned) >> np.asarray(n).astype(unsigned)).view(a.dtype)


def _round_away(a: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(a) + 0.5), a)


def _not(a: np.ndarray) -> np.ndarray:
    return np.logical_not(a) if a.dtype == bool else np.invert(a)


def _select(a: np.ndarray, b: np.ndarray, condition: np.ndarray) -> np.ndarray:
    return np.where(condition, a, b)


# -- the table ---------------------------------------------------------------------------------

# Published: neg and square 2 per vector, relu 3, abs 5 per element. Integers: as abs.
_CHEAP = costs(2, 2, 2, 4, 5)
_RELU = costs(3, 2, 3, 4, 5)
_ABS = costs(5, 1, 5, 1, 5)
# Routines in software whose cycles depend on the argument, as PopLibs' table says: it has averages
# over arguments from -pi to pi (2300) and over random ones (180 for a vector of log1p). A step
# waits for the worker with the longest ones, and near 0 a cosine is short. Every second measured
# SchNet block on Bow (arguments from 0.5 to pi, and from 0 to 1) gave these; the others check them.
_SINE_SLOTS = fitted(
    "SINE_SLOTS", 2730, "slots of a float sine or cosine",
    "PopLibs' average over -pi to pi is 2300; every second SchNet block of the grid on Bow",
    ("schnet_block-*",),
)  # fmt: skip
_LOG1P_SLOTS = fitted(
    "LOG1P_SLOTS", 56, "slots of log1p for two floats",
    "PopLibs' average over random arguments is 180; every second SchNet block of the grid on Bow",
    ("schnet_block-*",),
)  # fmt: skip
_SINE = costs(_SINE_SLOTS, 1, 25, 1)
_LOG1P = costs(_LOG1P_SLOTS, 2, 56, 4)
# Derived: a rounding is one instruction per vector, like relu; a test of floats is a comparison.
_ROUNDING = _RELU
_ARITHMETIC = costs(3, 2, 3, 4, 7)
_ARITHMETIC_SCALAR = costs(2, 2, 2, 4, 6)
_COMPARE = {"FLOAT": VectorCost(14, 4), "HALF": VectorCost(9, 4), "INT": VectorCost(22, 4)}
_WIDE_MUL = {"LONGLONG": VectorCost(30), "UNSIGNED_LONGLONG": VectorCost(30)}
_BITWISE = {"INT": VectorCost(7)}
_ONE_BIT = {"INT": VectorCost(5)}
PUBLISHED, FITTED = "published", "fitted"
_TIES = (0.5, -0.5, 1.5, -2.5, 0.0)


def _shift_range(element: Type, index: int) -> tuple[int, int] | None:
    """Samples shift by less than the size of their type."""
    return (0, 8 * element.n_bytes) if index == 1 else None


def _divisor_range(element: Type, index: int) -> tuple[int, int] | None:  # noqa: ARG001
    return (1, 100) if index == 1 else None


def _small_range(element: Type, index: int) -> tuple[int, int] | None:  # noqa: ARG001
    return (0, 5)


def _unary(
    name: str, about: str, tile: str | Callable, numpy: Callable, cost: CostTable,
    types: tuple[Type, ...] = FLOATS, **more: object,
) -> ElementOp:  # fmt: skip
    return ElementOp(
        name=name, about=about, n_operands=1, tile=tile, numpy=numpy, types=types, cost=cost,
        **more,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def _binary(
    name: str, about: str, tile: str | Callable, numpy: Callable, cost: CostTable,
    types: tuple[Type, ...] = NUMBERS, **more: object,
) -> ElementOp:  # fmt: skip
    return ElementOp(
        name=name, about=about, n_operands=2, tile=tile, numpy=numpy, types=types, cost=cost,
        **more,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


_UNARY = (
    _unary("abs", "Absolute value.", "abs({0})", np.abs, _ABS, SIGNED, provenance=PUBLISHED),
    _unary("neg", "Minus the value.", "-{0}", np.negative, _CHEAP, SIGNED, provenance=PUBLISHED),
    _unary("square", "The value times itself.", "{0} * {0}", np.square, _CHEAP, NUMBERS,
           provenance=PUBLISHED),
    _unary("relu", "The value, or 0 if it is negative.", "max({0}, {zero})",
           lambda a: np.maximum(a, a.dtype.type(0)), _RELU, SIGNED, provenance=PUBLISHED),
    _unary("signum", "-1, 0 or 1: the sign.", sign_of, np.sign, _RELU, SIGNED, edges=(0.0, -1.0)),
    _unary("inv", "1 divided by the value.", inverse,
           _in_double(lambda a: 1 / a), costs(6, 2, 15, 4), in_float=True, provenance=PUBLISHED,
           domain=(0.2, 20.0)),
    _unary("sqrt", "Square root.", "math.sqrt({0})", np.sqrt, costs(10, 2, 23, 4),
           provenance=PUBLISHED, domain=(0.0, 20.0)),
    _unary("rsqrt", "1 divided by the square root.", inverse_root,
           _in_double(lambda a: 1 / np.sqrt(a)), costs(8, 2, 19, 4), in_float=True,
           provenance=PUBLISHED, domain=(0.1, 20.0)),
    _unary("cbrt", "Cube root.", cube_root, _in_double(np.cbrt), costs(312, 1, 325, 1),
           in_float=True, edges=(0.0, -8.0, 27.0)),
    _unary("exp", "e to the power of the value.", "math.exp({0})", np.exp, costs(6, 2, 4, 4),
           provenance=PUBLISHED),
    _unary("exp2", "2 to the power of the value.", two_to, _in_double(np.exp2),
           costs(6, 2, 4, 4), in_float=True),
    _unary("expm1", "e to the power of the value, minus 1.", "math.expm1({0})", np.expm1,
           costs(8, 2, 6, 4)),
    _unary("log", "Natural logarithm.", "math.log({0})", np.log, costs(12, 2, 4, 4),
           provenance=PUBLISHED, domain=(0.1, 20.0)),
    _unary("log1p", "Natural logarithm of 1 plus the value.", "math.log1p({0})", np.log1p,
           _LOG1P, provenance=FITTED, domain=(-0.7, 20.0)),
    _unary("sigmoid", "1 / (1 + exp(-x)).", logistic,
           _in_double(lambda a: 1 / (1 + np.exp(-a))), costs(12, 2, 6, 4), in_float=True,
           provenance=PUBLISHED),
    _unary("tanh", "Hyperbolic tangent.", "math.tanh({0})", np.tanh, costs(12, 2, 4, 4),
           provenance=PUBLISHED),
    _unary("erf", "Error function.", "math.erf({0})", _in_double(_erf), costs(41, 1, 13, 1),
           in_float=True, provenance=PUBLISHED),
    _unary("gelu_erf", "x times the normal distribution function of x.", gelu_by_erf,
           _in_double(lambda a: 0.5 * a * (1 + _erf(a / math.sqrt(2)))), costs(22, 1, 16, 1),
           in_float=True, provenance=PUBLISHED, tolerance={"FLOAT": 5e-4}),
    _unary("sin", "Sine.", "math.sin({0})", np.sin, _SINE, provenance=FITTED),
    _unary("cos", "Cosine.", "math.cos({0})", np.cos, _SINE, provenance=FITTED),
    _unary("tan", "Tangent.", "math.tan({0})", np.tan, costs(5100, 1, 50, 1), provenance=PUBLISHED,
           domain=(-1.2, 1.2)),
    _unary("asin", "Arc sine.", "math.asin({0})", np.arcsin, costs(272, 1, 144, 1),
           domain=(-0.99, 0.99)),
    _unary("ceil", "The next whole number above.", "np.ceil({0})", np.ceil, _ROUNDING),
    _unary("floor", "The next whole number below.", "np.floor({0})", np.floor, _ROUNDING),
    _unary("trunc", "The whole part.", "np.trunc({0})", np.trunc, _ROUNDING),
    _unary("round", "The nearest whole number, ties away from zero.", round_away,
           _round_away, _ROUNDING, in_float=True, domain=(-9.0, 9.0), edges=_TIES),
    _unary("nearbyint", "The nearest whole number, ties to even.", "np.rint({0})", np.rint,
           _ROUNDING, domain=(-9.0, 9.0), edges=_TIES),
    _unary("is_finite", "Neither infinite nor NaN.", "math.isfinite({0})", np.isfinite, _COMPARE,
           gives_bool=True, edges=(np.nan, np.inf, 1.0)),
    _unary("is_inf", "Infinite.", "math.isinf({0})", np.isinf, _COMPARE, gives_bool=True,
           edges=(np.nan, np.inf, -np.inf)),
    _unary("is_nan", "Not a number.", "math.isnan({0})", np.isnan, _COMPARE, gives_bool=True,
           edges=(np.nan, np.inf, 0.0)),
    _unary("logical_not", "False becomes true.", "not {0}", np.logical_not, _ONE_BIT, (BOOL,)),
    _unary("bitwise_not", "All bits inverted.", "~{0}", _not, _ONE_BIT, BITS, bool_tile="not {0}"),
    _unary("popcount", "How many bits are set.", bit_count, _bit_count, _ONE_BIT, INTS),
    _unary("count_leading_zeros", "Zero bits above the highest set bit.", leading_zeros,
           _leading_zeros, _ONE_BIT, INTS),
)  # fmt: skip

_BINARY = (
    _binary("add", "Sum.", "{0} + {1}", np.add, _ARITHMETIC, scalar_cost=_ARITHMETIC_SCALAR,
            provenance=PUBLISHED),
    _binary("sub", "Difference.", "{0} - {1}", np.subtract, _ARITHMETIC,
            scalar_cost=_ARITHMETIC_SCALAR, provenance=PUBLISHED),
    _binary("mul", "Product.", "{0} * {1}", np.multiply, _ARITHMETIC | _WIDE_MUL,
            scalar_cost=_ARITHMETIC_SCALAR | _WIDE_MUL, provenance=PUBLISHED),
    _binary("div", "Quotient; integers round towards zero.", "{0} / {1}", _c_divide,
            costs(10, 2, 21, 4, 277), scalar_cost=costs(6, 2, 8, 2, 276),
            integer_tile=int_divide, provenance=PUBLISHED, domain=(0.5, 9.0),
            integers=_divisor_range),
    _binary("rem", "Remainder with the sign of the dividend, as C has it.",
            "math.fmod({0}, {1})", np.fmod, costs(133, 2, 300, 4, 292),
            integer_tile=int_remainder, provenance=PUBLISHED, domain=(0.5, 9.0),
            integers=_divisor_range),
    _binary("pow", "The first to the power of the second.", "{0} ** {1}", _power,
            costs(312, 1, 325, 1, 312), integer_tile=int_power, provenance=PUBLISHED,
            domain=(0.2, 3.0), integers=_small_range),
    _binary("atan2", "Angle of the point (second, first).", "math.atan2({0}, {1})", np.arctan2,
            costs(272, 2, 578, 4), FLOATS, provenance=PUBLISHED),
    _binary("maximum", "The larger; NaN if either is.", larger, np.maximum,
            costs(3, 2, 4, 4), provenance=PUBLISHED, edges=(np.nan, 1.0, -np.inf)),
    _binary("minimum", "The smaller; NaN if either is.", smaller, np.minimum,
            costs(3, 2, 4, 4), provenance=PUBLISHED, edges=(np.nan, 1.0, np.inf)),
    _binary("variance_to_inv_std_dev", "1 / sqrt(variance + epsilon).",
            inverse_std_dev, _in_double(lambda v, e: 1 / np.sqrt(v + e)),
            costs(11, 2, 22, 4), FLOATS, in_float=True, flops=2, domain=(0.1, 3.0)),
    _binary("inv_std_dev_to_variance", "1 / inverse deviation squared, minus epsilon.",
            variance_of, _in_double(lambda s, e: 1 / (s * s) - e),
            costs(11, 2, 22, 4), FLOATS, in_float=True, flops=3, domain=(0.2, 0.9)),
    _binary("eq", "Equal.", "{0} == {1}", np.equal, _COMPARE, ANY, gives_bool=True,
            provenance=PUBLISHED),
    _binary("neq", "Not equal.", "{0} != {1}", np.not_equal, _COMPARE, ANY, gives_bool=True,
            provenance=PUBLISHED),
    _binary("lt", "Less.", "{0} < {1}", np.less, _COMPARE, ANY, gives_bool=True,
            provenance=PUBLISHED),
    _binary("lteq", "Less or equal.", "{0} <= {1}", np.less_equal, _COMPARE, ANY,
            gives_bool=True, provenance=PUBLISHED),
    _binary("gt", "Greater.", "{0} > {1}", np.greater, _COMPARE, ANY, gives_bool=True,
            provenance=PUBLISHED),
    _binary("gteq", "Greater or equal.", "{0} >= {1}", np.greater_equal, _COMPARE, ANY,
            gives_bool=True, provenance=PUBLISHED),
    _binary("logical_and", "Both.", "{0} & {1}", np.logical_and, _BITWISE, (BOOL,)),
    _binary("logical_or", "Either or both.", "{0} | {1}", np.logical_or, _BITWISE, (BOOL,)),
    _binary("bitwise_and", "Bits set in both.", "{0} & {1}", np.bitwise_and, _BITWISE, BITS),
    _binary("bitwise_or", "Bits set in either.", "{0} | {1}", np.bitwise_or, _BITWISE, BITS),
    _binary("bitwise_xor", "Bits set in one only.", "{0} ^ {1}", np.bitwise_xor, _BITWISE, BITS),
    _binary("bitwise_xnor", "Bits that agree.", "~({0} ^ {1})",
            lambda a, b: _not(np.bitwise_xor(a, b)), _BITWISE, BITS, bool_tile="{0} == {1}"),
    _binary("shift_left", "Bits moved up.", "{0} << {1}", np.left_shift, _BITWISE, INTEGERS,
            integers=_shift_range),
    _binary("shift_right", "Bits moved down, zeros moved in.",
            "shift_right_zeros({0}, {1}, {n_bits})", _shift_zeros, _BITWISE, INTEGERS,
            helpers=(shift_right_zeros,), integers=_shift_range),
    _binary("shift_right_sign_extend", "Bits moved down, the sign kept.", "{0} >> {1}",
            np.right_shift, _BITWISE, SIGNED_INTEGERS, integers=_shift_range),
)  # fmt: skip

_TERNARY = (
    ElementOp(
        name="select", about="The first where the third is true, else the second.", n_operands=3,
        tile="{0} if {2} else {1}", numpy=_select, types=ANY, cost={"INT": VectorCost(5)},
        flops=0, has_condition=True, provenance=PUBLISHED,
    ),
    ElementOp(
        name="clamp", n_operands=3,
        about="The first, clamped to the range from the second to the third.",
        tile="smaller(larger({0}, {1}), {2})", numpy=lambda a, low, high: np.minimum(
            np.maximum(a, low), high), types=NUMBERS, cost=costs(2, 2, 2, 4, 7), flops=2,
        helpers=(smaller, larger), provenance=PUBLISHED,
    ),
)  # fmt: skip

# Every operation by name. `register_element_op` adds to it.
ELEMENT_OPS: dict[str, ElementOp] = {
    op.name: op for op in (*_UNARY, *_BINARY, *_TERNARY, *REPEATED)
}
