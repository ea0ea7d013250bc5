"""Numbers in kernels: their Numba types, and conversions that never pass through a double.

A function that can round to half takes the type and value of a worker's record, in which a program
may have set a rounding mode; without a record it rounds to nearest.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false, reportIndexIssue=false
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from tremula.base.types import ALL_TYPES, Type
from tremula.codelets.native.random import round_by_mode
from tremula.codelets.native.types import HalfType, half, round_to_half

INTEGRAL = (types.Integer, types.Boolean)


def numba_type(element_type: Type) -> types.Type:
    """The Numba type of an element; 8-bit floats are raw bytes here."""
    if element_type.name == "HALF":
        return half
    if element_type.name == "BOOL":
        return types.boolean
    return getattr(types, element_type.dtype.name)


def widened(element: types.Type) -> types.Type:
    """Integers are int64 in registers, so that sums and indices behave as in Python."""
    is_small = isinstance(element, types.Integer) and element != types.uint64
    return types.int64 if is_small else element


def is_number(value_type: types.Type) -> bool:
    return isinstance(value_type, (*INTEGRAL, types.Float, HalfType))


def arithmetic_type(a: types.Type, b: types.Type) -> types.Type:
    """The type two numbers compute in."""
    if isinstance(a, types.Float) or isinstance(b, types.Float):
        return types.float32
    if isinstance(a, HalfType) or isinstance(b, HalfType):
        return half
    return types.uint64 if types.uint64 in (a, b) else types.int64


def rounded(context, builder, value, worker):
    """A float32 rounded to half; `worker` is the type and value of its record, or NO_WORKER."""
    worker_type, record = worker
    if not isinstance(worker_type, types.CPointer):
        return round_to_half(builder, value)
    signature = types.float32(types.float32, worker_type)
    return context.compile_internal(builder, round_by_mode.py_func, signature, (value, record))


NO_WORKER = (types.none, None)


def convert(context, builder, value, from_type, to_type, worker=NO_WORKER):
    """A number as another type, passing through float32 so that no double ever appears."""
    if from_type == to_type:
        return value
    if to_type == half:
        value = context.cast(builder, value, from_type, types.float32)
        return rounded(context, builder, value, worker)
    if to_type == types.boolean and isinstance(from_type, (types.Float, HalfType)):
        return builder.fcmp_unordered("!=", value, value.type(0.0))
    if isinstance(to_type, types.Integer) and isinstance(from_type, (types.Float, HalfType)):
        value = context.cast(builder, value, from_type, types.float32)
        return _as_integer(context, builder, value, to_type)
    return context.cast(builder, value, from_type, to_type)


def _as_integer(context, builder, value, to_type):
    """A float32 without its fraction; the nearest there is if it is out of range, 0 for NaN.

    The result of a plain conversion would then depend on the processor.
    """
    target = context.get_value_type(to_type)
    kind = "fptosi" if to_type.signed else "fptoui"
    function = cgutils.get_or_insert_function(
        builder.module,
        ir.FunctionType(target, [value.type]),
        f"llvm.{kind}.sat.i{to_type.bitwidth}.f32",
    )
    return builder.call(function, [value])


def _make_conversion(element_type: Type):
    target = numba_type(element_type)

    @intrinsic
    def conversion(typingctx, a, worker=None):
        a, worker = types.unliteral(a), worker or types.none
        if not is_number(a):
            raise TypingError(f"{element_type.spelling}({a}) is not defined")

        def codegen(context, builder, signature, args):
            value = convert(context, builder, args[0], a, target, (worker, args[1]))
            return context.cast(builder, value, target, widened(target))

        return widened(target)(a, worker), codegen

    return conversion


CONVERT = {t.name: _make_conversion(t) for t in ALL_TYPES}
