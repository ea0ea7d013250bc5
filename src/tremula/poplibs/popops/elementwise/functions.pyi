# Made from operations.py by `make docs`.

from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.element_op import ElementOp
from tremula.poplibs.popops.elementwise.nodes import Number

Operand = Tensor | Number
SUFFIXES: tuple[tuple[str, str], ...]

__all__ = [
    "abs",
    "abs_in_place",
    "abs_with_output",
    "neg",
    "neg_in_place",
    "neg_with_output",
    "square",
    "square_in_place",
    "square_with_output",
    "relu",
    "relu_in_place",
    "relu_with_output",
    "signum",
    "signum_in_place",
    "signum_with_output",
    "inv",
    "inv_in_place",
    "inv_with_output",
    "sqrt",
    "sqrt_in_place",
    "sqrt_with_output",
    "rsqrt",
    "rsqrt_in_place",
    "rsqrt_with_output",
    "cbrt",
    "cbrt_in_place",
    "cbrt_with_output",
    "exp",
    "exp_in_place",
    "exp_with_output",
    "exp2",
    "exp2_in_place",
    "exp2_with_output",
    "expm1",
    "expm1_in_place",
    "expm1_with_output",
    "log",
    "log_in_place",
    "log_with_output",
    "log1p",
    "log1p_in_place",
    "log1p_with_output",
    "sigmoid",
    "sigmoid_in_place",
    "sigmoid_with_output",
    "tanh",
    "tanh_in_place",
    "tanh_with_output",
    "erf",
    "erf_in_place",
    "erf_with_output",
    "gelu_erf",
    "gelu_erf_in_place",
    "gelu_erf_with_output",
    "sin",
    "sin_in_place",
    "sin_with_output",
    "cos",
    "cos_in_place",
    "cos_with_output",
    "tan",
    "tan_in_place",
    "tan_with_output",
    "asin",
    "asin_in_place",
    "asin_with_output",
    "ceil",
    "ceil_in_place",
    "ceil_with_output",
    "floor",
    "floor_in_place",
    "floor_with_output",
    "trunc",
    "trunc_in_place",
    "trunc_with_output",
    "round",
    "round_in_place",
    "round_with_output",
    "nearbyint",
    "nearbyint_in_place",
    "nearbyint_with_output",
    "is_finite",
    "is_finite_in_place",
    "is_finite_with_output",
    "is_inf",
    "is_inf_in_place",
    "is_inf_with_output",
    "is_nan",
    "is_nan_in_place",
    "is_nan_with_output",
    "logical_not",
    "logical_not_in_place",
    "logical_not_with_output",
    "bitwise_not",
    "bitwise_not_in_place",
    "bitwise_not_with_output",
    "popcount",
    "popcount_in_place",
    "popcount_with_output",
    "count_leading_zeros",
    "count_leading_zeros_in_place",
    "count_leading_zeros_with_output",
    "add",
    "add_in_place",
    "add_with_output",
    "sub",
    "sub_in_place",
    "sub_with_output",
    "mul",
    "mul_in_place",
    "mul_with_output",
    "div",
    "div_in_place",
    "div_with_output",
    "rem",
    "rem_in_place",
    "rem_with_output",
    "pow",
    "pow_in_place",
    "pow_with_output",
    "atan2",
    "atan2_in_place",
    "atan2_with_output",
    "maximum",
    "maximum_in_place",
    "maximum_with_output",
    "minimum",
    "minimum_in_place",
    "minimum_with_output",
    "variance_to_inv_std_dev",
    "variance_to_inv_std_dev_in_place",
    "variance_to_inv_std_dev_with_output",
    "inv_std_dev_to_variance",
    "inv_std_dev_to_variance_in_place",
    "inv_std_dev_to_variance_with_output",
    "eq",
    "eq_in_place",
    "eq_with_output",
    "neq",
    "neq_in_place",
    "neq_with_output",
    "lt",
    "lt_in_place",
    "lt_with_output",
    "lteq",
    "lteq_in_place",
    "lteq_with_output",
    "gt",
    "gt_in_place",
    "gt_with_output",
    "gteq",
    "gteq_in_place",
    "gteq_with_output",
    "logical_and",
    "logical_and_in_place",
    "logical_and_with_output",
    "logical_or",
    "logical_or_in_place",
    "logical_or_with_output",
    "bitwise_and",
    "bitwise_and_in_place",
    "bitwise_and_with_output",
    "bitwise_or",
    "bitwise_or_in_place",
    "bitwise_or_with_output",
    "bitwise_xor",
    "bitwise_xor_in_place",
    "bitwise_xor_with_output",
    "bitwise_xnor",
    "bitwise_xnor_in_place",
    "bitwise_xnor_with_output",
    "shift_left",
    "shift_left_in_place",
    "shift_left_with_output",
    "shift_right",
    "shift_right_in_place",
    "shift_right_with_output",
    "shift_right_sign_extend",
    "shift_right_sign_extend_in_place",
    "shift_right_sign_extend_with_output",
    "select",
    "select_in_place",
    "select_with_output",
    "clamp",
    "clamp_in_place",
    "clamp_with_output",
    "gcd",
    "gcd_in_place",
    "gcd_with_output",
    "chebyshev",
    "chebyshev_in_place",
    "chebyshev_with_output",
    "hermite",
    "hermite_in_place",
    "hermite_with_output",
    "hermite_e",
    "hermite_e_in_place",
    "hermite_e_with_output",
    "laguerre",
    "laguerre_in_place",
    "laguerre_with_output",
    "legendre",
    "legendre_in_place",
    "legendre_with_output",
    "hurwitz_zeta",
    "hurwitz_zeta_in_place",
    "hurwitz_zeta_with_output",
    "gamma_series",
    "gamma_series_in_place",
    "gamma_series_with_output",
    "gamma_fraction",
    "gamma_fraction_in_place",
    "gamma_fraction_with_output",
    "poisson_quantile",
    "poisson_quantile_in_place",
    "poisson_quantile_with_output",
]

def forms_of(op: ElementOp) -> tuple: ...
def add_functions(op: ElementOp) -> None: ...
def remove_functions(op: ElementOp) -> None: ...
def abs(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Absolute value."""
def abs_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Absolute value, written over the first operand."""
def abs_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Absolute value, to `out`."""
def neg(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Minus the value."""
def neg_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Minus the value, written over the first operand."""
def neg_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Minus the value, to `out`."""
def square(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The value times itself."""
def square_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The value times itself, written over the first operand."""
def square_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The value times itself, to `out`."""
def relu(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The value, or 0 if it is negative."""
def relu_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The value, or 0 if it is negative, written over the first operand."""
def relu_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The value, or 0 if it is negative, to `out`."""
def signum(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """-1, 0 or 1: the sign."""
def signum_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """-1, 0 or 1: the sign, written over the first operand."""
def signum_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """-1, 0 or 1: the sign, to `out`."""
def inv(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """1 divided by the value."""
def inv_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 divided by the value, written over the first operand."""
def inv_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 divided by the value, to `out`."""
def sqrt(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Square root."""
def sqrt_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Square root, written over the first operand."""
def sqrt_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Square root, to `out`."""
def rsqrt(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """1 divided by the square root."""
def rsqrt_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 divided by the square root, written over the first operand."""
def rsqrt_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 divided by the square root, to `out`."""
def cbrt(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Cube root."""
def cbrt_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Cube root, written over the first operand."""
def cbrt_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Cube root, to `out`."""
def exp(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """e to the power of the value."""
def exp_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """e to the power of the value, written over the first operand."""
def exp_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """e to the power of the value, to `out`."""
def exp2(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """2 to the power of the value."""
def exp2_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """2 to the power of the value, written over the first operand."""
def exp2_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """2 to the power of the value, to `out`."""
def expm1(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """e to the power of the value, minus 1."""
def expm1_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """e to the power of the value, minus 1, written over the first operand."""
def expm1_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """e to the power of the value, minus 1, to `out`."""
def log(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Natural logarithm."""
def log_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Natural logarithm, written over the first operand."""
def log_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Natural logarithm, to `out`."""
def log1p(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Natural logarithm of 1 plus the value."""
def log1p_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Natural logarithm of 1 plus the value, written over the first operand."""
def log1p_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Natural logarithm of 1 plus the value, to `out`."""
def sigmoid(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """1 / (1 + exp(-x))."""
def sigmoid_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 / (1 + exp(-x)), written over the first operand."""
def sigmoid_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 / (1 + exp(-x)), to `out`."""
def tanh(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Hyperbolic tangent."""
def tanh_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Hyperbolic tangent, written over the first operand."""
def tanh_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Hyperbolic tangent, to `out`."""
def erf(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Error function."""
def erf_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Error function, written over the first operand."""
def erf_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Error function, to `out`."""
def gelu_erf(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """x times the normal distribution function of x."""
def gelu_erf_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """x times the normal distribution function of x, written over the first operand."""
def gelu_erf_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """x times the normal distribution function of x, to `out`."""
def sin(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Sine."""
def sin_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Sine, written over the first operand."""
def sin_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Sine, to `out`."""
def cos(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Cosine."""
def cos_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Cosine, written over the first operand."""
def cos_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Cosine, to `out`."""
def tan(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Tangent."""
def tan_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Tangent, written over the first operand."""
def tan_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Tangent, to `out`."""
def asin(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Arc sine."""
def asin_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Arc sine, written over the first operand."""
def asin_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Arc sine, to `out`."""
def ceil(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The next whole number above."""
def ceil_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The next whole number above, written over the first operand."""
def ceil_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The next whole number above, to `out`."""
def floor(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The next whole number below."""
def floor_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The next whole number below, written over the first operand."""
def floor_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The next whole number below, to `out`."""
def trunc(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The whole part."""
def trunc_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The whole part, written over the first operand."""
def trunc_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The whole part, to `out`."""
def round(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The nearest whole number, ties away from zero."""
def round_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The nearest whole number, ties away from zero, written over the first operand."""
def round_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The nearest whole number, ties away from zero, to `out`."""
def nearbyint(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """The nearest whole number, ties to even."""
def nearbyint_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """The nearest whole number, ties to even, written over the first operand."""
def nearbyint_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The nearest whole number, ties to even, to `out`."""
def is_finite(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Neither infinite nor NaN."""
def is_finite_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Neither infinite nor NaN, written over the first operand."""
def is_finite_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Neither infinite nor NaN, to `out`."""
def is_inf(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Infinite."""
def is_inf_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Infinite, written over the first operand."""
def is_inf_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Infinite, to `out`."""
def is_nan(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Not a number."""
def is_nan_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Not a number, written over the first operand."""
def is_nan_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Not a number, to `out`."""
def logical_not(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """False becomes true."""
def logical_not_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """False becomes true, written over the first operand."""
def logical_not_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """False becomes true, to `out`."""
def bitwise_not(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """All bits inverted."""
def bitwise_not_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """All bits inverted, written over the first operand."""
def bitwise_not_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """All bits inverted, to `out`."""
def popcount(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """How many bits are set."""
def popcount_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """How many bits are set, written over the first operand."""
def popcount_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """How many bits are set, to `out`."""
def count_leading_zeros(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
    """Zero bits above the highest set bit."""
def count_leading_zeros_in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
    """Zero bits above the highest set bit, written over the first operand."""
def count_leading_zeros_with_output(graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Zero bits above the highest set bit, to `out`."""
def add(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Sum."""
def add_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Sum, written over the first operand."""
def add_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Sum, to `out`."""
def sub(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Difference."""
def sub_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Difference, written over the first operand."""
def sub_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Difference, to `out`."""
def mul(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Product."""
def mul_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Product, written over the first operand."""
def mul_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Product, to `out`."""
def div(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Quotient; integers round towards zero."""
def div_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Quotient; integers round towards zero, written over the first operand."""
def div_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Quotient; integers round towards zero, to `out`."""
def rem(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Remainder with the sign of the dividend, as C has it."""
def rem_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Remainder with the sign of the dividend, as C has it, written over the first operand."""
def rem_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Remainder with the sign of the dividend, as C has it, to `out`."""
def pow(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The first to the power of the second."""
def pow_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The first to the power of the second, written over the first operand."""
def pow_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The first to the power of the second, to `out`."""
def atan2(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Angle of the point (second, first)."""
def atan2_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Angle of the point (second, first), written over the first operand."""
def atan2_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Angle of the point (second, first), to `out`."""
def maximum(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The larger; NaN if either is."""
def maximum_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The larger; NaN if either is, written over the first operand."""
def maximum_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The larger; NaN if either is, to `out`."""
def minimum(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The smaller; NaN if either is."""
def minimum_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The smaller; NaN if either is, written over the first operand."""
def minimum_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The smaller; NaN if either is, to `out`."""
def variance_to_inv_std_dev(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """1 / sqrt(variance + epsilon)."""
def variance_to_inv_std_dev_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """1 / sqrt(variance + epsilon), written over the first operand."""
def variance_to_inv_std_dev_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 / sqrt(variance + epsilon), to `out`."""
def inv_std_dev_to_variance(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """1 / inverse deviation squared, minus epsilon."""
def inv_std_dev_to_variance_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """1 / inverse deviation squared, minus epsilon, written over the first operand."""
def inv_std_dev_to_variance_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """1 / inverse deviation squared, minus epsilon, to `out`."""
def eq(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Equal."""
def eq_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Equal, written over the first operand."""
def eq_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Equal, to `out`."""
def neq(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Not equal."""
def neq_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Not equal, written over the first operand."""
def neq_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Not equal, to `out`."""
def lt(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Less."""
def lt_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Less, written over the first operand."""
def lt_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Less, to `out`."""
def lteq(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Less or equal."""
def lteq_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Less or equal, written over the first operand."""
def lteq_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Less or equal, to `out`."""
def gt(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Greater."""
def gt_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Greater, written over the first operand."""
def gt_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Greater, to `out`."""
def gteq(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Greater or equal."""
def gteq_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Greater or equal, written over the first operand."""
def gteq_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Greater or equal, to `out`."""
def logical_and(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Both."""
def logical_and_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Both, written over the first operand."""
def logical_and_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Both, to `out`."""
def logical_or(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Either or both."""
def logical_or_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Either or both, written over the first operand."""
def logical_or_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Either or both, to `out`."""
def bitwise_and(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits set in both."""
def bitwise_and_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits set in both, written over the first operand."""
def bitwise_and_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits set in both, to `out`."""
def bitwise_or(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits set in either."""
def bitwise_or_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits set in either, written over the first operand."""
def bitwise_or_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits set in either, to `out`."""
def bitwise_xor(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits set in one only."""
def bitwise_xor_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits set in one only, written over the first operand."""
def bitwise_xor_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits set in one only, to `out`."""
def bitwise_xnor(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits that agree."""
def bitwise_xnor_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits that agree, written over the first operand."""
def bitwise_xnor_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits that agree, to `out`."""
def shift_left(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits moved up."""
def shift_left_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits moved up, written over the first operand."""
def shift_left_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits moved up, to `out`."""
def shift_right(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits moved down, zeros moved in."""
def shift_right_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits moved down, zeros moved in, written over the first operand."""
def shift_right_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits moved down, zeros moved in, to `out`."""
def shift_right_sign_extend(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Bits moved down, the sign kept."""
def shift_right_sign_extend_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Bits moved down, the sign kept, written over the first operand."""
def shift_right_sign_extend_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Bits moved down, the sign kept, to `out`."""
def select(graph: Graph, a: Operand, b: Operand, c: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The first where the third is true, else the second."""
def select_in_place(graph: Graph, a: Tensor, b: Operand, c: Operand, sequence: Sequence, name: str = "") -> None:
    """The first where the third is true, else the second, written over the first operand."""
def select_with_output(graph: Graph, a: Operand, b: Operand, c: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The first where the third is true, else the second, to `out`."""
def clamp(graph: Graph, a: Operand, b: Operand, c: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The first, clamped to the range from the second to the third."""
def clamp_in_place(graph: Graph, a: Tensor, b: Operand, c: Operand, sequence: Sequence, name: str = "") -> None:
    """The first, clamped to the range from the second to the third, written over the first operand."""
def clamp_with_output(graph: Graph, a: Operand, b: Operand, c: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The first, clamped to the range from the second to the third, to `out`."""
def gcd(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The greatest common divisor; 0 of two zeros."""
def gcd_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The greatest common divisor; 0 of two zeros, written over the first operand."""
def gcd_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The greatest common divisor; 0 of two zeros, to `out`."""
def chebyshev(graph: Graph, a: Operand, b: Operand, c: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Chebyshev's recurrence: x, the value of degree 1, the degree."""
def chebyshev_in_place(graph: Graph, a: Tensor, b: Operand, c: Operand, sequence: Sequence, name: str = "") -> None:
    """Chebyshev's recurrence: x, the value of degree 1, the degree, written over the first operand."""
def chebyshev_with_output(graph: Graph, a: Operand, b: Operand, c: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Chebyshev's recurrence: x, the value of degree 1, the degree, to `out`."""
def hermite(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Hermite's polynomial of a degree, as physicists define it."""
def hermite_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Hermite's polynomial of a degree, as physicists define it, written over the first operand."""
def hermite_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Hermite's polynomial of a degree, as physicists define it, to `out`."""
def hermite_e(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Hermite's polynomial of a degree, as statisticians define it."""
def hermite_e_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Hermite's polynomial of a degree, as statisticians define it, written over the first operand."""
def hermite_e_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Hermite's polynomial of a degree, as statisticians define it, to `out`."""
def laguerre(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Laguerre's polynomial of a degree."""
def laguerre_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Laguerre's polynomial of a degree, written over the first operand."""
def laguerre_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Laguerre's polynomial of a degree, to `out`."""
def legendre(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """Legendre's polynomial of a degree."""
def legendre_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """Legendre's polynomial of a degree, written over the first operand."""
def legendre_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """Legendre's polynomial of a degree, to `out`."""
def hurwitz_zeta(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The sum of (q + k) to the power of -s, for s and q."""
def hurwitz_zeta_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The sum of (q + k) to the power of -s, for s and q, written over the first operand."""
def hurwitz_zeta_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The sum of (q + k) to the power of -s, for s and q, to `out`."""
def gamma_series(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The series of the lower incomplete gamma function, for a and x."""
def gamma_series_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The series of the lower incomplete gamma function, for a and x, written over the first operand."""
def gamma_series_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The series of the lower incomplete gamma function, for a and x, to `out`."""
def gamma_fraction(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The continued fraction of the upper incomplete gamma function."""
def gamma_fraction_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The continued fraction of the upper incomplete gamma function, written over the first operand."""
def gamma_fraction_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The continued fraction of the upper incomplete gamma function, to `out`."""
def poisson_quantile(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
    """The number of events whose cumulated probability reaches a share."""
def poisson_quantile_in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
    """The number of events whose cumulated probability reaches a share, written over the first operand."""
def poisson_quantile_with_output(graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = "") -> None:
    """The number of events whose cumulated probability reaches a share, to `out`."""
