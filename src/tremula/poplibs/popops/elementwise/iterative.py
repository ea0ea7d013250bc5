"""Element-wise operations that take as many turns as their operands say, or until digits are right.

Divisors of whole numbers, polynomials by their recurrence, and the series of functions of two
arguments. Costs are those of a turn times the turns that usual operands take.
"""

# ruff: noqa: ANN001, ANN201
# Types convert when they are called in functions of a tile, which pyright cannot know.
# pyright: reportOperatorIssue=false, reportArgumentType=false, reportCallIssue=false
import math
from collections.abc import Callable

import numpy as np

from tremula.base.types import (
    FLOAT,
    INT,
    SHORT,
    SIGNED_CHAR,
    UNSIGNED_CHAR,
    Type,
    float32,
    int32,
    int64,
)
from tremula.poplibs.popops.elementwise.element_op import ElementOp, VectorCost

# -- on a tile -------------------------------------------------------------------------------------


def greatest_divisor(a, b):
    """Euclid's algorithm."""
    rest, divisor = int64(abs(a)), int64(abs(b))
    while divisor > 0:
        last = divisor
        divisor = rest % divisor
        rest = last
    return rest


def chebyshev_of(x, first, n):
    """Values of degree 0 and 1 are 1 and `first`; a negative degree gives 0."""
    last, value, left = x + x - first, float32(1), int32(n)
    while left > 0:
        following = (x + x) * value - last
        last = value
        value = following
        left = left - 1
    return value if n > float32(-1) else float32(0)


def hermite_of(x, n):
    last, value, step, left = float32(0), float32(1), float32(0), int32(n)
    while left > 0:
        following = float32(2) * (x * value - step * last)
        last = value
        value = following
        step = step + float32(1)
        left = left - 1
    return value if n > float32(-1) else float32(0)


def hermite_e_of(x, n):
    last, value, step, left = float32(0), float32(1), float32(0), int32(n)
    while left > 0:
        following = x * value - step * last
        last = value
        value = following
        step = step + float32(1)
        left = left - 1
    return value if n > float32(-1) else float32(0)


def laguerre_of(x, n):
    last, value, step, left = float32(0), float32(1), float32(0), int32(n)
    while left > 0:
        following = ((step + step + float32(1) - x) * value - step * last) / (step + float32(1))
        last = value
        value = following
        step = step + float32(1)
        left = left - 1
    return value if n > float32(-1) else float32(0)


def legendre_of(x, n):
    last, value, step, left = float32(0), float32(1), float32(0), int32(n)
    while left > 0:
        following = ((step + step + float32(1)) * x * value - step * last) / (step + float32(1))
        last = value
        value = following
        step = step + float32(1)
        left = left - 1
    return value if n > float32(-1) else float32(0)


def hurwitz_of(s, q):
    """Terms up to a base above 9, then the first terms of Euler's and Maclaurin's remainder."""
    base, total, left = q, q ** (-s), int32(300)
    while left > 291 or (base <= float32(9) and left > 0):
        base = base + float32(1)
        total = total + base ** (-s)
        left = left - 1
    last = base ** (-s)
    total = total + last * base / (s - float32(1)) - float32(0.5) * last
    term = s * last / base
    total = total + term / float32(12)
    term = term * (s + float32(1)) * (s + float32(2)) / (base * base)
    total = total - term / float32(720)
    term = term * (s + float32(3)) * (s + float32(4)) / (base * base)
    total = total + term / float32(30240)
    term = term * (s + float32(5)) * (s + float32(6)) / (base * base)
    return total - term / float32(1209600)


def gamma_series_of(a, x):
    """1 + x / (a + 1) + x² / ((a + 1) (a + 2)) + …"""
    bottom, term, total, left = a, float32(1), float32(1), int32(400)
    while left > 0 and abs(term) > float32(3e-8) * abs(total):
        bottom = bottom + float32(1)
        term = term * x / bottom
        total = total + term
        left = left - 1
    return total


def gamma_fraction_of(a, x):
    """Lentz' way to compute 1 / (x + 1 - a - 1 (1 - a) / (x + 3 - a - …))."""
    b = x + float32(1) - a
    c, d, step, change, left = float32(1e30), float32(1) / b, float32(0), float32(2), int32(400)
    value = d
    while left > 0 and abs(change - float32(1)) > float32(6e-8):
        step = step + float32(1)
        top = step * (a - step)
        b = b + float32(2)
        d = top * d + b
        d = float32(1) / (d if abs(d) > float32(1e-30) else float32(1e-30))
        c = b + top / c
        c = c if abs(c) > float32(1e-30) else float32(1e-30)
        change = d * c
        value = value * change
        left = left - 1
    return value


def poisson_quantile_of(rate, share):
    """The least number whose cumulated probability reaches a share, up to rates of about 80."""
    term, step, left = math.exp(-rate), float32(0), int32(1000)
    total = term
    while total < share and left > 0 and term > float32(0):
        step = step + float32(1)
        term = term * rate / step
        total = total + term
        left = left - 1
    return step


# -- in NumPy --------------------------------------------------------------------------------------


def _by_element(function: Callable[..., float]) -> Callable[..., np.ndarray]:
    return np.vectorize(function, otypes=[np.float64])  # without types it rejects empty arrays


def _by_series(evaluate: Callable) -> Callable[..., np.ndarray]:
    """A polynomial of numpy.polynomial by its degree."""

    def value(x: float, n: float) -> float:
        return 0.0 if n <= -1 else float(evaluate(x, [0.0] * int(n) + [1.0]))

    return _by_element(value)


def _chebyshev(x: float, first: float, n: float) -> float:
    last, value = 2 * x - first, 1.0
    for _ in range(int(n)):
        last, value = value, 2 * x * value - last
    return 0.0 if n <= -1 else value


def _hurwitz(s: float, q: float) -> float:
    """The plain sum, and the integral of what it leaves out."""
    bases = q + np.arange(20_000.0)
    return float((bases**-s).sum() + (bases[-1] + 0.5) ** (1 - s) / (s - 1))


def _gamma_series(a: float, x: float) -> float:
    return 1.0 + float(np.cumprod(x / (a + np.arange(1.0, 200.0))).sum())


def _gamma_fraction(a: float, x: float) -> float:
    """From the innermost of many steps outwards."""
    value = x + 401 - a
    for step in range(200, 0, -1):
        value = x + 2 * step - 1 - a + step * (a - step) / value
    return 1 / value


def _poisson_quantile(rate: float, share: float) -> float:
    steps = np.arange(1.0, 200.0)
    probabilities = math.exp(-rate) * np.concatenate([[1.0], np.cumprod(rate / steps)])
    return float((probabilities.cumsum() < share).sum())


# -- rows ------------------------------------------------------------------------------------------


def _small(element: Type, index: int) -> tuple[int, int] | None:  # noqa: ARG001
    return (0, 100)


_WHOLE = (INT, SHORT, SIGNED_CHAR, UNSIGNED_CHAR)
_TURN_SLOTS = 6  # a step of a recurrence, with its branch
_DIVIDED_SLOTS = 14  # the same with a division
_POWER_SLOTS = 320  # a term of a sum of powers


def _row(
    name: str, about: str, tile: Callable, numpy: Callable, slots: int,
    domain: tuple[float, float] = (-3.0, 5.0), n_operands: int = 2,
) -> ElementOp:  # fmt: skip
    return ElementOp(
        name=name, about=about, n_operands=n_operands, tile=tile, numpy=numpy, types=(FLOAT,),
        cost={"FLOAT": VectorCost(slots)}, domain=domain, flops=slots // 2,
        tolerance={"FLOAT": 1e-4},
    )  # fmt: skip


REPEATED = (
    ElementOp(
        name="gcd", about="The greatest common divisor; 0 of two zeros.", n_operands=2,
        tile=greatest_divisor, numpy=np.gcd, types=_WHOLE, cost={"INT": VectorCost(200)},
        integers=_small,
    ),
    _row("chebyshev", "Chebyshev's recurrence: x, the value of degree 1, the degree.",
         chebyshev_of, _by_element(_chebyshev), 8 * _TURN_SLOTS, n_operands=3),
    _row("hermite", "Hermite's polynomial of a degree, as physicists define it.", hermite_of,
         _by_series(np.polynomial.hermite.hermval), 8 * _TURN_SLOTS),
    _row("hermite_e", "Hermite's polynomial of a degree, as statisticians define it.",
         hermite_e_of, _by_series(np.polynomial.hermite_e.hermeval), 8 * _TURN_SLOTS),
    _row("laguerre", "Laguerre's polynomial of a degree.", laguerre_of,
         _by_series(np.polynomial.laguerre.lagval), 8 * _DIVIDED_SLOTS),
    _row("legendre", "Legendre's polynomial of a degree.", legendre_of,
         _by_series(np.polynomial.legendre.legval), 8 * _DIVIDED_SLOTS),
    _row("hurwitz_zeta", "The sum of (q + k) to the power of -s, for s and q.", hurwitz_of,
         _by_element(_hurwitz), 10 * _POWER_SLOTS, (2.0, 9.0)),
    _row("gamma_series", "The series of the lower incomplete gamma function, for a and x.",
         gamma_series_of, _by_element(_gamma_series), 20 * _DIVIDED_SLOTS, (0.5, 4.0)),
    _row("gamma_fraction", "The continued fraction of the upper incomplete gamma function.",
         gamma_fraction_of, _by_element(_gamma_fraction), 20 * _DIVIDED_SLOTS, (1.0, 4.0)),
    _row("poisson_quantile", "The number of events whose cumulated probability reaches a share.",
         poisson_quantile_of, _by_element(_poisson_quantile), 10 * _DIVIDED_SLOTS, (0.05, 0.95)),
)  # fmt: skip
