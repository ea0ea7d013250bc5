"""What generated kernels call: arithmetic with the machine's types, in Numba.

Numba promotes int32 * float32 to a double, which tiles do not have. So generated code does not use
Python's operators but these functions: integers compute in 64 bits, a half with a half or an
integer in half, and everything else in float32. Functions that can round to half take one more
argument: the worker's record, in which a program may have set a rounding mode; without one they
round to nearest. Imported only when a codelet compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false, reportIndexIssue=false
import math
import operator

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic, lower_builtin

from tremula.codelets.native.numbers import INTEGRAL, arithmetic_type, convert, is_number, rounded
from tremula.codelets.native.types import half, round_to_half


def _native_call(context, builder, function, result, operand, values):
    """Numba's own implementation of `function` on operands of one type."""
    signature = result(*([operand] * len(values)))
    return context.get_function(function, signature)(builder, values)


def _array_call(typingctx, function, operands, *unused):
    """Typing and code of a function on arrays, exactly as Numba has it."""
    operands = tuple(_array_operand(t, operands) for t in operands)
    signature = typingctx.resolve_function_type(function, operands, {})
    if signature is None:
        raise TypingError(f"{function.__name__} of {' and '.join(map(str, operands))}")

    def codegen(context, builder, _, args):
        values = [
            context.cast(builder, value, source, wanted)
            for value, source, wanted in zip(
                args[: len(operands)], operands_given, signature.args, strict=True
            )
        ]
        return context.get_function(function, signature)(builder, values)

    operands_given = operands
    return signature.return_type(*operands, *unused), codegen


def _array_operand(operand, operands):
    """A scalar beside a float32 array counts as float32, so the result is not a double."""
    has_float = any(isinstance(t, types.Array) and t.dtype == types.float32 for t in operands)
    return types.float32 if has_float and is_number(operand) else types.unliteral(operand)


def _make_binary(function, numpy_function=None, *, wants_float=False, gives_bool=False):
    @intrinsic(prefer_literal=True)
    def binary(typingctx, a, b, worker=None):
        a, b, worker = types.unliteral(a), types.unliteral(b), worker or types.none
        if isinstance(a, types.Array) or isinstance(b, types.Array):
            return _array_call(typingctx, numpy_function or function, (a, b), worker)
        if not (is_number(a) and is_number(b)):
            raise TypingError(f"{function.__name__} of {a} and {b} is not defined")
        kind = arithmetic_type(a, b)
        if wants_float and isinstance(kind, types.Integer):
            kind = types.float32
        return _binary_code(function, a, b, kind, gives_bool, worker)

    return binary


def _binary_code(function, a, b, kind, gives_bool, worker):
    operand = types.float32 if kind == half else kind
    result = types.boolean if gives_bool else kind
    if gives_bool and kind == types.uint64 and a != b:
        return result(a, b, worker), _compare_by_value(function, a, b)

    def codegen(context, builder, signature, args):
        values = [
            convert(context, builder, value, source, operand)
            for value, source in zip(args[:2], (a, b), strict=True)
        ]
        if kind == half:  # an integer beside a half becomes a half first
            values = [
                v if t == half else round_to_half(builder, v)
                for v, t in zip(values, (a, b), strict=True)
            ]
        native_result = types.boolean if gives_bool else operand
        value = _native_call(context, builder, function, native_result, operand, values)
        return rounded(context, builder, value, (worker, args[2])) if result == half else value

    return result(a, b, worker), codegen


_ORDER = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def _compare_by_value(function, a, b):
    """A signed number beside a uint64: compared as numbers, not as bits."""
    wide = ir.IntType(128)

    def extended(builder, value, integer):
        is_signed = isinstance(integer, types.Integer) and integer.signed
        return builder.sext(value, wide) if is_signed else builder.zext(value, wide)

    def codegen(context, builder, signature, args):
        values = [extended(builder, v, t) for v, t in zip(args[:2], (a, b), strict=True)]
        return builder.icmp_signed(_ORDER[function.__name__], *values)

    return codegen


@lower_builtin(math.fmod, types.float32, types.float32)
def _float_remainder(context, builder, signature, args):
    """Numba types fmod of two floats, but has code for doubles only."""
    return builder.frem(*args)


add = _make_binary(operator.add)
sub = _make_binary(operator.sub)
mul = _make_binary(operator.mul)
truediv = _make_binary(operator.truediv, wants_float=True)
floordiv = _make_binary(operator.floordiv)
mod = _make_binary(operator.mod)
lt = _make_binary(operator.lt, gives_bool=True)
le = _make_binary(operator.le, gives_bool=True)
gt = _make_binary(operator.gt, gives_bool=True)
ge = _make_binary(operator.ge, gives_bool=True)
eq = _make_binary(operator.eq, gives_bool=True)
ne = _make_binary(operator.ne, gives_bool=True)
power = _make_binary(operator.pow)
atan2 = _make_binary(math.atan2, np.arctan2, wants_float=True)
hypot = _make_binary(math.hypot, np.hypot, wants_float=True)
fmod = _make_binary(math.fmod, np.fmod, wants_float=True)
copysign = _make_binary(math.copysign, np.copysign, wants_float=True)


@intrinsic(prefer_literal=True)
def pow(typingctx, a, b, worker=None):
    """A ** b; small whole powers are repeated multiplications, as a compiler for tiles does."""
    base, exponent = types.unliteral(a), getattr(b, "literal_value", None)
    worker = worker or types.none
    if exponent not in (2, 3, 4) or not is_number(base):
        return _power_by_type(typingctx, base, types.unliteral(b), worker)
    kind = arithmetic_type(base, base)
    _, multiply = _binary_code(operator.mul, base, base, kind, False, worker)
    _, multiply_on = _binary_code(operator.mul, kind, base, kind, False, worker)

    def codegen(context, builder, signature, args):
        value = multiply(context, builder, None, [args[0], args[0], args[2]])
        for _ in range(exponent - 2):
            value = multiply_on(context, builder, None, [value, args[0], args[2]])
        return value

    return kind(base, types.int64, worker), codegen


def _power_by_type(typingctx, a, b, worker):
    if isinstance(a, types.Array) or isinstance(b, types.Array):
        return _array_call(typingctx, operator.pow, (a, b), worker)
    return _binary_code(operator.pow, a, b, arithmetic_type(a, b), False, worker)


def _make_bitwise(function):
    @intrinsic
    def bitwise(typingctx, a, b, worker=None):
        a, b, worker = types.unliteral(a), types.unliteral(b), worker or types.none
        if isinstance(a, types.Array) or isinstance(b, types.Array):
            return _array_call(typingctx, function, (a, b), worker)
        if not isinstance(a, INTEGRAL) or not isinstance(b, INTEGRAL):
            raise TypingError(f"{function.__name__} needs integers, got {a} and {b}")
        both_bool = a == b == types.boolean and function not in (operator.lshift, operator.rshift)
        kind = types.boolean if both_bool else arithmetic_type(a, b)
        return _binary_code(function, a, b, kind, False, worker)

    return bitwise


bitand, bitor, bitxor = map(_make_bitwise, (operator.and_, operator.or_, operator.xor))
lshift, rshift = map(_make_bitwise, (operator.lshift, operator.rshift))


def _make_extreme(order: str, numpy_function):
    @intrinsic
    def extreme(typingctx, a, b):
        a, b = types.unliteral(a), types.unliteral(b)
        if isinstance(a, types.Array) or isinstance(b, types.Array):
            return _array_call(typingctx, numpy_function, (a, b))
        kind = arithmetic_type(a, b)

        def codegen(context, builder, signature, args):
            x = convert(context, builder, args[0], a, kind)
            y = convert(context, builder, args[1], b, kind)
            if isinstance(kind, types.Integer):
                compare = builder.icmp_signed if kind.signed else builder.icmp_unsigned
                return builder.select(compare(order, y, x), y, x)
            return builder.select(builder.fcmp_ordered(order, y, x), y, x)

        return kind(a, b), codegen

    return extreme


minimum, maximum = _make_extreme("<", np.minimum), _make_extreme(">", np.maximum)


def _make_inplace(function, scalar_function):
    """`x += y`: in place for arrays, a new value for numbers."""

    @intrinsic(prefer_literal=True)
    def inplace(typingctx, a, b, worker=None):
        if isinstance(a, types.Array):
            return _array_call(typingctx, function, (a, b), worker or types.none)
        return scalar_function._defn(typingctx, a, b, worker)

    return inplace


iadd, isub, imul = (
    _make_inplace(f, g)
    for f, g in ((operator.iadd, add), (operator.isub, sub), (operator.imul, mul))
)
itruediv = _make_inplace(operator.itruediv, truediv)

# -- functions of one number ----------------------------------------------------------------------


def _make_unary(function, numpy_function, *, result=None, keeps_integers=False):
    """A float function: half in, half out; integers become float32 unless kept."""

    @intrinsic
    def unary(typingctx, a, worker=None):
        a, worker = types.unliteral(a), worker or types.none
        if isinstance(a, types.Array):
            return _array_call(typingctx, numpy_function, (a,), worker)
        if not is_number(a):
            raise TypingError(f"{function.__name__} of {a} is not defined")
        is_integer = isinstance(a, INTEGRAL) and keeps_integers
        operand = arithmetic_type(a, a) if is_integer else types.float32
        native = result or operand

        def codegen(context, builder, signature, args):
            value = convert(context, builder, args[0], a, operand)
            value = _native_call(context, builder, function, native, operand, [value])
            is_half = signature.return_type == half
            return rounded(context, builder, value, (worker, args[1])) if is_half else value

        return (half if a == half and result is None else native)(a, worker), codegen

    return unary


_FLOAT_FUNCTIONS = {
    "exp": "exp", "expm1": "expm1", "log": "log", "log1p": "log1p", "log2": "log2",
    "log10": "log10", "sqrt": "sqrt", "tanh": "tanh", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh",
    "fabs": "fabs", "erf": "", "degrees": "degrees", "radians": "radians",
}  # fmt: skip
UNARY = {
    name: _make_unary(getattr(math, name), getattr(np, numpy_name, None))
    for name, numpy_name in _FLOAT_FUNCTIONS.items()
}
for _name in ("floor", "ceil", "trunc"):  # Python's give integers, NumPy's give floats
    UNARY[_name] = _make_unary(getattr(math, _name), None, result=types.int64)
    UNARY["np_" + _name] = _make_unary(getattr(np, _name), getattr(np, _name))
UNARY["np_rint"] = _make_unary(np.rint, np.rint)
for _name in ("isnan", "isinf", "isfinite"):
    UNARY[_name] = _make_unary(getattr(math, _name), getattr(np, _name), result=types.boolean)

neg = _make_unary(operator.neg, operator.neg, keeps_integers=True)
absolute = _make_unary(abs, np.abs, keeps_integers=True)
pos = _make_unary(operator.pos, operator.pos, keeps_integers=True)


@intrinsic
def invert(typingctx, a):
    """Bitwise not, of integers."""
    a = types.unliteral(a)
    if not isinstance(a, types.Integer):
        raise TypingError(f"~ needs an integer, got {a}")
    kind = arithmetic_type(a, a)

    def codegen(context, builder, signature, args):
        return builder.not_(convert(context, builder, args[0], a, kind))

    return kind(a), codegen
