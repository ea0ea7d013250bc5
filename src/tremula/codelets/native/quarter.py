"""8-bit floats in compiled code: bytes that read as floats; writes round.

base/floats.py describes codes and the metadata byte. A vector has the worker's record in kernels
with rounding modes, so that writes round as it says. Imported only when a codelet with a QUARTER
field compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOptionalCall=false, reportPrivateImportUsage=false
# ruff: noqa: ARG002 - Numba dictates these signatures
import operator

import numpy as np
from numba import njit
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from tremula.codelets.native.numbers import CONVERT
from tremula.codelets.native.random import random_uint64, rounds_quarters_by_chance, saturates
from tremula.codelets.native.types import bits_to_float, float_to_bits

_to_float = CONVERT["FLOAT"]


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
    """The float that a code means, exactly."""
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
    return value


@njit(nogil=True, error_model="numpy")
def encode_quarter(value, metadata, worker=None):
    """The code of a number: rounded to nearest, or as the worker's record says.

    One NaN, no negative zero; overflow is NaN unless the record says that it saturates.
    """
    value, metadata = _to_float(value), int(metadata)
    n_bits, bias = (3, 8) if metadata & 0x80 else (2, 16)
    bits = float_to_bits(value)
    size = bits & 0x7FFFFFFF
    if size >= 0x7F800000:  # infinity, NaN
        return 0x80
    exponent = (size >> 23) - 127 - scale_of(metadata)
    floor_exponent = max(exponent, 1 - bias)
    shift = 23 - n_bits + floor_exponent - exponent
    if shift > _N_DRAWN_BITS:
        return 0
    steps = _rounded_steps((size & 0x7FFFFF) | 0x800000, shift, worker)
    code = ((floor_exponent + bias - 1) << n_bits) + steps
    if code > 0x7F:
        if worker is None or not saturates(worker):
            return 0x80
        code = 0x7F
    return code | 0x80 if code and bits >> 31 else code


_N_DRAWN_BITS = 40  # bits drawn; a number that many bits below a code's step is zero


@njit(nogil=True, error_model="numpy")
def _rounded_steps(significand, shift, worker):
    """Significand >> shift, rounded in integers: every tie and every chance is exact."""
    if worker is not None and rounds_quarters_by_chance(worker):
        draw = np.int64(random_uint64(worker) >> np.uint64(64 - _N_DRAWN_BITS))
        return (significand + (draw & ((1 << shift) - 1))) >> shift
    steps = significand >> shift
    rest, half_way = significand & ((1 << shift) - 1), 1 << (shift - 1)
    if rest > half_way or (rest == half_way and steps & 1):
        steps += 1
    return steps


class QuarterVectorType(types.Type):
    """Bytes, their count, one metadata byte, and in some kernels the worker's record."""

    def __init__(self, worker) -> None:
        self.worker = worker
        super().__init__(name=f"quarter_vector({worker})")


_BYTES = types.CPointer(types.uint8)


@register_model(QuarterVectorType)
class QuarterVectorModel(models.StructModel):
    def __init__(self, dmm, fe_type):
        members = [
            ("data", _BYTES), ("length", types.int64), ("metadata", types.int64),
            ("worker", fe_type.worker),
        ]  # fmt: skip
        super().__init__(dmm, fe_type, members)


@intrinsic
def quarter_vector(typingctx, pointer, offset, length, metadata, worker=None):
    """`length` codes from pointer + offset, all of one format and scale."""
    result = QuarterVectorType(worker or types.none)

    def codegen(context, builder, signature, args):
        view = cgutils.create_struct_proxy(result)(context, builder)
        view.data = builder.gep(args[0], [args[1]])
        view.length, view.metadata, view.worker = args[2:]
        return view._getvalue()

    int64 = types.int64
    return result(pointer, int64, int64, int64, result.worker), codegen


@infer_global(len)
class _QuarterLen(AbstractTemplate):
    def generic(self, args, kws):
        return signature(types.int64, *args) if isinstance(args[0], QuarterVectorType) else None


@infer_global(operator.getitem)
class _QuarterGet(AbstractTemplate):
    def generic(self, args, kws):
        if isinstance(args[0], QuarterVectorType) and isinstance(args[1], types.Integer):
            return signature(types.float32, args[0], types.int64)
        return None


@infer_global(operator.setitem)
class _QuarterSet(AbstractTemplate):
    def generic(self, args, kws):
        if isinstance(args[0], QuarterVectorType) and isinstance(args[1], types.Integer):
            return signature(types.none, args[0], types.int64, types.float32)
        return None


@lower_builtin(len, QuarterVectorType)
def _lower_len(context, builder, sig, args):
    return cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0]).length


def _address_of(context, builder, view, index):
    is_negative = builder.icmp_signed("<", index, index.type(0))
    at = builder.select(is_negative, builder.add(index, view.length), index)
    return builder.gep(view.data, [at])


@lower_builtin(operator.getitem, QuarterVectorType, types.Integer)
def _lower_get(context, builder, sig, args):
    view = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    code = builder.load(_address_of(context, builder, view, args[1]))
    call = types.float32(types.uint8, types.int64)
    return context.compile_internal(builder, decode_quarter.py_func, call, (code, view.metadata))


@lower_builtin(operator.setitem, QuarterVectorType, types.Integer, types.Float)
def _lower_set(context, builder, sig, args):
    view = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0])
    call = types.int64(types.float32, types.int64, sig.args[0].worker)
    values = (args[2], view.metadata, view.worker)
    code = context.compile_internal(builder, encode_quarter.py_func, call, values)
    byte = builder.trunc(code, context.get_value_type(types.uint8))
    builder.store(byte, _address_of(context, builder, view, args[1]))
    return context.get_dummy_value()
