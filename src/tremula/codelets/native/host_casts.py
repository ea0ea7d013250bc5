"""8-bit casts of whole arrays on the host, as loops that vectorise. Imported for large arrays only.

base/floats.py defines what they give; here every step is an operation on 32 bits, without a branch.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tremula.codelets.native.stored_code import jit

_U = np.uint32


@intrinsic
def _bits_of(typingctx, value):
    """The bits of a float32, in 32 bits."""

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.uint32(types.float32), codegen


@jit(nogil=True, error_model="numpy")
def encode(values, codes, n_mantissa_bits, bias, factor, overflow):
    """codes[i] = that of values[i] * factor; `overflow` is the code of what is too large."""
    shift = _U(23 - n_mantissa_bits)
    below_half = _U((1 << (22 - n_mantissa_bits)) - 1)
    rebias = _U((127 - bias) << n_mantissa_bits)
    least_normal = np.float32(2.0 ** (1 - bias))
    # Adding this to a small number leaves its multiple of the smallest code in the last bits.
    lift = np.float32(2.0 ** (24 - bias - n_mantissa_bits))
    lift_bits, overflow = _bits_of(lift), _U(overflow)
    for i in range(len(values)):
        input_bits = _bits_of(values[i])
        size = np.float32(abs(values[i]) * factor)
        bits = _bits_of(size)
        normal = _U(_U(bits + below_half + ((bits >> shift) & _U(1))) >> shift) - rebias
        small = _bits_of(np.float32(size + lift)) - lift_bits
        code = _U(small if size < least_normal else normal)
        code = _U(overflow if code > _U(0x7F) else code)
        sign = _U((input_bits >> _U(24)) & _U(0x80))
        code = _U(code | sign if code != _U(0) else code)
        is_finite = _U(input_bits & _U(0x7FFFFFFF)) < _U(0x7F800000)
        codes[i] = np.uint8(code if is_finite else _U(0x80))


@jit(nogil=True, error_model="numpy")
def decode(codes, table, values):
    """values[i] = table[codes[i]]."""
    for i in range(len(codes)):
        values[i] = table[codes[i]]
