"""Lowerings of special functions of mathematics: formulas that keep the digits of a float."""

import math
from functools import partial

from tremula.base.types import FLOAT
from tremula.ir.lowering.pointwise.map import Formula, mapped
from tremula.ir.lowering.pointwise.unary import erfc_tail, polynomial
from tremula.ir.lowering.tiles import Tiles
from tremula.ir.op_table import lowers
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise import expr
from tremula.poplibs.popops.elementwise.expr import Expr

_N_SHIFT = 6  # steps by which an argument is raised before its series for large ones is used


# -- the gamma function and its derivatives --------------------------------------------------------

# Lanczos' series (Press et al., Numerical Recipes, 6.1), with its offset.
_LANCZOS = (
    76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155,
    0.1208650973866179e-2, -0.5395239384953e-5,
)  # fmt: skip
_LANCZOS_OFFSET = 5.5
# Bernoulli's numbers B2, B4, B6, B8, which series for large arguments are made of.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30)


def _sine_of_turns(x: Expr) -> tuple[Expr, Expr]:
    """The fractional part of x, and |sin πx|."""
    part = x - expr.floor(x)
    return part, expr.sin(part * math.pi)


def _lgamma(x: Expr) -> Expr:
    """Below 1/2 by its reflection at 1/2."""
    is_low = x < 0.5
    z = expr.select(1 - x, x, is_low) - 1
    total: Expr | float = 1.000000000190015
    for place, coefficient in enumerate(_LANCZOS, start=1):
        total = total + coefficient / (z + place)
    t = z + _LANCZOS_OFFSET
    high = (z + 0.5) * (expr.log(t) - 1) - 5 + expr.log(total * math.sqrt(2 * math.pi))
    _, sine = _sine_of_turns(x)
    found = expr.select(expr.log(math.pi / sine) - high, high, is_low)
    return expr.select(math.inf, found, abs(x) == math.inf)


def _digamma(x: Expr) -> Expr:
    is_low = x < 0.5
    z = expr.select(1 - x, x, is_low)
    total = expr.inv(z)
    for step in range(1, _N_SHIFT):
        total = total + expr.inv(z + step)
    z = z + _N_SHIFT
    square = expr.inv(z * z)
    series = square * (1 / 12 - square * (1 / 120 - square * (1 / 252)))
    high = expr.log(z) - 0.5 / z - series - total
    part, sine = _sine_of_turns(x)
    low = high - math.pi * expr.cos(part * math.pi) / sine
    low = expr.select(math.nan, low, (part == 0.0) & (x < 0))
    return expr.select(low, high, is_low)


def _zeta_from(s: int, x: Expr) -> Expr:
    """The sum of 1 / (x + k)^s over all k (Euler and Maclaurin), for x above 0."""
    total = _power(expr.inv(x), s)
    for step in range(1, _N_SHIFT):
        total = total + _power(expr.inv(x + step), s)
    inverse = expr.inv(x + _N_SHIFT)
    last = _power(inverse, s)
    total = total + last * ((x + _N_SHIFT) * (1 / (s - 1)) + 0.5)
    factor, term = s / 2, last * inverse
    for j, number in enumerate(_BERNOULLI, start=1):
        total = total + number * factor * term
        factor *= (s + 2 * j - 1) * (s + 2 * j) / ((2 * j + 1) * (2 * j + 2))
        term = term * inverse * inverse
    return total


def _power(x: Expr, n: int) -> Expr:
    result = x
    for _ in range(n - 1):
        result = result * x
    return result


def _trigamma(x: Expr) -> Expr:
    is_low = x < 0.5
    high = _zeta_from(2, expr.select(1 - x, x, is_low))
    _, sine = _sine_of_turns(x)
    return expr.select(math.pi**2 / (sine * sine) - high, high, is_low)


def _polygamma(order: int, x: Expr) -> Expr:
    if order < 2:
        return (_digamma, _trigamma)[order](x)
    sign = 1 if order % 2 else -1
    found = sign * math.factorial(order) * _zeta_from(order + 1, x)
    return expr.select(found, math.nan, x > 0)


@lowers("polygamma", calls="popops.map")
def polygamma(tiles: Tiles, n: int, x: Tensor) -> Tensor:
    return mapped(tiles, partial(_polygamma, n), x, type=FLOAT)


# -- Bessel functions of an imaginary argument -----------------------------------------------------

# Abramowitz and Stegun 9.8.1 to 9.8.4, highest power first, in (x / 3.75)² and in 3.75 / x.
_I0_NEAR = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
_I0_FAR = (
    0.00392377, -0.01647633, 0.02635537, -0.02057706, 0.00916281, -0.00157565, 0.00225319,
    0.01328592, 0.39894228,
)  # fmt: skip
_I1_NEAR = (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5)
_I1_FAR = (
    -0.00420059, 0.01787654, -0.02895312, 0.02282967, -0.01031555, 0.00163801, -0.00362018,
    -0.03988024, 0.39894228,
)  # fmt: skip
_BORDER = 3.75


def _bessel(order: int, is_scaled: bool, x: Expr) -> Expr:
    """I0 or I1, or that divided by e^|x|."""
    near_fit, far_fit = ((_I0_NEAR, _I0_FAR), (_I1_NEAR, _I1_FAR))[order]
    size = abs(x)
    near = polynomial(near_fit, x * x * (1 / _BORDER**2)) * (x if order else 1.0)
    far = (
        polynomial(far_fit, _BORDER / size) * expr.rsqrt(size) * (expr.signum(x) if order else 1.0)
    )
    if is_scaled:
        near = near * expr.exp(-size)
    else:
        far = far * expr.exp(size)
    return expr.select(near, far, size <= _BORDER)


def _erfcx(x: Expr) -> Expr:
    """The complement of erf times e^(x²), which below 0 grows."""
    tail = erfc_tail(x)
    return expr.select(tail, 2 * expr.exp(x * x) - tail, x >= 0)


_FORMULAS: dict[str, Formula] = {
    "lgamma": _lgamma,
    "digamma": _digamma,
    "i0": partial(_bessel, 0, False),
    "special_i0e": partial(_bessel, 0, True),
    "special_i1": partial(_bessel, 1, False),
    "special_i1e": partial(_bessel, 1, True),
    "special_erfcx": _erfcx,
}


def _enter(name: str, formula: Formula) -> None:
    @lowers(name, calls="popops.map")
    def special(tiles: Tiles, x: Tensor) -> Tensor:
        return mapped(tiles, formula, x, type=FLOAT)


for _name, _formula in _FORMULAS.items():
    _enter(_name, _formula)
