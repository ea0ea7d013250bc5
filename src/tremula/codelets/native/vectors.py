"""Whole vectors in compiled code: reductions, slices assigned, in order and without temporaries.

Elements are taken one by one, as a tile would; Numba's own np.dot needs a BLAS, and its slice
assignment takes seconds to compile. Imported only when a codelet needs them.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tremula.codelets.native.arithmetic import add, maximum, minimum, mul
from tremula.codelets.native.memory import as_element
from tremula.codelets.native.numbers import arithmetic_type


@intrinsic
def zero_of(typingctx, a, b):
    """Zero in the type that elements of two vectors compute in; 8-bit floats are floats."""
    element = types.float32
    kind = arithmetic_type(getattr(a, "dtype", element), getattr(b, "dtype", element))

    def codegen(context, builder, signature, args):
        return context.get_constant_null(kind)

    return kind(a, b), codegen


@njit(nogil=True, error_model="numpy")
def dot(a, b, worker=None):
    total = zero_of(a, b)
    for i in range(len(a)):
        total = add(total, mul(a[i], b[i], worker), worker)
    return total


@njit(nogil=True, error_model="numpy")
def reduce_sum(a, worker=None):
    total = zero_of(a, a)
    for i in range(len(a)):
        total = add(total, a[i], worker)
    return total


@njit(nogil=True, error_model="numpy")
def reduce_prod(a, worker=None):
    total = add(zero_of(a, a), 1)
    for i in range(len(a)):
        total = mul(total, a[i], worker)
    return total


@njit(nogil=True, error_model="numpy")
def reduce_max(a, worker=None):  # all reductions take it; this one is exact
    """The largest element; 0 if there is none."""
    best = add(zero_of(a, a), a[0]) if len(a) else zero_of(a, a)
    for i in range(1, len(a)):
        best = maximum(best, a[i])
    return best


@njit(nogil=True, error_model="numpy")
def reduce_min(a, worker=None):  # all reductions take it; this one is exact
    """The smallest element; 0 if there is none."""
    best = add(zero_of(a, a), a[0]) if len(a) else zero_of(a, a)
    for i in range(1, len(a)):
        best = minimum(best, a[i])
    return best


@intrinsic
def address_of(typingctx, array):
    """Where an array's first element is."""

    def codegen(context, builder, signature, args):
        data = make_array(array)(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen


@njit(nogil=True, error_model="numpy")
def assign(target, value, worker=None):
    """target[:] = value, as if through a copy where the two overlap."""
    if address_of(target) <= address_of(value):
        for i in range(len(target)):
            target[i] = as_element(target, value[i], worker)
    else:
        for i in range(len(target) - 1, -1, -1):
            target[i] = as_element(target, value[i], worker)


@njit(nogil=True, error_model="numpy")
def fill(target, value, worker=None):
    """target[:] = a number."""
    for i in range(len(target)):
        target[i] = as_element(target, value, worker)
