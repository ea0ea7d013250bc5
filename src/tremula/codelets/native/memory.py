"""Memory in kernels: pointers into the arena, columns of tables, loads, stores and vectors."""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportAttributeAccessIssue=false
# pyright: reportFunctionMemberAccess=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportOptionalCall=false
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array, populate_array

from tremula.base.types import ALL_TYPES, Type
from tremula.codelets.native.numbers import convert, is_number, numba_type, widened
from tremula.codelets.native.types import HalfType, half


def _make_pointer(element_type: Type):
    target = types.CPointer(numba_type(element_type))

    @intrinsic
    def pointer(typingctx, arena):
        def codegen(context, builder, signature, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(arena), codegen

    return pointer


def _make_column(element_type: Type):
    target = types.CPointer(numba_type(element_type))

    @intrinsic
    def column(typingctx, columns, index):
        def codegen(context, builder, signature, args):
            address = builder.load(builder.gep(args[0], [args[1]]))
            return builder.inttoptr(address, context.get_value_type(target))

        return target(columns, types.int64), codegen

    return column


POINTER = {t.name: _make_pointer(t) for t in ALL_TYPES}  # arena -> typed pointer
COLUMN = {t.name: _make_column(t) for t in ALL_TYPES}  # columns, k -> typed pointer


@intrinsic
def load(typingctx, pointer, index):
    """pointer[index], integers widened to 64 bits."""
    element, result = pointer.dtype, widened(pointer.dtype)

    def codegen(context, builder, signature, args):
        value = context.unpack_value(builder, element, builder.gep(args[0], [args[1]]))
        return context.cast(builder, value, element, result)

    return result(pointer, types.int64), codegen


@intrinsic
def store(typingctx, pointer, index, value, worker=None):
    """pointer[index] = value, converted as C does."""
    element, source, worker = pointer.dtype, types.unliteral(value), worker or types.none

    def codegen(context, builder, signature, args):
        target, at, data, worker_value = args
        data = convert(context, builder, data, source, element, (worker, worker_value))
        context.pack_value(builder, element, data, builder.gep(target, [at]))
        return context.get_dummy_value()

    return types.void(pointer, types.int64, source, worker), codegen


@intrinsic
def as_element(typingctx, array, value, worker):
    """A number as an element of an array where Numba would convert it otherwise than `store`.

    Those are numbers for halves, and floats for integers.
    """
    element, source = getattr(array, "dtype", None), types.unliteral(value)
    is_float = isinstance(source, (types.Float, HalfType))
    is_ours = element == half or (isinstance(element, types.Integer) and is_float)
    result = element if is_ours and is_number(source) else source

    def codegen(context, builder, signature, args):
        return convert(context, builder, args[1], source, result, (worker, args[2]))

    return result(array, source, worker), codegen


def _make_vector(is_readonly: bool):
    @intrinsic
    def vector(typingctx, pointer, offset, length):
        array_type = types.Array(pointer.dtype, 1, "C", readonly=is_readonly)

        def codegen(context, builder, signature, args):
            pointer_value, at, n = args
            item = context.get_abi_sizeof(context.get_data_type(array_type.dtype))
            n_bytes = context.get_constant(types.intp, item)
            array = make_array(array_type)(context, builder)
            # By way of an integer: LLVM then takes each vector for a separate object. From one
            # base it would check all accesses of a loop against each other, and never vectorise
            # one that reads x[i + 1], writes x[i], and reads another vector.
            address = builder.ptrtoint(pointer_value, at.type)
            address = builder.add(address, builder.mul(at, n_bytes))
            data = builder.inttoptr(address, pointer_value.type)
            populate_array(array, data=data, shape=[n], strides=[n_bytes], itemsize=n_bytes,
                           meminfo=None)  # fmt: skip
            return array._getvalue()

        return array_type(pointer, types.int64, types.int64), codegen

    return vector


input_vector, vector = _make_vector(True), _make_vector(False)


@intrinsic
def shifted(typingctx, pointer, index):
    """&pointer[index]."""

    def codegen(context, builder, signature, args):
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), codegen


@intrinsic
def wrapped(typingctx, index, length):
    """A list index, negative ones counted from the end."""

    def codegen(context, builder, signature, args):
        at, n = args
        is_negative = builder.icmp_signed("<", at, at.type(0))
        return builder.select(is_negative, builder.add(at, n), at)

    return types.int64(types.int64, types.int64), codegen
