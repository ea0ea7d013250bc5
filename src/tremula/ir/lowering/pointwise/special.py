"""Lowerings of special functions of mathematics: formulas that keep the digits of a float."""

import math
from collections.abc import Callable
from functools import partial

from tremula.base.types import FLOAT
from tremula.ir.lowering.pointwise.map import Formula, Operand, mapped
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
    for index, coefficient in enumerate(_LANCZOS, start=1):
        total = total + coefficient / (z + index)
    t = z + _LANCZOS_OFFSET
    high = (z + 0.5) * (expr.log(t) - 1) - 5 + expr.log(total * math.sqrt(2 * math.pi))
    _, sine = _sine_of_turns(x)
    result = expr.select(expr.log(math.pi / sine) - high, high, is_low)
    return expr.select(math.inf, result, abs(x) == math.inf)


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
    return sign * math.factorial(order) * _zeta(expr.Const(order + 1.0, FLOAT), x)


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


# -- Bessel functions of a real argument -----------------------------------------------------------

# Abramowitz and Stegun 9.4.1 to 9.4.6, highest power first: in (x / 3)² below 3, in 3 / x above,
# where they are a size and an angle. And 9.8.5 to 9.8.8, with 2 as border.
_J0_NEAR = (0.0002100, -0.0039444, 0.0444479, -0.3163866, 1.2656208, -2.2499997, 1.0)
_Y0_NEAR = (
    -0.00024846, 0.00427916, -0.04261214, 0.25300117, -0.74350384, 0.60559366, 0.36746691,
)  # fmt: skip
_SIZE_0 = (
    0.00014476, -0.00072805, 0.00137237, -0.00009512, -0.00552740, -0.00000077, 0.79788456,
)  # fmt: skip
_ANGLE_0 = (
    0.00013558, -0.00029333, -0.00054125, 0.00262573, -0.00003954, -0.04166397, -0.78539816,
)  # fmt: skip
_J1_NEAR = (0.00001109, -0.00031761, 0.00443319, -0.03954289, 0.21093573, -0.56249985, 0.5)
_Y1_NEAR = (0.0027873, -0.0400976, 0.3123951, -1.3164827, 2.1682709, 0.2212091, -0.6366198)
_SIZE_1 = (
    -0.00020033, 0.00113653, -0.00249511, 0.00017105, 0.01659667, 0.00000156, 0.79788456,
)  # fmt: skip
_ANGLE_1 = (
    -0.00029166, 0.00079824, 0.00074348, -0.00637879, 0.00005650, 0.12499612, -2.35619449,
)  # fmt: skip
_K0_NEAR = (
    0.00000740, 0.00010750, 0.00262698, 0.03488590, 0.23069756, 0.42278420, -0.57721566,
)  # fmt: skip
_K0_FAR = (
    0.00053208, -0.00251540, 0.00587872, -0.01062446, 0.02189568, -0.07832358, 1.25331414,
)  # fmt: skip
_K1_NEAR = (
    -0.00004686, -0.00110404, -0.01919402, -0.18156897, -0.67278579, 0.15443144, 1.0,
)  # fmt: skip
_K1_FAR = (
    -0.00068245, 0.00325614, -0.00780353, 0.01504268, -0.03655620, 0.23498619, 1.25331414,
)  # fmt: skip


def _far_wave(order: int, x: Expr) -> tuple[Expr, Expr]:
    """Size and angle of J and Y above 3."""
    size, angle = ((_SIZE_0, _ANGLE_0), (_SIZE_1, _ANGLE_1))[order]
    return polynomial(size, 3 / x) * expr.rsqrt(x), x + polynomial(angle, 3 / x)


def _near_j(order: int, x: Expr) -> Expr:
    square = x * x * (1 / 9)
    return polynomial(_J1_NEAR, square) * x if order else polynomial(_J0_NEAR, square)


def _bessel_j(order: int, x: Expr) -> Expr:
    size, angle = _far_wave(order, abs(x))
    far = size * expr.cos(angle)
    far = far * expr.signum(x) if order else far
    return expr.select(_near_j(order, x), far, abs(x) <= 3)


def _bessel_y(order: int, x: Expr) -> Expr:
    size, angle = _far_wave(order, x)
    near = (2 / math.pi) * expr.log(x * 0.5) * _near_j(order, x)
    rest = polynomial((_Y0_NEAR, _Y1_NEAR)[order], x * x * (1 / 9))
    near = near + (rest / x if order else rest)
    result = expr.select(near, size * expr.sin(angle), x <= 3)
    return expr.select(expr.select(-math.inf, result, x == 0), math.nan, x >= 0)


def _bessel_k(order: int, is_scaled: bool, x: Expr) -> Expr:
    """K0 or K1, or that times e^x."""
    half = x * 0.5
    near = polynomial((_K0_NEAR, _K1_NEAR)[order], half * half)
    near = near / x if order else near
    near = near + (1 if order else -1) * expr.log(half) * _bessel(order, False, x)
    far = polynomial((_K0_FAR, _K1_FAR)[order], 2 / x) * expr.rsqrt(x)
    if is_scaled:
        near = near * expr.exp(x)
    else:
        far = far * expr.exp(-x)
    result = expr.select(near, far, x <= 2)
    return expr.select(expr.select(math.inf, result, x == 0), math.nan, x >= 0)


def _spherical_bessel_j0(x: Expr) -> Expr:
    """Its series near 0, where the quotient has no value."""
    near = polynomial((-1 / 5040, 1 / 120, -1 / 6, 1.0), x * x)
    result = expr.select(near, expr.sin(x) / x, abs(x) < 0.5)
    return expr.select(0.0, result, abs(x) == math.inf)


# -- Airy's function and the normal distribution's quantiles: fits of Cephes, as PyTorch has them --

_AIRY_HIGH = (
    (3.46538101525629032477e-01, 1.20075952739645805542e01, 7.62796053615234516538e01,
     1.68089224934630576269e02, 1.59756391350164413639e02, 7.05360906840444183113e01,
     1.40264691163389668864e01, 1.0),
    (5.67594532638770212846e-01, 1.47562562584847203173e01, 8.45138970141474626562e01,
     1.77318088145400459522e02, 1.64234692871529701831e02, 7.14778400825575695274e01,
     1.40959135607834029598e01, 1.0),
)  # fmt: skip
_AIRY_SINE = (
    (-1.31696323418331795333e-01, -6.26456544431912369773e-01, -6.93158036036933542233e-01,
     -2.79779981545119124951e-01, -4.91900132609500318020e-02, -4.06265923594885404393e-03,
     -1.59276496239262096340e-04, -2.77649108155232920844e-06, -1.67787698489114633780e-08),
    (1.33560420706553243746e01, 3.26825032795224613948e01, 2.67367040941499554804e01,
     9.18707402907259625840e00, 1.47529146771666414581e00, 1.15687173795188044134e-01,
     4.40291641615211203805e-03, 7.54720348287414296618e-05, 4.51850092970580378464e-07),
)  # fmt: skip
_AIRY_COSINE = (
    (1.97339932091685679179e-02, 3.91103029615688277255e-01, 1.06579897599595591108e00,
     9.39169229816650230044e-01, 3.51465656105547619242e-01, 6.33888919628925490927e-02,
     5.85804113048388458567e-03, 2.82851600836737019778e-04, 6.98793669997260967291e-06,
     8.11789239554389293311e-08, 3.41551784765923618484e-10),
    (9.30892908077441974853e00, 1.98352928718312140417e01, 1.55646628932864612953e01,
     5.47686069422975497931e00, 9.54293611618961883998e-01, 8.64580826352392193095e-02,
     4.12656523824222607191e-03, 1.01259085116509135510e-04, 1.17166733214413521882e-06,
     4.91834570062930015649e-09),
)  # fmt: skip
_AIRY_BORDER = 2.09
_N_AIRY_TERMS = 6


def _quotient(fits: tuple[tuple[float, ...], tuple[float, ...]], x: Expr) -> Expr:
    return polynomial(fits[0], x) / polynomial(fits[1], x)


def _airy_near(x: Expr) -> Expr:
    """Two power series, of which the second begins with x."""
    cube = x * x * x
    even, odd = [1.0], [1.0]
    for k in range(_N_AIRY_TERMS):
        even.append(even[-1] / ((3 * k + 2) * (3 * k + 3)))
        odd.append(odd[-1] / ((3 * k + 3) * (3 * k + 4)))
    first, second = (polynomial(tuple(series[::-1]), cube) for series in (even, odd))
    return 0.355028053887817239260 * first - 0.258819403792806798405 * x * second


def _airy(x: Expr) -> Expr:
    """A decaying exponential above 2.09, a wave below -2.09, a power series between."""
    size = abs(x)
    zeta, root = size * expr.sqrt(size) * (2 / 3), expr.sqrt(expr.sqrt(size))
    z = 1 / zeta
    high = 0.5 * _quotient(_AIRY_HIGH, z) * expr.exp(-zeta)
    sine = expr.sin(zeta + math.pi / 4) * (1 + z * z * _quotient(_AIRY_SINE, z * z))
    cosine = expr.cos(zeta + math.pi / 4) * z * _quotient(_AIRY_COSINE, z * z)
    far = expr.select(high, sine - cosine, x > 0) * (1 / math.sqrt(math.pi)) / root
    result = expr.select(_airy_near(x), far, size < _AIRY_BORDER)
    return expr.select(math.nan, result, size == math.inf)


_QUANTILE_MIDDLE = (
    (-5.99633501014107895267e1, 9.80010754185999661536e1, -5.66762857469070293439e1,
     1.39312609387279679503e1, -1.23916583867381258016e0),
    (1.0, 1.95448858338141759834e0, 4.67627912898881538453e0, 8.63602421390890590575e1,
     -2.25462687854119370527e2, 2.00260212380060660359e2, -8.20372256168333339912e1,
     1.59056225126211695515e1, -1.18331621121330003142e0),
)  # fmt: skip
_QUANTILE_TAIL = (
    (4.05544892305962419923e0, 3.15251094599893866154e1, 5.71628192246421288162e1,
     4.40805073893200834700e1, 1.46849561928858024014e1, 2.18663306850790267539e0,
     -1.40256079171354495875e-1, -3.50424626827848203418e-2, -8.57456785154685413611e-4),
    (1.0, 1.57799883256466749731e1, 4.53907635128879210584e1, 4.13172038254672030440e1,
     1.50425385692907503408e1, 2.50464946208309415979e0, -1.42182922854787788574e-1,
     -3.80806407691578277194e-2, -9.33259480895457427372e-4),
)  # fmt: skip
_QUANTILE_FAR_TAIL = (
    (3.23774891776946035970e0, 6.91522889068984211695e0, 3.93881025292474443415e0,
     1.33303460815807542389e0, 2.01485389549179081538e-1, 1.23716634817820021358e-2,
     3.01581553508235416007e-4, 2.65806974686737550832e-6, 6.23974539184983293730e-9),
    (1.0, 6.02427039364742014255e0, 3.67983563856160859403e0, 1.37702099489081330271e0,
     2.16236993594496635890e-1, 1.34204006088543189037e-2, 3.28014464682127739104e-4,
     2.89247864745380683936e-6, 6.79019408009981274425e-9),
)  # fmt: skip
_TAIL = math.exp(-2)


def _ndtri(p: Expr) -> Expr:
    """Where the normal distribution function is p."""
    is_high = p > 1 - _TAIL
    low = expr.select(1 - p, p, is_high)
    middle = p - 0.5
    square = middle * middle
    near = (middle + middle * square * _quotient(_QUANTILE_MIDDLE, square)) * math.sqrt(2 * math.pi)
    x = expr.sqrt(-2 * expr.log(low))
    z = 1 / x
    fit = expr.select(_quotient(_QUANTILE_TAIL, z), _quotient(_QUANTILE_FAR_TAIL, z), x < 8)
    tail = x - expr.log(x) * z - z * fit
    result = expr.select(near, expr.select(tail, -tail, is_high), low > _TAIL)
    result = expr.select(-math.inf, expr.select(math.inf, result, p == 1), p == 0)
    return expr.select(result, math.nan, (p >= 0) & (p <= 1))


_FORMULAS: dict[str, Formula] = {
    "lgamma": _lgamma,
    "digamma": _digamma,
    "i0": partial(_bessel, 0, False),
    "special_i0e": partial(_bessel, 0, True),
    "special_i1": partial(_bessel, 1, False),
    "special_i1e": partial(_bessel, 1, True),
    "special_erfcx": _erfcx,
    "special_modified_bessel_i0": partial(_bessel, 0, False),
    "special_modified_bessel_i1": partial(_bessel, 1, False),
    "special_modified_bessel_k0": partial(_bessel_k, 0, False),
    "special_modified_bessel_k1": partial(_bessel_k, 1, False),
    "special_scaled_modified_bessel_k0": partial(_bessel_k, 0, True),
    "special_scaled_modified_bessel_k1": partial(_bessel_k, 1, True),
    "special_bessel_j0": partial(_bessel_j, 0),
    "special_bessel_j1": partial(_bessel_j, 1),
    "special_bessel_y0": partial(_bessel_y, 0),
    "special_bessel_y1": partial(_bessel_y, 1),
    "special_spherical_bessel_j0": _spherical_bessel_j0,
    "special_airy_ai": _airy,
    "special_ndtri": _ndtri,
}


def _enter(name: str, formula: Formula) -> None:
    @lowers(name, calls="popops.map")
    def special(tiles: Tiles, x: Tensor) -> Tensor:
        return mapped(tiles, formula, x, type=FLOAT)


for _name, _formula in _FORMULAS.items():
    _enter(_name, _formula)


# -- functions of two arguments --------------------------------------------------------------------


def _chebyshev(first: Callable[[Expr], Expr], is_shifted: bool, x: Expr, n: Expr) -> Expr:
    x = x + x - 1 if is_shifted else x
    return expr.chebyshev(x, first(x), n)


# The value of degree 1 of each kind.
_FIRST: dict[str, Callable[[Expr], Expr]] = {
    "t": lambda x: x,
    "u": lambda x: x + x,
    "v": lambda x: x + x - 1,
    "w": lambda x: x + x + 1,
}


def _zeta(s: Expr, q: Expr) -> Expr:
    """No value below 1 and where a power of a negative number has none; poles at 1 and at -n."""
    result = expr.hurwitz_zeta(s, q)
    low = expr.select(
        math.inf, expr.select(result, math.nan, expr.floor(s) == s), expr.floor(q) == q
    )
    result = expr.select(result, low, q > 0)
    return expr.select(expr.select(math.inf, result, s == 1), math.nan, s >= 1)


def _gamma_parts(is_upper: bool, a: Expr, x: Expr) -> Expr:
    """The share of the gamma function above x, or below it."""
    is_far = (x > 1) & (x > a)
    power = expr.exp(a * expr.log(x) - x - _lgamma(a))
    lower = power * expr.gamma_series(a, x) / a
    upper = power * expr.gamma_fraction(a, x)
    if is_upper:
        result = expr.select(upper, 1 - lower, is_far)
    else:
        result = expr.select(1 - upper, lower, is_far)
    nothing, all_of_it = (1.0, 0.0) if is_upper else (0.0, 1.0)
    result = expr.select(nothing, result, (x == 0) | (a == math.inf))
    result = expr.select(all_of_it, result, (a == 0) | (x == math.inf))
    is_none = ((a == 0) & (x == 0)) | ((a == math.inf) & (x == math.inf))
    return expr.select(result, math.nan, (a >= 0) & (x >= 0) & expr.logical_not(is_none))


def _enter_of_two(name: str, formula: Formula) -> None:
    names = [f"{name}", f"{name}.x_scalar", f"{name}.n_scalar"]
    if not name.endswith(("_t", "_u", "_v", "_w", "_h", "_he", "_l", "_p")):
        names = names[:1]

    @lowers(*names, calls="popops.map")
    def special(tiles: Tiles, a: Operand, b: Operand) -> Tensor:
        return mapped(tiles, formula, a, b, type=FLOAT)


for _kind, _value in _FIRST.items():
    _enter_of_two(f"special_chebyshev_polynomial_{_kind}", partial(_chebyshev, _value, False))
    _enter_of_two(
        f"special_shifted_chebyshev_polynomial_{_kind}", partial(_chebyshev, _value, True)
    )
_OF_TWO: dict[str, Formula] = {
    "special_hermite_polynomial_h": expr.hermite,
    "special_hermite_polynomial_he": expr.hermite_e,
    "special_laguerre_polynomial_l": expr.laguerre,
    "special_legendre_polynomial_p": expr.legendre,
    "special_zeta": _zeta,
    "igamma": partial(_gamma_parts, False),
    "igammac": partial(_gamma_parts, True),
}
for _name, _formula in _OF_TWO.items():
    _enter_of_two(_name, _formula)
