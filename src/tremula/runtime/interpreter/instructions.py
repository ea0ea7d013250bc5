"""What compiled functions of the interpreter do with addresses: load, store, copy, call."""

# An intrinsic is called without its first argument, which pyright cannot know.
# pyright: reportCallIssue=false

from llvmlite import ir
from numba import njit, types  # pyright: ignore[reportPrivateImportUsage]
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

_I64, _POINTER = ir.IntType(64), ir.IntType(8).as_pointer()


def inner(function):
    """Compile a function that only compiled functions call: wrappers for others take time."""
    compiled = njit(nogil=True, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
    return compiled(function)


def _make_load(n_bits):
    """Loads one signed item, by the address of a column and an index."""

    @intrinsic
    def load(typing_context, column, index):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(n_bits).as_pointer())
            value = builder.load(builder.gep(pointer, [args[1]]), align=1)
            return value if n_bits == 64 else builder.sext(value, _I64)

        return types.int64(types.int64, types.int64), codegen

    return load


def _make_store(n_bits):
    """Stores one item, by the address of a column and an index."""

    @intrinsic
    def store(typing_context, column, index, value):
        def codegen(context, builder, signature, args):
            pointer = builder.inttoptr(args[0], ir.IntType(n_bits).as_pointer())
            value = args[2] if n_bits == 64 else builder.trunc(args[2], ir.IntType(n_bits))
            builder.store(value, builder.gep(pointer, [args[1]]), align=1)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), codegen

    return store


load_8, load_16, load_32, read = (_make_load(n) for n in (8, 16, 32, 64))
store_8, store_16, store_32, write = (_make_store(n) for n in (8, 16, 32, 64))


@intrinsic
def call_kernel(typing_context, address, arena, columns, begin, end):
    """Call a kernel by its address; see docs/architecture.md for the ABI."""
    signature = types.int64(types.int64, types.int64, types.int64, types.int64, types.int64)

    def codegen(context, builder, signature, args):
        kernel_type = ir.FunctionType(_I64, [_POINTER, _I64.as_pointer(), _I64, _I64])
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], _POINTER)
        columns = builder.inttoptr(args[2], _I64.as_pointer())
        return builder.call(kernel, [arena, columns, args[3], args[4]])

    return signature, codegen


@intrinsic
def call_counted(typing_context, address, arena, columns, begin, end, cycles):
    """Call a counting kernel by its address."""

    def codegen(context, builder, signature, args):
        arguments = [_POINTER, _I64.as_pointer(), _I64, _I64, _I64.as_pointer()]
        kernel_type = ir.FunctionType(_I64, arguments)
        kernel = builder.inttoptr(args[0], kernel_type.as_pointer())
        arena = builder.inttoptr(args[1], _POINTER)
        columns, cycles = (builder.inttoptr(args[i], _I64.as_pointer()) for i in (2, 5))
        return builder.call(kernel, [arena, columns, args[3], args[4], cycles])

    return types.int64(*(types.int64,) * 6), codegen


@intrinsic
def call_late(typing_context, address, machine, argument):
    """Call a function that compiled late, by its address: `counting.count_step`."""

    def codegen(context, builder, signature, args):
        function = builder.inttoptr(args[0], ir.FunctionType(_I64, [_I64, _I64]).as_pointer())
        return builder.call(function, [args[1], args[2]])

    return types.int64(types.int64, types.int64, types.int64), codegen


@intrinsic
def call_pool(typing_context, run, pool, n_threads, function, machine, n_parts):
    """Call the function of a thread pool that runs a job, by its address."""

    def codegen(context, builder, signature, args):
        run_type = ir.FunctionType(_I64, [_I64] * 5)
        return builder.call(builder.inttoptr(args[0], run_type.as_pointer()), args[1:])

    return types.int64(*(types.int64,) * 6), codegen


@intrinsic
def copy_bytes(typing_context, destination, source, n_bytes):
    """Copy bytes between addresses that do not overlap."""

    def codegen(context, builder, signature, args):
        destination, source = (builder.inttoptr(a, _POINTER) for a in args[:2])
        raw_memcpy(builder, destination, source, args[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), codegen
