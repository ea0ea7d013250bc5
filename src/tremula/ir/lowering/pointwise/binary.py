"""Lowerings of element-wise operations on two and three operands: one formula each."""

import math

import torch

from tremula.base.types import BOOL, Type
from tremula.ir.lowering.pointwise.map import Formula, Operand, common_type, mapped, number
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Expr


def operands(tiles: Tiles, type: Type, *values: Operand) -> list[Tensor]:
    """All operands as tensors of one type; numbers become constants."""
    return [
        tiles.cast(value, type) if isinstance(value, Tensor) else tiles.constant(value, type)
        for value in values
    ]


# -- arithmetic: computed in the type of the result ------------------------------------------------


def _in_result_type(tiles: Tiles, formula: Formula, *values: Operand) -> Tensor:
    return mapped(tiles, formula, *values, type=tiles.out_type)


def _scaled(b: Operand, alpha: float) -> Operand | None:
    """A number times alpha; None if b is a tensor."""
    return None if isinstance(b, Tensor) else b * alpha


@lowers("add.Tensor", "add.Scalar", calls="popops.map")
def add(tiles: Tiles, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    if tiles.out_type == BOOL:
        return _in_result_type(tiles, expr.logical_or, a, b)
    if alpha == 1:
        return _in_result_type(tiles, expr.add, a, b)
    if (scaled := _scaled(b, alpha)) is not None:
        return _in_result_type(tiles, expr.add, a, scaled)
    return _in_result_type(tiles, lambda x, y, s: x + y * s, a, b, alpha)


@lowers("sub.Tensor", "sub.Scalar", calls="popops.map")
def sub(tiles: Tiles, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    if alpha == 1:
        return _in_result_type(tiles, expr.sub, a, b)
    if (scaled := _scaled(b, alpha)) is not None:
        return _in_result_type(tiles, expr.sub, a, scaled)
    return _in_result_type(tiles, lambda x, y, s: x - y * s, a, b, alpha)


@lowers("rsub.Tensor", "rsub.Scalar", calls="popops.map")
def rsub(tiles: Tiles, a: Operand, b: Operand, alpha: float = 1) -> Tensor:
    if alpha == 1:
        return _in_result_type(tiles, expr.sub, b, a)
    return _in_result_type(tiles, lambda x, y, s: y - x * s, a, b, alpha)


@lowers("mul.Tensor", "mul.Scalar", calls="popops.map")
def mul(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.logical_and if tiles.out_type == BOOL else expr.mul, a, b)


@lowers("div.Tensor", "div.Scalar", "true_divide.Tensor", calls="popops.map")
def div(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.div, a, b)


@lowers("div.Tensor_mode", "div.Scalar_mode", calls="popops.map")
def div_mode(tiles: Tiles, a: Operand, b: Operand, rounding_mode: str | None = None) -> Tensor:
    is_whole = not tiles.out_type.is_floating
    if rounding_mode == "floor":
        return floor_divide(tiles, a, b)
    if rounding_mode is None or is_whole:
        return _in_result_type(tiles, expr.div, a, b)
    return _in_result_type(tiles, lambda x, y: expr.trunc(x / y), a, b)


@lowers("floor_divide", "floor_divide.Scalar", calls="popops.map")
def floor_divide(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    formula = _floor_quotient if tiles.out_type.is_floating else _floor_quotient_of_integers
    return _in_result_type(tiles, formula, a, b)


def _has_other_sign(remainder: Expr, divisor: Expr) -> Expr:
    return (remainder != 0) & ((remainder < 0) ^ (divisor < 0))


def _floor_quotient_of_integers(a: Expr, b: Expr) -> Expr:
    quotient = a / b
    return expr.select(quotient - 1, quotient, _has_other_sign(a % b, b))


def _floor_quotient(a: Expr, b: Expr) -> Expr:
    """As Python divides floats: from the exact remainder, so that rounding cannot carry over."""
    remainder = a % b
    quotient = (a - remainder) / b
    lower = expr.select(quotient - 1, quotient, _has_other_sign(remainder, b))
    whole = expr.floor(lower)
    nearest = expr.select(whole + 1, whole, lower - whole > 0.5)
    return expr.select(a / b, nearest, b == 0)


@lowers("remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor", calls="popops.map")
def remainder(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    def formula(x: Expr, y: Expr) -> Expr:
        rest = x % y
        return expr.select(rest + y, rest, _has_other_sign(rest, y))

    return _in_result_type(tiles, formula, a, b)


@lowers("fmod.Tensor", "fmod.Scalar", calls="popops.map")
def fmod(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.rem, a, b)


@lowers("gcd", calls="popops.map")
def gcd(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.gcd, a, b)


@lowers("lcm", calls="popops.map")
def lcm(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    """Divided before it is multiplied; 0 if either is."""
    return _in_result_type(tiles, lambda x, y: abs(x / expr.gcd(x, y) * y), a, b)


@lowers("maximum", calls="popops.map")
def maximum(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    is_bool = tiles.out_type == BOOL
    return _in_result_type(tiles, expr.logical_or if is_bool else expr.maximum, a, b)


@lowers("minimum", calls="popops.map")
def minimum(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    is_bool = tiles.out_type == BOOL
    return _in_result_type(tiles, expr.logical_and if is_bool else expr.minimum, a, b)


def _enter_number_first(name: str, formula: Formula) -> None:
    @lowers(name, calls="popops.map")
    def number_first(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
        """As maximum or minimum, except that a number wins over NaN."""

        def chosen(x: Expr, y: Expr) -> Expr:
            return expr.select(y, expr.select(x, formula(x, y), y != y), x != x)  # noqa: PLR0124

        return _in_result_type(tiles, chosen, a, b)


_enter_number_first("fmax", expr.maximum)
_enter_number_first("fmin", expr.minimum)


@lowers("copysign.Tensor", "copysign.Scalar", calls="popops.map")
def copysign(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    """The sign of -0 counts: it shows in 1 / b."""

    def formula(x: Expr, y: Expr) -> Expr:
        is_negative = (y < 0) | ((y == 0) & (expr.inv(y) < 0))
        return expr.select(-abs(x), abs(x), is_negative)

    return _in_result_type(tiles, formula, a, b)


@lowers("ldexp.Tensor", calls="popops.map")
def ldexp(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, lambda x, y: x * expr.exp2(y), a, b)


@lowers("hypot", calls="popops.map")
def hypot(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    """Scaled by the larger side, so that squares do not overflow."""

    def formula(x: Expr, y: Expr) -> Expr:
        long, short = expr.maximum(abs(x), abs(y)), expr.minimum(abs(x), abs(y))
        ratio = short / long
        plain = (long == 0) | (long == math.inf)
        return expr.select(long, long * expr.sqrt(1 + ratio * ratio), plain)

    return _in_result_type(tiles, formula, a, b)


@lowers("atan2", calls="popops.map")
def atan2(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.atan2, a, b)


@lowers("addcmul", calls="popops.map")
def addcmul(tiles: Tiles, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    if value == 1:
        return _in_result_type(tiles, lambda x, a, b: x + a * b, x, a, b)
    return _in_result_type(tiles, lambda x, a, b, s: x + s * a * b, x, a, b, value)


@lowers("addcdiv", calls="popops.map")
def addcdiv(tiles: Tiles, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
    if value == 1:
        return _in_result_type(tiles, lambda x, a, b: x + a / b, x, a, b)
    return _in_result_type(tiles, lambda x, a, b, s: x + s * a / b, x, a, b, value)


@lowers("lerp.Scalar", "lerp.Tensor", calls="popops.map")
def lerp(tiles: Tiles, start: Tensor, end: Tensor, weight: Operand) -> Tensor:
    """From the nearer end, as PyTorch does, so that weight 1 gives exactly the end."""

    def formula(a: Expr, b: Expr, w: Expr) -> Expr:
        return expr.select(a + w * (b - a), b - (b - a) * (1 - w), abs(w) < 0.5)

    return _in_result_type(tiles, formula, start, end, weight)


# -- powers ----------------------------------------------------------------------------------------

# Powers that are cheaper than a power: (exponent, formula).
_EASY_POWERS: dict[float, Formula] = {
    2: expr.square,
    3: lambda x: expr.square(x) * x,
    4: lambda x: expr.square(expr.square(x)),
}
_EASY_FLOAT_POWERS: dict[float, Formula] = {
    **_EASY_POWERS,
    0.5: expr.sqrt,
    -0.5: expr.rsqrt,
    -1: expr.inv,
    -2: lambda x: expr.inv(expr.square(x)),
}


@lowers("pow.Tensor_Tensor", "pow.Scalar", calls="popops.map")
def power(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.pow, a, b)


@lowers("pow.Tensor_Scalar", calls="popops.map")
def power_of_number(tiles: Tiles, a: Tensor, b: float) -> Tensor:
    table = _EASY_FLOAT_POWERS if tiles.out_type.is_floating else _EASY_POWERS
    if b == 1:
        return tiles.cast(a, tiles.out_type)
    if b in table:
        return _in_result_type(tiles, table[b], a)
    return power(tiles, a, b)


# -- bits and truth --------------------------------------------------------------------------------

_BITS: dict[str, Formula] = {
    "bitwise_and": expr.bitwise_and,
    "bitwise_or": expr.bitwise_or,
    "bitwise_xor": expr.bitwise_xor,
}


def _enter_bits(name: str, formula: Formula) -> None:
    forms = [f"{name}.{form}" for form in ("Tensor", "Scalar", "Scalar_Tensor")]

    @lowers(*forms, calls="popops.map")
    def bitwise(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
        return _in_result_type(tiles, formula, a, b)


for _name, _formula in _BITS.items():
    _enter_bits(_name, _formula)


def _shift_forms(name: str) -> list[str]:
    old = {"left": "__lshift__", "right": "__rshift__"}[name]
    forms = ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    return [f"bitwise_{name}_shift.{f}" for f in forms] + [f"{old}.Tensor", f"{old}.Scalar"]


@lowers(*_shift_forms("left"), calls="popops.map")
def shift_left(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    return _in_result_type(tiles, expr.shift_left, a, b)


@lowers(*_shift_forms("right"), calls="popops.map")
def shift_right(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
    is_signed = tiles.out_type.dtype.kind == "i"
    formula = expr.shift_right_sign_extend if is_signed else expr.shift_right
    return _in_result_type(tiles, formula, a, b)


def _enter_logic(name: str, formula: Formula) -> None:
    @lowers(name, calls="popops.map")
    def logical(tiles: Tiles, a: Tensor, b: Tensor) -> Tensor:
        return mapped(tiles, formula, a, b, type=BOOL)


_enter_logic("logical_and", expr.logical_and)
_enter_logic("logical_or", expr.logical_or)
_enter_logic("logical_xor", expr.bitwise_xor)


# -- comparisons: computed in the type both operands are promoted to -------------------------------


def _enter_comparison(name: str, formula: Formula) -> None:
    @lowers(f"{name}.Tensor", f"{name}.Scalar", calls="popops.map")
    def compare(tiles: Tiles, a: Tensor, b: Operand) -> Tensor:
        return mapped(tiles, formula, a, b, type=common_type(tiles))


for _name, _formula in (
    ("eq", expr.eq),
    ("ne", expr.neq),
    ("lt", expr.lt),
    ("le", expr.lteq),
    ("gt", expr.gt),
    ("ge", expr.gteq),
):
    _enter_comparison(_name, _formula)


# -- choices ---------------------------------------------------------------------------------------


@lowers(
    "where.self", "where.Scalar", "where.ScalarSelf", "where.ScalarOther", calls="popops.select"
)
def where(tiles: Tiles, condition: Tensor, a: Operand, b: Operand) -> Tensor:
    return _chosen(tiles, condition, a, b)


@lowers("masked_fill.Scalar", "masked_fill.Tensor", calls="popops.select")
def masked_fill(tiles: Tiles, x: Tensor, mask: Tensor, value: Operand) -> Tensor:
    return _chosen(tiles, mask, value, x)


def _chosen(tiles: Tiles, condition: Tensor, a: Operand, b: Operand) -> Tensor:
    """`a` where the condition holds. Its operands differ in type, so they are converted here."""
    type = tiles.out_type
    a, b = (v if isinstance(v, Tensor) else tiles.constant(number(v, type), type) for v in (a, b))

    def formula(x: Expr, y: Expr, c: Expr) -> Expr:
        x, y = (e if t.type == type else expr.Cast(e, type) for e, t in ((x, a), (y, b)))
        return expr.select(x, y, c if condition.type == BOOL else c != 0)

    return mapped(tiles, formula, a, b, condition)


@lowers("clamp", "clamp.Tensor", "hardtanh", calls="popops.clamp")
def clamp(
    tiles: Tiles, x: Tensor, low: Operand | None = None, high: Operand | None = None
) -> Tensor:
    """NaN stays NaN; where the bounds cross, the upper one wins."""
    if tiles.node.target is torch.ops.aten.hardtanh.default:
        low, high = -1 if low is None else low, 1 if high is None else high
    if low is not None and high is not None:
        return _in_result_type(tiles, expr.clamp, x, low, high)
    if low is not None:
        return _in_result_type(tiles, expr.maximum, x, low)
    return x if high is None else _in_result_type(tiles, expr.minimum, x, high)


@lowers("clamp_min", "clamp_min.Tensor", calls="popops.maximum")
def clamp_min(tiles: Tiles, x: Tensor, low: Operand) -> Tensor:
    return _in_result_type(tiles, expr.maximum, x, low)


@lowers("clamp_max", "clamp_max.Tensor", calls="popops.minimum")
def clamp_max(tiles: Tiles, x: Tensor, high: Operand) -> Tensor:
    return _in_result_type(tiles, expr.minimum, x, high)
