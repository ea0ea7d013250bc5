"""8-bit floats in compiled code: bytes that read as halves; writes round and saturate.

base/floats.py describes codes and the metadata byte. Imported only when a codelet with a QUARTER
field compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOptionalCall=false, reportPrivateImportUsage=false
# ruff: noqa: ARG002 - Numba dictates these signatures
import math
import operator

from numba import njit
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from tremula.codelets.native.numbers import CONVERT
from tremula.codelets.native.types import bits_to_float, float_to_bits, half

_to_half, _to_float = CONVERT["HALF"], CONVERT["FLOAT"]


@njit(nogil=True, error_model="numpy")
def power_of_two(exponent):
    """2**exponent as float32, for exponents of normal numbers."""
    return bits_to_float((exponent + 127) << 23)


@njit(nogil=True, error_model="numpy")
def scale_of(metadata):
    low = metadata & 0x3F
    return low - 64 if low > 31 else low


@njit(nogil=True, error_model="numpy")
def decode_quarter(code, metadata):
    """The half that a code means; scales beyond half's range give infinity or zero."""
    code, metadata = int(code), int(metadata)
    n_bits, bias = (3, 8) if metadata & 0x80 else (2, 16)
    exponent = (code & 0x7F) >> n_bits
    mantissa = code & ((1 << n_bits) - 1)
    if exponent > 0:
        mantissa += 1 << n_bits
    power = max(exponent, 1) - bias - n_bits + scale_of(metadata)
    value = _to_float(-mantissa if code & 0x80 else mantissa) * power_of_two(power)
    if code == 0x80:
        value = bits_to_float(0x7FC00000)
    return _to_half(value)


@njit(nogil=True, error_model="numpy")
def encode_quarter(value, metadata):
    """The code nearest to a number: ties to even, saturating, one NaN, no negative zero."""
    value, metadata = _to_float(value), int(metadata)
    n_bits, bias = (3, 8) if metadata & 0x80 else (2, 16)
    if math.isnan(value):
        return 0x80
    bits = float_to_bits(value)
    size = bits & 0x7FFFFFFF
    exponent = (size >> 23) - 127 - scale_of(metadata)
    if exponent < -bias - n_bits - 1:
        return 0
    if exponent > 15:  # larger than any code, in both formats
        return 0x7F | (0x80 if bits >> 31 else 0)
    code = _rounded_code((size & 0x7FFFFF) | 0x800000, exponent, n_bits, bias)
    code = min(code, 0x7F)
    return code | 0x80 if code and bits >> 31 else code


@njit(nogil=True, error_model="numpy")
def _rounded_code(significand, exponent, n_bits, bias):
    """Code of significand * 2**(exponent - 23), rounded in integers so that every tie is exact."""
    floor_exponent = max(exponent, 1 - bias)
    shift = 23 - n_bits + floor_exponent - exponent
    steps = significand >> shift
    rest, half_way = significand & ((1 << shift) - 1), 1 << (shift - 1)
    if rest > half_way or (rest == half_way and steps & 1):
        steps += 1
    return ((floor_exponent + bias - 1) << n_bits) + steps


class QuarterVector(types.Type):
    """Bytes, their count, and one metadata byte."""

    def __init__(self) -> None:
        super().__init__(name="quarter_vector")


quarter_vector_type = QuarterVector()
_BYTES = types.CPointer(types.uint8)


@register_model(QuarterVector)
class QuarterVectorModel(models.StructModel):
    def __init__(self, dmm, fe_type):
        members = [("data", _BYTES), ("length", types.int64), ("metadata", types.int64)]
        super().__init__(dmm, fe_type, members)


@intrinsic
def quarter_vector(typingctx, pointer, offset, length, metadata):
    """`length` codes from pointer + offset, all of one format and scale."""

    def codegen(context, builder, signature, args):
        view = cgutils.create_struct_proxy(quarter_vector_type)(context, builder)
        view.data = builder.gep(args[0], [args[1]])
        view.length, view.metadata = args[2], args[3]
        return view._getvalue()

    int64 = types.int64
    return quarter_vector_type(pointer, int64, int64, int64), codegen


@infer_global(len)
class _QuarterLen(AbstractTemplate):
    def generic(self, args, kws):
        if args == (quarter_vector_type,):
            return signature(types.int64, *args)
        return None


@infer_global(operator.getitem)
class _QuarterGet(AbstractTemplate):
    def generic(self, args, kws):
        if args[0] == quarter_vector_type and isinstance(args[1], types.Integer):
            return signature(half, args[0], types.int64)
        return None


@infer_global(operator.setitem)
class _QuarterSet(AbstractTemplate):
    def generic(self, args, kws):
        if args[0] == quarter_vector_type and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.int64, types.float32)
        return None


@lower_builtin(len, QuarterVector)
def _lower_len(context, builder, sig, args):
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0]).length


def _address_of(context, builder, view, index):
    is_negative = builder.icmp_signed("<", index, index.type(0))
    at = builder.select(is_negative, builder.add(index, view.length), index)
    return builder.gep(view.data, [at])


@lower_builtin(operator.getitem, QuarterVector, types.Integer)
def _lower_get(context, builder, sig, args):
    view = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    code = builder.load(_address_of(context, builder, view, args[1]))
    call = half(types.uint8, types.int64)
    return context.compile_internal(builder, decode_quarter.py_func, call, (code, view.metadata))


@lower_builtin(operator.setitem, QuarterVector, types.Integer, types.Float)
def _lower_set(context, builder, sig, args):
    view = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    call = types.int64(types.float32, types.int64)
    values = (args[2], view.metadata)
    code = context.compile_internal(builder, encode_quarter.py_func, call, values)
    byte = builder.trunc(code, context.get_value_type(types.uint8))
    builder.store(byte, _address_of(context, builder, view, args[1]))
    return context.get_dummy_value()
