"""The one table of element-wise operations: meaning on a tile, meaning in NumPy, types, cost.

Costs are PopLibs' own estimates: the `slots` a worker needs for a vector of `width` elements, loads
and stores included. Those that its public estimators do not name are set beside a similar one.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

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
)

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


@dataclass(frozen=True, slots=True)
class VectorCost:
    """Worker slots for a vector of `width` elements, with loads and stores."""

    slots: int
    width: int = 1


CostTable = Mapping[str, VectorCost]


def costs(
    float_slots: int, float_width: int, half_slots: int, half_width: int, int_slots: int = 7
) -> dict[str, VectorCost]:
    """A cost table; integers of all sizes go one by one."""
    return {
        "FLOAT": VectorCost(float_slots, float_width),
        "HALF": VectorCost(half_slots, half_width),
        "INT": VectorCost(int_slots),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ElementOp:
    """One operation. `text` is its codelet source, with {0}, {1}, {2} for its operands."""

    name: str
    about: str
    n_operands: int
    text: str
    numpy: Callable[..., np.ndarray]
    types: tuple[Type, ...]
    cost: CostTable  # by type name; a type that is not named costs as INT
    scalar_cost: CostTable = field(default_factory=dict)  # with one operand a scalar
    integer_text: str = ""  # where integers need other source
    bool_text: str = ""
    gives_bool: bool = False
    in_float: bool = False  # halves widen to float32 before, and round once after
    flops: int = 1  # of one element, where operands are floats

    def flops_of(self, element: Type) -> int:
        return self.flops if element.is_floating else 0

    def cost_of(self, element: Type, has_scalar: bool = False) -> VectorCost:
        table = self.scalar_cost if has_scalar and self.scalar_cost else self.cost
        return table[element.name] if element.name in table else table["INT"]

    def source_for(self, element: Type) -> str:
        """Codelet source for operands of a type."""
        if element is BOOL and self.bool_text:
            return self.bool_text
        is_integer = not element.is_floating and bool(self.integer_text)
        return self.integer_text if is_integer else self.text


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
_SINE = costs(2300, 1, 25, 1)
# Derived: a rounding is one instruction per vector, like relu; a test of floats is a comparison.
_ROUNDING = _RELU
_ARITHMETIC = costs(3, 2, 3, 4, 7)
_ARITHMETIC_SCALAR = costs(2, 2, 2, 4, 6)
_COMPARE = {"FLOAT": VectorCost(14, 4), "HALF": VectorCost(9, 4), "INT": VectorCost(22, 4)}
_WIDE_MUL = {"LONGLONG": VectorCost(30), "UNSIGNED_LONGLONG": VectorCost(30)}
_BITWISE = {"INT": VectorCost(7)}
_ONE_BIT = {"INT": VectorCost(5)}


def _unary(
    name: str, about: str, text: str, numpy: Callable, cost: CostTable,
    types: tuple[Type, ...] = FLOATS, **more: object,
) -> ElementOp:  # fmt: skip
    return ElementOp(
        name=name, about=about, n_operands=1, text=text, numpy=numpy, types=types, cost=cost,
        **more,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


def _binary(
    name: str, about: str, text: str, numpy: Callable, cost: CostTable,
    types: tuple[Type, ...] = NUMBERS, **more: object,
) -> ElementOp:  # fmt: skip
    return ElementOp(
        name=name, about=about, n_operands=2, text=text, numpy=numpy, types=types, cost=cost,
        **more,  # pyright: ignore[reportArgumentType]
    )  # fmt: skip


_UNARY = (
    _unary("abs", "Absolute value.", "abs({0})", np.abs, _ABS, SIGNED),
    _unary("neg", "Minus the value.", "-{0}", np.negative, _CHEAP, SIGNED),
    _unary("square", "The value times itself.", "{0} * {0}", np.square, _CHEAP, NUMBERS),
    _unary("relu", "The value, or 0 if it is negative.", "max({0}, {zero})",
           lambda a: np.maximum(a, a.dtype.type(0)), _RELU, SIGNED),
    _unary("signum", "-1, 0 or 1: the sign.", "sign_of({0})", np.sign, _RELU, SIGNED),
    _unary("inv", "1 divided by the value.", "inverse({0})",
           _in_double(lambda a: 1 / a), costs(6, 2, 15, 4), in_float=True),
    _unary("sqrt", "Square root.", "math.sqrt({0})", np.sqrt, costs(10, 2, 23, 4)),
    _unary("rsqrt", "1 divided by the square root.", "inverse_root({0})",
           _in_double(lambda a: 1 / np.sqrt(a)), costs(8, 2, 19, 4), in_float=True),
    _unary("cbrt", "Cube root.", "cube_root({0})", _in_double(np.cbrt), costs(312, 1, 325, 1),
           in_float=True),
    _unary("exp", "e to the power of the value.", "math.exp({0})", np.exp, costs(6, 2, 4, 4)),
    _unary("exp2", "2 to the power of the value.", "two_to({0})", _in_double(np.exp2),
           costs(6, 2, 4, 4), in_float=True),
    _unary("expm1", "e to the power of the value, minus 1.", "math.expm1({0})", np.expm1,
           costs(8, 2, 6, 4)),
    _unary("log", "Natural logarithm.", "math.log({0})", np.log, costs(12, 2, 4, 4)),
    _unary("log1p", "Natural logarithm of 1 plus the value.", "math.log1p({0})", np.log1p,
           costs(14, 2, 6, 4)),
    _unary("sigmoid", "1 / (1 + exp(-x)).", "logistic({0})",
           _in_double(lambda a: 1 / (1 + np.exp(-a))), costs(12, 2, 6, 4), in_float=True),
    _unary("tanh", "Hyperbolic tangent.", "math.tanh({0})", np.tanh, costs(12, 2, 4, 4)),
    _unary("erf", "Error function.", "math.erf({0})", _in_double(_erf), costs(41, 1, 13, 1),
           in_float=True),
    _unary("gelu_erf", "x times the normal distribution function of x.", "gelu_by_erf({0})",
           _in_double(lambda a: 0.5 * a * (1 + _erf(a / math.sqrt(2)))), costs(22, 1, 16, 1),
           in_float=True),
    _unary("sin", "Sine.", "math.sin({0})", np.sin, _SINE),
    _unary("cos", "Cosine.", "math.cos({0})", np.cos, _SINE),
    _unary("tan", "Tangent.", "math.tan({0})", np.tan, costs(5100, 1, 50, 1)),
    _unary("asin", "Arc sine.", "math.asin({0})", np.arcsin, costs(272, 1, 144, 1)),
    _unary("ceil", "The next whole number above.", "np.ceil({0})", np.ceil, _ROUNDING),
    _unary("floor", "The next whole number below.", "np.floor({0})", np.floor, _ROUNDING),
    _unary("trunc", "The whole part.", "np.trunc({0})", np.trunc, _ROUNDING),
    _unary("round", "The nearest whole number, ties away from zero.", "round_away({0})",
           _round_away, _ROUNDING, in_float=True),
    _unary("nearbyint", "The nearest whole number, ties to even.", "np.rint({0})", np.rint,
           _ROUNDING),
    _unary("is_finite", "Neither infinite nor NaN.", "math.isfinite({0})", np.isfinite, _COMPARE,
           gives_bool=True),
    _unary("is_inf", "Infinite.", "math.isinf({0})", np.isinf, _COMPARE, gives_bool=True),
    _unary("is_nan", "Not a number.", "math.isnan({0})", np.isnan, _COMPARE, gives_bool=True),
    _unary("logical_not", "False becomes true.", "not {0}", np.logical_not, _ONE_BIT, (BOOL,)),
    _unary("bitwise_not", "All bits inverted.", "~{0}", _not, _ONE_BIT, BITS, bool_text="not {0}"),
    _unary("popcount", "How many bits are set.", "bit_count({0})", _bit_count, _ONE_BIT, INTS),
    _unary("count_leading_zeros", "Zero bits above the highest set bit.", "leading_zeros({0})",
           _leading_zeros, _ONE_BIT, INTS),
)  # fmt: skip

_BINARY = (
    _binary("add", "Sum.", "{0} + {1}", np.add, _ARITHMETIC, scalar_cost=_ARITHMETIC_SCALAR),
    _binary("sub", "Difference.", "{0} - {1}", np.subtract, _ARITHMETIC,
            scalar_cost=_ARITHMETIC_SCALAR),
    _binary("mul", "Product.", "{0} * {1}", np.multiply, _ARITHMETIC | _WIDE_MUL,
            scalar_cost=_ARITHMETIC_SCALAR | _WIDE_MUL),
    _binary("div", "Quotient; integers round towards zero.", "{0} / {1}", _c_divide,
            costs(10, 2, 21, 4, 277), scalar_cost=costs(6, 2, 8, 2, 276),
            integer_text="int_divide({0}, {1})"),
    _binary("rem", "Remainder with the sign of the dividend, as C has it.",
            "math.fmod({0}, {1})", np.fmod, costs(133, 2, 300, 4, 292),
            integer_text="int_remainder({0}, {1})"),
    _binary("pow", "The first to the power of the second.", "{0} ** {1}", _power,
            costs(312, 1, 325, 1, 312), integer_text="int_power({0}, {1})"),
    _binary("atan2", "Angle of the point (second, first).", "math.atan2({0}, {1})", np.arctan2,
            costs(272, 2, 578, 4), FLOATS),
    _binary("maximum", "The larger; NaN if either is.", "larger({0}, {1})", np.maximum,
            costs(3, 2, 4, 4)),
    _binary("minimum", "The smaller; NaN if either is.", "smaller({0}, {1})", np.minimum,
            costs(3, 2, 4, 4)),
    _binary("variance_to_inv_std_dev", "1 / sqrt(variance + epsilon).",
            "inverse_std_dev({0}, {1})", _in_double(lambda v, e: 1 / np.sqrt(v + e)),
            costs(11, 2, 22, 4), FLOATS, in_float=True, flops=2),
    _binary("inv_std_dev_to_variance", "1 / inverse deviation squared, minus epsilon.",
            "variance_of({0}, {1})", _in_double(lambda s, e: 1 / (s * s) - e),
            costs(11, 2, 22, 4), FLOATS, in_float=True, flops=3),
    _binary("eq", "Equal.", "{0} == {1}", np.equal, _COMPARE, ANY, gives_bool=True),
    _binary("neq", "Not equal.", "{0} != {1}", np.not_equal, _COMPARE, ANY, gives_bool=True),
    _binary("lt", "Less.", "{0} < {1}", np.less, _COMPARE, ANY, gives_bool=True),
    _binary("lteq", "Less or equal.", "{0} <= {1}", np.less_equal, _COMPARE, ANY,
            gives_bool=True),
    _binary("gt", "Greater.", "{0} > {1}", np.greater, _COMPARE, ANY, gives_bool=True),
    _binary("gteq", "Greater or equal.", "{0} >= {1}", np.greater_equal, _COMPARE, ANY,
            gives_bool=True),
    _binary("logical_and", "Both.", "{0} & {1}", np.logical_and, _BITWISE, (BOOL,)),
    _binary("logical_or", "Either or both.", "{0} | {1}", np.logical_or, _BITWISE, (BOOL,)),
    _binary("bitwise_and", "Bits set in both.", "{0} & {1}", np.bitwise_and, _BITWISE, BITS),
    _binary("bitwise_or", "Bits set in either.", "{0} | {1}", np.bitwise_or, _BITWISE, BITS),
    _binary("bitwise_xor", "Bits set in one only.", "{0} ^ {1}", np.bitwise_xor, _BITWISE, BITS),
    _binary("bitwise_xnor", "Bits that agree.", "~({0} ^ {1})",
            lambda a, b: _not(np.bitwise_xor(a, b)), _BITWISE, BITS, bool_text="{0} == {1}"),
    _binary("shift_left", "Bits moved up.", "{0} << {1}", np.left_shift, _BITWISE, INTEGERS),
    _binary("shift_right", "Bits moved down, zeros moved in.",
            "shift_right_zeros({0}, {1}, {n_bits})", _shift_zeros, _BITWISE, INTEGERS),
    _binary("shift_right_sign_extend", "Bits moved down, the sign kept.", "{0} >> {1}",
            np.right_shift, _BITWISE, SIGNED_INTEGERS),
)  # fmt: skip

_TERNARY = (
    ElementOp(
        name="select", about="The first where the third is true, else the second.", n_operands=3,
        text="{0} if {2} else {1}", numpy=_select, types=ANY, cost={"INT": VectorCost(5)},
        flops=0,
    ),
    ElementOp(
        name="clamp", about="The first, held between the second and the third.", n_operands=3,
        text="smaller(larger({0}, {1}), {2})", numpy=lambda a, low, high: np.minimum(
            np.maximum(a, low), high), types=NUMBERS, cost=costs(2, 2, 2, 4, 7), flops=2,
    ),
)  # fmt: skip

ELEMENT_OPS: dict[str, ElementOp] = {op.name: op for op in (*_UNARY, *_BINARY, *_TERNARY)}
