"""The native twin of `machine.multiply_accumulate`: blocks of the result stay in registers.

Imported only when a codelet that uses it compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false
# ruff: noqa: PLR0913, PLR0917 - the matrix unit has many operands
from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

_F32, _I64 = ir.FloatType(), ir.IntType(64)
N_BLOCK_ROWS = 4  # with 16 columns the sums take 16 registers of 128 bits, or 8 of 256


class _Block:
    """Emits the code of one block of the result: N_BLOCK_ROWS rows, each a vector of n_cols."""

    def __init__(self, context, builder, n_cols: int, n_rows) -> None:
        self.context, self.builder, self.n_cols = context, builder, n_cols
        self.vector = ir.VectorType(_F32, n_cols)
        last = builder.sub(n_rows, _I64(1))
        self.rows = [
            builder.select(builder.icmp_signed("<", _I64(r), last), _I64(r), last)
            for r in range(N_BLOCK_ROWS)
        ]

    def row_starts(self, at, stride):
        builder = self.builder
        return [builder.add(at, builder.mul(stride, row)) for row in self.rows]

    def place(self, array_type, array, index):
        """(pointer to an element, the element's LLVM type)."""
        data = make_array(array_type)(self.context, self.builder, array).data
        element = self.context.get_data_type(array_type.dtype)
        return self.builder.gep(data, [index]), element

    def load_vector(self, pointer, element):
        builder = self.builder
        stored = ir.VectorType(element, self.n_cols)
        value = builder.load(builder.bitcast(pointer, stored.as_pointer()))
        value.align = 2 if element != _F32 else 4
        return value if element == _F32 else builder.fpext(value, self.vector)

    def store_vector(self, value, pointer, element):
        builder = self.builder
        stored = ir.VectorType(element, self.n_cols)
        value = value if element == _F32 else builder.fptrunc(value, stored)
        place = builder.bitcast(pointer, stored.as_pointer())
        builder.store(value, place).align = 2 if element != _F32 else 4

    def splat(self, pointer, element):
        builder = self.builder
        value = builder.load(pointer)
        value = value if element == _F32 else builder.fpext(value, _F32)
        alone = builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, _I64(0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), self.n_cols), [0] * self.n_cols)
        return builder.shuffle_vector(alone, ir.Constant(self.vector, ir.Undefined), lanes)

    def fused(self):
        module, vector = self.builder.module, self.vector
        name = f"llvm.fmuladd.v{self.n_cols}f32"
        kind = ir.FunctionType(vector, [vector, vector, vector])
        return cgutils.get_or_insert_function(module, kind, name)

    def loop(self, left, right, args, initial):
        """The sums after the loop over k: `args` are the intrinsic's, from left on."""
        builder = self.builder
        a, a_at, a_stride, a_step, w, w_at, w_stride, n_inner = args
        rows = self.row_starts(a_at, a_stride)
        entry = builder.basic_block
        body, done = builder.append_basic_block("inner"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", n_inner, _I64(0)), body, done)
        builder.position_at_end(body)
        k = builder.phi(_I64)
        sums = [builder.phi(self.vector) for _ in initial]
        weights = self.load_vector(
            *self.place(right, w, builder.add(w_at, builder.mul(k, w_stride)))
        )
        shift, fused = builder.mul(k, a_step), self.fused()
        added = [
            builder.call(
                fused, [self.splat(*self.place(left, a, builder.add(row, shift))), weights, total]
            )
            for row, total in zip(rows, sums, strict=True)
        ]
        following = builder.add(k, _I64(1))
        builder.cbranch(builder.icmp_signed("<", following, n_inner), body, done)
        k.add_incoming(_I64(0), entry)
        k.add_incoming(following, body)
        builder.position_at_end(done)
        results = [builder.phi(self.vector) for _ in initial]
        for phis in (sums, results):
            for phi, first, later in zip(phis, initial, added, strict=True):
                phi.add_incoming(first, entry)
                phi.add_incoming(later, body)
        return results


def _make_block(n_cols: int):
    """An intrinsic that accumulates up to 4 rows; their sums are in registers while k runs.

    With fewer rows the last one is computed again: the same sums go to the same place.
    """

    @intrinsic
    def block(
        typingctx, out, out_at, out_stride, left, left_at, left_stride, left_step,
        right, right_at, right_stride, n_inner, n_rows,
    ):  # fmt: skip
        i64 = types.int64

        def codegen(context, builder, signature, args):
            emit = _Block(context, builder, n_cols, args[-1])
            o, o_at, o_stride = args[:3]
            places = [emit.place(out, o, row) for row in emit.row_starts(o_at, o_stride)]
            initial = [emit.load_vector(*place) for place in places]
            results = emit.loop(left, right, args[3:-1], initial)
            for result, place in zip(results, places, strict=True):
                emit.store_vector(result, *place)
            return context.get_dummy_value()

        return types.void(out, i64, i64, left, i64, i64, i64, right, i64, i64, i64, i64), codegen

    return block


_block_16, _block_4, _block_1 = _make_block(16), _make_block(4), _make_block(1)


@njit(nogil=True, error_model="numpy")
def multiply_accumulate(
    out, out_at, out_stride, left, left_at, left_stride, left_step, right, right_at, right_stride,
    n_rows, n_inner, n_cols,
):  # fmt: skip
    """See machine.multiply_accumulate."""
    for i in range(0, n_rows, N_BLOCK_ROWS):
        n = min(N_BLOCK_ROWS, n_rows - i)
        row, start = out_at + i * out_stride, left_at + i * left_stride
        j = 0
        while j + 16 <= n_cols:
            _block_16(out, row + j, out_stride, left, start, left_stride, left_step,
                      right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 16
        while j + 4 <= n_cols:
            _block_4(out, row + j, out_stride, left, start, left_stride, left_step,
                     right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 4
        while j < n_cols:
            _block_1(out, row + j, out_stride, left, start, left_stride, left_step,
                     right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 1
