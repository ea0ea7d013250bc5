# Made from operations.py by `make docs`.

from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.nodes import (
    Cast as Cast,
    CastTo as CastTo,
    Const as Const,
    ConstHalf as ConstHalf,
    Expr as Expr,
    Number as Number,
    Operand as Operand,
    OperationExpr as OperationExpr,
    PlaceHolder as PlaceHolder,
    as_expr as as_expr,
    placeholders_of as placeholders_of,
)

_1: PlaceHolder
_2: PlaceHolder
_3: PlaceHolder
_4: PlaceHolder
_5: PlaceHolder
_6: PlaceHolder
_7: PlaceHolder
_8: PlaceHolder
_9: PlaceHolder
_10: PlaceHolder
_11: PlaceHolder
_12: PlaceHolder
_13: PlaceHolder
_14: PlaceHolder
_15: PlaceHolder
_16: PlaceHolder
_17: PlaceHolder
_18: PlaceHolder
_19: PlaceHolder
_20: PlaceHolder

__all__: list[str]
def add_builder(op: ElementOp) -> None: ...
def remove_builder(op: ElementOp) -> None: ...
def abs(a: Operand) -> Expr:
    """Absolute value."""
def neg(a: Operand) -> Expr:
    """Minus the value."""
def square(a: Operand) -> Expr:
    """The value times itself."""
def relu(a: Operand) -> Expr:
    """The value, or 0 if it is negative."""
def signum(a: Operand) -> Expr:
    """-1, 0 or 1: the sign."""
def inv(a: Operand) -> Expr:
    """1 divided by the value."""
def sqrt(a: Operand) -> Expr:
    """Square root."""
def rsqrt(a: Operand) -> Expr:
    """1 divided by the square root."""
def cbrt(a: Operand) -> Expr:
    """Cube root."""
def exp(a: Operand) -> Expr:
    """e to the power of the value."""
def exp2(a: Operand) -> Expr:
    """2 to the power of the value."""
def expm1(a: Operand) -> Expr:
    """e to the power of the value, minus 1."""
def log(a: Operand) -> Expr:
    """Natural logarithm."""
def log1p(a: Operand) -> Expr:
    """Natural logarithm of 1 plus the value."""
def sigmoid(a: Operand) -> Expr:
    """1 / (1 + exp(-x))."""
def tanh(a: Operand) -> Expr:
    """Hyperbolic tangent."""
def erf(a: Operand) -> Expr:
    """Error function."""
def gelu_erf(a: Operand) -> Expr:
    """x times the normal distribution function of x."""
def sin(a: Operand) -> Expr:
    """Sine."""
def cos(a: Operand) -> Expr:
    """Cosine."""
def tan(a: Operand) -> Expr:
    """Tangent."""
def asin(a: Operand) -> Expr:
    """Arc sine."""
def ceil(a: Operand) -> Expr:
    """The next whole number above."""
def floor(a: Operand) -> Expr:
    """The next whole number below."""
def trunc(a: Operand) -> Expr:
    """The whole part."""
def round(a: Operand) -> Expr:
    """The nearest whole number, ties away from zero."""
def nearbyint(a: Operand) -> Expr:
    """The nearest whole number, ties to even."""
def is_finite(a: Operand) -> Expr:
    """Neither infinite nor NaN."""
def is_inf(a: Operand) -> Expr:
    """Infinite."""
def is_nan(a: Operand) -> Expr:
    """Not a number."""
def logical_not(a: Operand) -> Expr:
    """False becomes true."""
def bitwise_not(a: Operand) -> Expr:
    """All bits inverted."""
def popcount(a: Operand) -> Expr:
    """How many bits are set."""
def count_leading_zeros(a: Operand) -> Expr:
    """Zero bits above the highest set bit."""
def add(a: Operand, b: Operand) -> Expr:
    """Sum."""
def sub(a: Operand, b: Operand) -> Expr:
    """Difference."""
def mul(a: Operand, b: Operand) -> Expr:
    """Product."""
def div(a: Operand, b: Operand) -> Expr:
    """Quotient; integers round towards zero."""
def rem(a: Operand, b: Operand) -> Expr:
    """Remainder with the sign of the dividend, as C has it."""
def pow(a: Operand, b: Operand) -> Expr:
    """The first to the power of the second."""
def atan2(a: Operand, b: Operand) -> Expr:
    """Angle of the point (second, first)."""
def maximum(a: Operand, b: Operand) -> Expr:
    """The larger; NaN if either is."""
def minimum(a: Operand, b: Operand) -> Expr:
    """The smaller; NaN if either is."""
def variance_to_inv_std_dev(a: Operand, b: Operand) -> Expr:
    """1 / sqrt(variance + epsilon)."""
def inv_std_dev_to_variance(a: Operand, b: Operand) -> Expr:
    """1 / inverse deviation squared, minus epsilon."""
def eq(a: Operand, b: Operand) -> Expr:
    """Equal."""
def neq(a: Operand, b: Operand) -> Expr:
    """Not equal."""
def lt(a: Operand, b: Operand) -> Expr:
    """Less."""
def lteq(a: Operand, b: Operand) -> Expr:
    """Less or equal."""
def gt(a: Operand, b: Operand) -> Expr:
    """Greater."""
def gteq(a: Operand, b: Operand) -> Expr:
    """Greater or equal."""
def logical_and(a: Operand, b: Operand) -> Expr:
    """Both."""
def logical_or(a: Operand, b: Operand) -> Expr:
    """Either or both."""
def bitwise_and(a: Operand, b: Operand) -> Expr:
    """Bits set in both."""
def bitwise_or(a: Operand, b: Operand) -> Expr:
    """Bits set in either."""
def bitwise_xor(a: Operand, b: Operand) -> Expr:
    """Bits set in one only."""
def bitwise_xnor(a: Operand, b: Operand) -> Expr:
    """Bits that agree."""
def shift_left(a: Operand, b: Operand) -> Expr:
    """Bits moved up."""
def shift_right(a: Operand, b: Operand) -> Expr:
    """Bits moved down, zeros moved in."""
def shift_right_sign_extend(a: Operand, b: Operand) -> Expr:
    """Bits moved down, the sign kept."""
def select(a: Operand, b: Operand, c: Operand) -> Expr:
    """The first where the third is true, else the second."""
def clamp(a: Operand, b: Operand, c: Operand) -> Expr:
    """The first, clamped to the range from the second to the third."""
def gcd(a: Operand, b: Operand) -> Expr:
    """The greatest common divisor; 0 of two zeros."""
def chebyshev(a: Operand, b: Operand, c: Operand) -> Expr:
    """Chebyshev's recurrence: x, the value of degree 1, the degree."""
def hermite(a: Operand, b: Operand) -> Expr:
    """Hermite's polynomial of a degree, as physicists define it."""
def hermite_e(a: Operand, b: Operand) -> Expr:
    """Hermite's polynomial of a degree, as statisticians define it."""
def laguerre(a: Operand, b: Operand) -> Expr:
    """Laguerre's polynomial of a degree."""
def legendre(a: Operand, b: Operand) -> Expr:
    """Legendre's polynomial of a degree."""
def hurwitz_zeta(a: Operand, b: Operand) -> Expr:
    """The sum of (q + k) to the power of -s, for s and q."""
def gamma_series(a: Operand, b: Operand) -> Expr:
    """The series of the lower incomplete gamma function, for a and x."""
def gamma_fraction(a: Operand, b: Operand) -> Expr:
    """The continued fraction of the upper incomplete gamma function."""
def poisson_quantile(a: Operand, b: Operand) -> Expr:
    """The number of events whose cumulated probability reaches a share."""
