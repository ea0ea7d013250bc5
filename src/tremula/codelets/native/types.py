"""Numba's view of the machine's half: held as a float32 in registers, as 16 bits in memory.

Every `half` value is a float32 that a half can represent exactly, because each operation rounds
its result (`round_to_half`). Rounding is to nearest even and overflow goes to infinity, as IEEE 754
says; native/random.py has the other modes. Imported only when a codelet compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOptionalCall=false, reportPrivateImportUsage=false
# ruff: noqa: ARG002 - Numba dictates these signatures
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import PrimitiveModel
from numba.core.typeconv import Conversion
from numba.extending import intrinsic, lower_cast, register_model


class HalfType(types.Type):
    """A half in compiled code."""

    def __init__(self) -> None:
        super().__init__(name="half")

    def can_convert_to(self, typingctx, other):
        if other == types.float32:
            return Conversion.promote
        if isinstance(other, types.Float):
            return Conversion.safe
        return Conversion.unsafe if isinstance(other, types.Integer | types.Boolean) else None

    def can_convert_from(self, typingctx, other):
        if isinstance(other, types.Integer | types.Boolean | types.Float):
            return Conversion.unsafe
        return None

    def unify(self, typingctx, other):
        """A variable that is half here and float there is a float; with an integer it is a half."""
        if isinstance(other, types.Float):
            return types.float32
        return self if isinstance(other, types.Integer | types.Boolean) else None


half = HalfType()
_F32, _HALF = ir.FloatType(), ir.HalfType()


@register_model(HalfType)
class HalfModel(PrimitiveModel):
    """float32 as a value, LLVM half as data, so arrays and pointers convert by themselves."""

    def __init__(self, dmm, fe_type):
        super().__init__(dmm, fe_type, _F32)

    def get_data_type(self):
        return _HALF

    def as_data(self, builder, value):
        return builder.fptrunc(value, _HALF)

    def from_data(self, builder, value):
        return builder.fpext(value, _F32)


def round_to_half(builder, value):
    """A float32 rounded to the nearest half, as a float32; two instructions on F16C and NEON."""
    return builder.fpext(builder.fptrunc(value, _HALF), _F32)


@intrinsic
def nearest_half(typingctx, value):
    """The nearest half, as a float32; infinity beyond the largest."""

    def codegen(context, builder, signature, args):
        return round_to_half(builder, args[0])

    return types.float32(types.float32), codegen


@lower_cast(types.Float, HalfType)
@lower_cast(types.Integer, HalfType)
@lower_cast(types.Boolean, HalfType)
def _number_to_half(context, builder, from_type, to_type, value):
    return round_to_half(builder, context.cast(builder, value, from_type, types.float32))


@lower_cast(HalfType, types.Float)
@lower_cast(HalfType, types.Integer)
@lower_cast(HalfType, types.Boolean)
def _half_to_number(context, builder, from_type, to_type, value):
    return (
        value if to_type == types.float32 else context.cast(builder, value, types.float32, to_type)
    )


@intrinsic
def bits_to_float(typingctx, bits):
    """The float32 with these 32 bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(builder.trunc(args[0], ir.IntType(32)), ir.FloatType())

    return types.float32(types.int64), codegen


@intrinsic
def float_to_bits(typingctx, value):
    """The 32 bits of a float32, as a non-negative integer."""

    def codegen(context, builder, signature, args):
        return builder.zext(builder.bitcast(args[0], ir.IntType(32)), ir.IntType(64))

    return types.int64(types.float32), codegen
