"""Lowerings of element-wise operations on one operand: a table of formulas."""

import math

from tremula.base.types import BOOL, FLOAT, HALF
from tremula.ir.lowering.pointwise.map import Formula, mapped
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs import poputil
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Cast, Expr

_HUGE = 1e9  # beyond this, adding 1 is lost in a float

# -- functions of floats ---------------------------------------------------------------------------


def _with_sign_of(x: Expr, size: Expr) -> Expr:
    return expr.signum(x) * size


def _sinh(x: Expr) -> Expr:
    """From e^|x| - 1, which keeps the digits of small x."""
    more = expr.expm1(abs(x))
    twice = expr.select(more, more + more / (more + 1), more > _HUGE)
    return _with_sign_of(x, twice * 0.5)


def _cosh(x: Expr) -> Expr:
    power = expr.exp(abs(x))
    return (power + expr.inv(power)) * 0.5


def _asinh(x: Expr) -> Expr:
    size = abs(x)
    inverse = expr.inv(size)
    return _with_sign_of(x, expr.log1p(size + size / (inverse + expr.sqrt(1 + inverse * inverse))))


def _acosh(x: Expr) -> Expr:
    above = x - 1
    return expr.log1p(above + expr.sqrt(above) * expr.sqrt(above + 2))


def _atanh(x: Expr) -> Expr:
    size = abs(x)
    return _with_sign_of(x, expr.log1p(2 * size / (1 - size)) * 0.5)


# A Chebyshev fit of erfc (Press et al., Numerical Recipes, 6.2): relative error below 1.2e-7.
_ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398,
    1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip


def erfc_tail(x: Expr) -> Expr:
    """The complement of erf at |x|, times e^(x²)."""
    t = 1 / (1 + 0.5 * abs(x))
    return t * expr.exp(polynomial(_ERFC[::-1], t))


def _erfc(x: Expr) -> Expr:
    t = 1 / (1 + 0.5 * abs(x))
    tail = t * expr.exp(polynomial(_ERFC[::-1], t) - x * x)
    return expr.select(tail, 2 - tail, x >= 0)


# Giles, "Approximating the erfinv function": two polynomials in w = -log(1 - x²), for floats.
_ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def polynomial(coefficients: tuple[float, ...], x: Expr) -> Expr:
    """Its value at x; the highest power comes first."""
    value: Expr | float = coefficients[0]
    for coefficient in coefficients[1:]:
        value = coefficient + value * x
    return expr.as_expr(value)


def _erfinv(x: Expr) -> Expr:
    w = -expr.log((1 - x) * (1 + x))
    near = polynomial(_ERFINV_NEAR, w - 2.5)
    far = polynomial(_ERFINV_FAR, expr.sqrt(w) - 3)
    inside = expr.select(near, far, w < 5.0) * x
    return expr.select(x * math.inf, inside, abs(x) == 1.0)


# One instruction loop each: halves are computed as halves.
_SINGLE: dict[str, Formula] = {
    "exp": expr.exp,
    "exp2": expr.exp2,
    "expm1": expr.expm1,
    "log": expr.log,
    "log1p": expr.log1p,
    "sqrt": expr.sqrt,
    "rsqrt": expr.rsqrt,
    "reciprocal": expr.inv,
    "sin": expr.sin,
    "cos": expr.cos,
    "tan": expr.tan,
    "asin": expr.asin,
    "atan": lambda x: expr.atan2(x, 1.0),
    "tanh": expr.tanh,
    "sigmoid": expr.sigmoid,
    "erf": expr.erf,
}
# Several steps: halves are computed as floats and rounded once, as PyTorch does.
_COMPOUND: dict[str, Formula] = {
    "log2": lambda x: expr.log(x) * (1 / math.log(2)),
    "log10": lambda x: expr.log(x) * (1 / math.log(10)),
    "acos": lambda x: expr.atan2(expr.sqrt((1 - x) * (1 + x)), x),
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "erfc": _erfc,
    "erfinv": _erfinv,
    "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi),
    "frac": lambda x: x - expr.trunc(x),
}


def _enter(name: str, formula: Formula, is_compound: bool) -> None:
    @lowers(name, calls="popops.map")
    def unary(tiles: Tiles, x: Tensor) -> Tensor:
        return mapped(tiles, formula, x, type=FLOAT if is_compound else tiles.out_type)


for _table in (_SINGLE, _COMPOUND):
    for _name, _formula in _table.items():
        _enter(_name, _formula, _table is _COMPOUND)


# -- sign and size ---------------------------------------------------------------------------------


@lowers("neg", calls="popops.neg")
def neg(tiles: Tiles, x: Tensor) -> Tensor:
    is_unsigned = x.type.dtype.kind == "u"
    return mapped(tiles, (lambda x: 0 - x) if is_unsigned else expr.neg, x)


def _enter_signed(name: str, formula: Formula) -> None:
    @lowers(name, calls=f"popops.{name}")
    def signed(tiles: Tiles, x: Tensor) -> Tensor:
        if x.type.dtype.kind == "u":  # never negative
            return mapped(tiles, lambda x: expr.minimum(x, 1), x) if name == "sign" else x
        return x if x.type == BOOL else mapped(tiles, formula, x)


def _sign(x: Expr) -> Expr:
    return expr.signum(x)


_enter_signed("abs", expr.abs)
_enter_signed("sign", _sign)
_enter_signed("sgn", _sign)
_enter_signed("relu", expr.relu)


@lowers("signbit", calls="popops.map")
def signbit(tiles: Tiles, x: Tensor) -> Tensor:
    """The sign of -0 counts for floats: it shows in 1 / x."""
    if x.type == BOOL or x.type.dtype.kind == "u":
        return _all_alike(tiles, False)
    if not x.type.is_floating:
        return mapped(tiles, lambda x: x < 0, x)
    return mapped(tiles, lambda x: (x < 0) | ((x == 0) & (expr.inv(x) < 0)), x)


# -- whole numbers ---------------------------------------------------------------------------------


def _enter_rounding(name: str, formula: Formula) -> None:
    @lowers(name, calls="popops.map")
    def rounded(tiles: Tiles, x: Tensor) -> Tensor:
        return mapped(tiles, formula, x) if x.type.is_floating else x


_enter_rounding("floor", expr.floor)
_enter_rounding("ceil", expr.ceil)
_enter_rounding("trunc", expr.trunc)
_enter_rounding("round", expr.nearbyint)


@lowers("round.decimals", calls="popops.map")
def round_decimals(tiles: Tiles, x: Tensor, *, decimals: int = 0) -> Tensor:
    if not x.type.is_floating:
        return x
    scale = 10.0 ** abs(decimals)
    if decimals < 0:
        return mapped(tiles, lambda x, s: expr.nearbyint(x / s) * s, x, scale, type=FLOAT)
    return mapped(tiles, lambda x, s: expr.nearbyint(x * s) / s, x, scale, type=FLOAT)


# -- tests -----------------------------------------------------------------------------------------


def _all_alike(tiles: Tiles, value: bool) -> Tensor:
    return poputil.broadcast_view(tiles.constant(value, BOOL), tiles.out_shape)


def _enter_test(name: str, formula: Formula, of_integers: bool) -> None:
    @lowers(name, calls="popops.map")
    def tested(tiles: Tiles, x: Tensor) -> Tensor:
        if not x.type.is_floating:
            return _all_alike(tiles, of_integers)
        return mapped(tiles, formula, x)


_enter_test("isnan", expr.is_nan, False)
_enter_test("isinf", expr.is_inf, False)
_enter_test("isfinite", expr.is_finite, True)
_enter_test("isposinf", lambda x: x == math.inf, False)
_enter_test("isneginf", lambda x: x == -math.inf, False)


@lowers("nan_to_num", calls="popops.map")
def nan_to_num(
    tiles: Tiles,
    x: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    if not x.type.is_floating:
        return x
    largest = float(65504 if x.type == HALF else 3.4028234663852886e38)
    posinf, neginf = largest if posinf is None else posinf, -largest if neginf is None else neginf

    def formula(x: Expr, none: Expr, high: Expr, low: Expr) -> Expr:
        finite = expr.select(high, expr.select(low, x, x == -math.inf), x == math.inf)
        return expr.select(none, finite, expr.is_nan(x))

    return mapped(tiles, formula, x, nan or 0, posinf, neginf, type=x.type)


@lowers("logical_not", calls="popops.logical_not")
def logical_not(tiles: Tiles, x: Tensor) -> Tensor:
    return mapped(tiles, expr.logical_not if x.type == BOOL else lambda x: x == 0, x)


@lowers("bitwise_not", calls="popops.bitwise_not")
def bitwise_not(tiles: Tiles, x: Tensor) -> Tensor:
    return mapped(tiles, expr.bitwise_not, x)


# -- types -----------------------------------------------------------------------------------------


@lowers("_to_copy", calls="popops.cast")
def to_copy(tiles: Tiles, x: Tensor, **_options: object) -> Tensor:
    """Values never change, so a copy that keeps the type is the tensor."""
    if x.type == tiles.out_type:
        return x
    if tiles.destination is not None:
        return mapped(tiles, lambda x: Cast(x, tiles.out_type), x)
    return tiles.cast(x, tiles.out_type)
