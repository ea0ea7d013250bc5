"""The element-wise functions: add, exp, select, … each new, in place, and with an output."""

from collections.abc import Callable

from tremula.base.source import user_source
from tremula.poplar.graph import Graph
from tremula.poplar.programs import Sequence
from tremula.poplar.tensors.tensor import Tensor
from tremula.poplibs.popops.elementwise.expr import Const, Expr, Number, Operation, PlaceHolder
from tremula.poplibs.popops.elementwise.map import map as map_expr
from tremula.poplibs.popops.elementwise.map import map_in_place, map_with_output
from tremula.poplibs.popops.elementwise.operations import ELEMENT_OPS, ElementOp
from tremula.poplibs.registry import PoplibsError

Operand = Tensor | Number


def _as_expression(op: ElementOp, operands: tuple[object, ...]) -> tuple[Expr, list[Tensor]]:
    """The operation on placeholders and numbers, and the tensors of the placeholders."""
    tensors: list[Tensor] = []
    parts: list[Expr] = []
    for operand in operands:
        if isinstance(operand, Tensor):
            tensors.append(operand)
            parts.append(PlaceHolder(len(tensors)))
        elif isinstance(operand, bool | int | float):
            parts.append(Const(operand))
        else:
            raise PoplibsError(
                f"{op.name} got {type(operand).__name__}, expected a Tensor or a number.",
                source=user_source(),
                hint=f"{op.name}(graph, {', '.join('abc'[: op.n_operands])}, sequence)",
            )
    if not tensors:
        raise PoplibsError(
            f"{op.name} got no tensor.",
            source=user_source(),
            hint="give at least one; a number alone needs no machine",
        )
    return Operation(op.name, tuple(parts)), tensors


def _check_sequence(op: ElementOp, sequence: object) -> None:
    if not isinstance(sequence, Sequence):
        operands = ", ".join("abc"[: op.n_operands])
        raise PoplibsError(
            f"{op.name} takes {op.n_operands} operands and a Sequence, got "
            f"{type(sequence).__name__} for the Sequence.",
            source=user_source(),
            hint=f"{op.name}(graph, {operands}, sequence)",
        )


def _new(
    op: ElementOp, graph: Graph, operands: tuple[object, ...], sequence: Sequence, name: str
) -> Tensor:
    _check_sequence(op, sequence)
    expr, tensors = _as_expression(op, operands)
    return map_expr(graph, expr, tensors, sequence, name or op.name)


def _in_place(
    op: ElementOp, graph: Graph, operands: tuple[object, ...], sequence: Sequence, name: str
) -> None:
    _check_sequence(op, sequence)
    expr, tensors = _as_expression(op, operands)
    if not isinstance(operands[0], Tensor):
        raise PoplibsError(
            f"{op.name}_in_place got a number to write to.",
            source=user_source(),
            hint="the first operand is written and must be a Tensor",
        )
    map_in_place(graph, expr, tensors, sequence, name or op.name)


def _with_output(
    op: ElementOp, graph: Graph, operands: tuple[object, ...], out: Tensor, sequence: Sequence,
    name: str,
) -> None:  # fmt: skip
    _check_sequence(op, sequence)
    expr, tensors = _as_expression(op, operands)
    map_with_output(graph, expr, tensors, out, sequence, name or op.name)


Forms = tuple[Callable[..., Tensor], Callable[..., None], Callable[..., None]]


def _unary_forms(op: ElementOp) -> Forms:
    def new(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> Tensor:
        return _new(op, graph, (a,), sequence, name)

    def in_place(graph: Graph, a: Tensor, sequence: Sequence, name: str = "") -> None:
        _in_place(op, graph, (a,), sequence, name)

    def with_output(
        graph: Graph, a: Tensor, out: Tensor, sequence: Sequence, name: str = ""
    ) -> None:
        _with_output(op, graph, (a,), out, sequence, name)

    return new, in_place, with_output


def _binary_forms(op: ElementOp) -> Forms:
    def new(graph: Graph, a: Operand, b: Operand, sequence: Sequence, name: str = "") -> Tensor:
        return _new(op, graph, (a, b), sequence, name)

    def in_place(graph: Graph, a: Tensor, b: Operand, sequence: Sequence, name: str = "") -> None:
        _in_place(op, graph, (a, b), sequence, name)

    def with_output(
        graph: Graph, a: Operand, b: Operand, out: Tensor, sequence: Sequence, name: str = ""
    ) -> None:
        _with_output(op, graph, (a, b), out, sequence, name)

    return new, in_place, with_output


def _ternary_forms(op: ElementOp) -> Forms:
    def new(
        graph: Graph, a: Operand, b: Operand, c: Operand, sequence: Sequence, name: str = ""
    ) -> Tensor:
        return _new(op, graph, (a, b, c), sequence, name)

    def in_place(
        graph: Graph, a: Tensor, b: Operand, c: Operand, sequence: Sequence, name: str = ""
    ) -> None:
        _in_place(op, graph, (a, b, c), sequence, name)

    def with_output(
        graph: Graph, a: Operand, b: Operand, c: Operand, out: Tensor, sequence: Sequence,
        name: str = "",
    ) -> None:  # fmt: skip
        _with_output(op, graph, (a, b, c), out, sequence, name)

    return new, in_place, with_output


_SUFFIXES = (
    ("", "."), ("_in_place", ", written over the first operand."), ("_with_output", ", to `out`."),
)  # fmt: skip


def _forms(name: str) -> Forms:
    """The three functions of an operation."""
    op = ELEMENT_OPS[name]
    functions = (_unary_forms, _binary_forms, _ternary_forms)[op.n_operands - 1](op)
    for function, (suffix, how) in zip(functions, _SUFFIXES, strict=True):
        function.__name__ = function.__qualname__ = name + suffix
        function.__doc__ = op.about.removesuffix(".") + how
    return functions


# Written out, so that editors and type checkers know the names; a test compares with the table.
# fmt: off
abs, abs_in_place, abs_with_output = _forms("abs")
neg, neg_in_place, neg_with_output = _forms("neg")
square, square_in_place, square_with_output = _forms("square")
relu, relu_in_place, relu_with_output = _forms("relu")
signum, signum_in_place, signum_with_output = _forms("signum")
inv, inv_in_place, inv_with_output = _forms("inv")
sqrt, sqrt_in_place, sqrt_with_output = _forms("sqrt")
rsqrt, rsqrt_in_place, rsqrt_with_output = _forms("rsqrt")
cbrt, cbrt_in_place, cbrt_with_output = _forms("cbrt")
exp, exp_in_place, exp_with_output = _forms("exp")
exp2, exp2_in_place, exp2_with_output = _forms("exp2")
expm1, expm1_in_place, expm1_with_output = _forms("expm1")
log, log_in_place, log_with_output = _forms("log")
log1p, log1p_in_place, log1p_with_output = _forms("log1p")
sigmoid, sigmoid_in_place, sigmoid_with_output = _forms("sigmoid")
tanh, tanh_in_place, tanh_with_output = _forms("tanh")
erf, erf_in_place, erf_with_output = _forms("erf")
gelu_erf, gelu_erf_in_place, gelu_erf_with_output = _forms("gelu_erf")
sin, sin_in_place, sin_with_output = _forms("sin")
cos, cos_in_place, cos_with_output = _forms("cos")
tan, tan_in_place, tan_with_output = _forms("tan")
asin, asin_in_place, asin_with_output = _forms("asin")
ceil, ceil_in_place, ceil_with_output = _forms("ceil")
floor, floor_in_place, floor_with_output = _forms("floor")
trunc, trunc_in_place, trunc_with_output = _forms("trunc")
round, round_in_place, round_with_output = _forms("round")
nearbyint, nearbyint_in_place, nearbyint_with_output = _forms("nearbyint")
is_finite, is_finite_in_place, is_finite_with_output = _forms("is_finite")
is_inf, is_inf_in_place, is_inf_with_output = _forms("is_inf")
is_nan, is_nan_in_place, is_nan_with_output = _forms("is_nan")
logical_not, logical_not_in_place, logical_not_with_output = _forms("logical_not")
bitwise_not, bitwise_not_in_place, bitwise_not_with_output = _forms("bitwise_not")
popcount, popcount_in_place, popcount_with_output = _forms("popcount")
(
    count_leading_zeros, count_leading_zeros_in_place,
    count_leading_zeros_with_output,
) = _forms("count_leading_zeros")
add, add_in_place, add_with_output = _forms("add")
sub, sub_in_place, sub_with_output = _forms("sub")
mul, mul_in_place, mul_with_output = _forms("mul")
div, div_in_place, div_with_output = _forms("div")
rem, rem_in_place, rem_with_output = _forms("rem")
pow, pow_in_place, pow_with_output = _forms("pow")
atan2, atan2_in_place, atan2_with_output = _forms("atan2")
maximum, maximum_in_place, maximum_with_output = _forms("maximum")
minimum, minimum_in_place, minimum_with_output = _forms("minimum")
(
    variance_to_inv_std_dev, variance_to_inv_std_dev_in_place,
    variance_to_inv_std_dev_with_output,
) = _forms("variance_to_inv_std_dev")
(
    inv_std_dev_to_variance, inv_std_dev_to_variance_in_place,
    inv_std_dev_to_variance_with_output,
) = _forms("inv_std_dev_to_variance")
eq, eq_in_place, eq_with_output = _forms("eq")
neq, neq_in_place, neq_with_output = _forms("neq")
lt, lt_in_place, lt_with_output = _forms("lt")
lteq, lteq_in_place, lteq_with_output = _forms("lteq")
gt, gt_in_place, gt_with_output = _forms("gt")
gteq, gteq_in_place, gteq_with_output = _forms("gteq")
logical_and, logical_and_in_place, logical_and_with_output = _forms("logical_and")
logical_or, logical_or_in_place, logical_or_with_output = _forms("logical_or")
bitwise_and, bitwise_and_in_place, bitwise_and_with_output = _forms("bitwise_and")
bitwise_or, bitwise_or_in_place, bitwise_or_with_output = _forms("bitwise_or")
bitwise_xor, bitwise_xor_in_place, bitwise_xor_with_output = _forms("bitwise_xor")
bitwise_xnor, bitwise_xnor_in_place, bitwise_xnor_with_output = _forms("bitwise_xnor")
shift_left, shift_left_in_place, shift_left_with_output = _forms("shift_left")
shift_right, shift_right_in_place, shift_right_with_output = _forms("shift_right")
(
    shift_right_sign_extend, shift_right_sign_extend_in_place,
    shift_right_sign_extend_with_output,
) = _forms("shift_right_sign_extend")
select, select_in_place, select_with_output = _forms("select")
clamp, clamp_in_place, clamp_with_output = _forms("clamp")

__all__ = [
    "abs", "abs_in_place", "abs_with_output", "neg", "neg_in_place", "neg_with_output", "square",
    "square_in_place", "square_with_output", "relu", "relu_in_place", "relu_with_output", "signum",
    "signum_in_place", "signum_with_output", "inv", "inv_in_place", "inv_with_output", "sqrt",
    "sqrt_in_place", "sqrt_with_output", "rsqrt", "rsqrt_in_place", "rsqrt_with_output", "cbrt",
    "cbrt_in_place", "cbrt_with_output", "exp", "exp_in_place", "exp_with_output", "exp2",
    "exp2_in_place", "exp2_with_output", "expm1", "expm1_in_place", "expm1_with_output", "log",
    "log_in_place", "log_with_output", "log1p", "log1p_in_place", "log1p_with_output", "sigmoid",
    "sigmoid_in_place", "sigmoid_with_output", "tanh", "tanh_in_place", "tanh_with_output", "erf",
    "erf_in_place", "erf_with_output", "gelu_erf", "gelu_erf_in_place", "gelu_erf_with_output",
    "sin", "sin_in_place", "sin_with_output", "cos", "cos_in_place", "cos_with_output", "tan",
    "tan_in_place", "tan_with_output", "asin", "asin_in_place", "asin_with_output", "ceil",
    "ceil_in_place", "ceil_with_output", "floor", "floor_in_place", "floor_with_output", "trunc",
    "trunc_in_place", "trunc_with_output", "round", "round_in_place", "round_with_output",
    "nearbyint", "nearbyint_in_place", "nearbyint_with_output", "is_finite", "is_finite_in_place",
    "is_finite_with_output", "is_inf", "is_inf_in_place", "is_inf_with_output", "is_nan",
    "is_nan_in_place", "is_nan_with_output", "logical_not", "logical_not_in_place",
    "logical_not_with_output", "bitwise_not", "bitwise_not_in_place", "bitwise_not_with_output",
    "popcount", "popcount_in_place", "popcount_with_output", "count_leading_zeros",
    "count_leading_zeros_in_place", "count_leading_zeros_with_output", "add", "add_in_place",
    "add_with_output", "sub", "sub_in_place", "sub_with_output", "mul", "mul_in_place",
    "mul_with_output", "div", "div_in_place", "div_with_output", "rem", "rem_in_place",
    "rem_with_output", "pow", "pow_in_place", "pow_with_output", "atan2", "atan2_in_place",
    "atan2_with_output", "maximum", "maximum_in_place", "maximum_with_output", "minimum",
    "minimum_in_place", "minimum_with_output", "variance_to_inv_std_dev",
    "variance_to_inv_std_dev_in_place", "variance_to_inv_std_dev_with_output",
    "inv_std_dev_to_variance", "inv_std_dev_to_variance_in_place",
    "inv_std_dev_to_variance_with_output", "eq", "eq_in_place", "eq_with_output", "neq",
    "neq_in_place", "neq_with_output", "lt", "lt_in_place", "lt_with_output", "lteq",
    "lteq_in_place", "lteq_with_output", "gt", "gt_in_place", "gt_with_output", "gteq",
    "gteq_in_place", "gteq_with_output", "logical_and", "logical_and_in_place",
    "logical_and_with_output", "logical_or", "logical_or_in_place", "logical_or_with_output",
    "bitwise_and", "bitwise_and_in_place", "bitwise_and_with_output", "bitwise_or",
    "bitwise_or_in_place", "bitwise_or_with_output", "bitwise_xor", "bitwise_xor_in_place",
    "bitwise_xor_with_output", "bitwise_xnor", "bitwise_xnor_in_place", "bitwise_xnor_with_output",
    "shift_left", "shift_left_in_place", "shift_left_with_output", "shift_right",
    "shift_right_in_place", "shift_right_with_output", "shift_right_sign_extend",
    "shift_right_sign_extend_in_place", "shift_right_sign_extend_with_output", "select",
    "select_in_place", "select_with_output", "clamp", "clamp_in_place", "clamp_with_output",
]
# fmt: on
