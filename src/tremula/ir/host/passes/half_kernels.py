"""Native conversions between half and float32: PyTorch's are ten times slower on some CPUs.

Each kernel takes addresses of contiguous memory. Imported only for steps with halves.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportIndexIssue=false
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tremula.codelets.native.stored_code import jit
from tremula.codelets.native.types import nearest_half

_HALF = ir.HalfType()


@intrinsic
def _floats(typingctx, address):
    """The float32 numbers at an address."""

    def codegen(context, builder, signature, args):
        return builder.inttoptr(args[0], ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(types.int64), codegen


@intrinsic
def _half_at(typingctx, address, index):
    """One of the halves at an address, as a float32."""

    def codegen(context, builder, signature, args):
        halves = builder.inttoptr(args[0], _HALF.as_pointer())
        return builder.fpext(builder.load(builder.gep(halves, [args[1]])), ir.FloatType())

    return types.float32(types.int64, types.int64), codegen


@intrinsic
def _put_half(typingctx, address, index, value):
    """Round a float32 into one of the halves at an address."""

    def codegen(context, builder, signature, args):
        halves = builder.inttoptr(args[0], _HALF.as_pointer())
        builder.store(builder.fptrunc(args[2], _HALF), builder.gep(halves, [args[1]]))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32), codegen


@jit("void(int64, int64)", nogil=True)
def round_floats(address, n):
    """Round `n` floats in place."""
    values = _floats(address)
    for i in range(n):
        values[i] = nearest_half(values[i])


@jit("void(int64, int64, int64)", nogil=True)
def narrow_floats(source, target, n):
    """Halves of floats."""
    values = _floats(source)
    for i in range(n):
        _put_half(target, i, values[i])


@jit("void(int64, int64, int64)", nogil=True)
def widen_halves(source, target, n):
    """Floats of halves."""
    values = _floats(target)
    for i in range(n):
        values[i] = _half_at(source, i)


@jit("void(int64, int64, int64, int64, int64)", nogil=True)
def add_biases(address, biases, n_rows, n_biases, n_each):
    """Round a product and add a bias to it, rounded again: [rows, biases, elements of each]."""
    values, added = _floats(address), _floats(biases)
    if n_each == 1:
        for row in range(n_rows):
            for i in range(n_biases):
                index = row * n_biases + i
                values[index] = nearest_half(nearest_half(values[index]) + added[i])
        return
    for row in range(n_rows):
        for i in range(n_biases):
            bias, begin = added[i], (row * n_biases + i) * n_each
            for index in range(begin, begin + n_each):
                values[index] = nearest_half(nearest_half(values[index]) + bias)
