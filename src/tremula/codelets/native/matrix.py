"""The native twin of `machine.multiply_accumulate`: blocks of the result stay in registers.

Imported only when a codelet that uses it compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false
# ruff: noqa: PLR0913, PLR0917 - the matrix unit has many operands
import math

from llvmlite import ir
from llvmlite.binding import get_host_cpu_features
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tremula.base.floats import FORMAT_BIT, N_SCALE_BITS, QUARTER_NAN
from tremula.codelets.native.quarter import QuarterVectorType

_F32, _I8, _I32, _I64 = ir.FloatType(), ir.IntType(8), ir.IntType(32), ir.IntType(64)
N_BLOCK_ROWS = 4  # with 16 columns the sums take 16 registers of 128 bits, or 8 of 256
# Columns of the widest block: 8 sums in flight hide what an addition takes, also where one
# register has 16 of them (AVX-512). Sums are the same, each in one lane.
HAS_AVX512 = bool(get_host_cpu_features().get("avx512f"))
N_WIDE_COLUMNS = 32 if HAS_AVX512 else 16


class MatrixOperand:
    """Emits loads and stores of one operand: an array of floats or halves, or 8-bit floats."""

    def __init__(self, context, builder, kind, value) -> None:
        self.builder = builder
        if isinstance(kind, QuarterVectorType):
            view = cgutils.create_struct_proxy(kind)(context, builder, value=value)
            self.data, self.element = view.data, _I8
            self._read_metadata(view.metadata)
        else:
            self.data = make_array(kind)(context, builder, value).data
            self.element = context.get_data_type(kind.dtype)
        self.align = {_F32: 4, _I8: 1}.get(self.element, 2)

    def _read_metadata(self, metadata) -> None:
        """Shift and factors of decoding.

        A code's magnitude, shifted to where a float has these fields, is a float whose bias is
        wrong by a power of two.
        """
        builder = self.builder
        is_143 = builder.icmp_signed("!=", builder.and_(metadata, _I64(FORMAT_BIT)), _I64(0))
        self.shift = builder.select(is_143, _I32(23 - 3), _I32(23 - 2))
        self.rebias = builder.select(is_143, _F32(2.0 ** (127 - 8)), _F32(2.0 ** (127 - 16)))
        low = builder.trunc(builder.and_(metadata, _I64(2**N_SCALE_BITS - 1)), _I32)
        unused = _I32(32 - N_SCALE_BITS)  # moved up and down again, the scale has its sign
        scale = builder.ashr(builder.shl(low, unused), unused)
        bits = builder.shl(builder.add(scale, _I32(127)), _I32(23))
        self.scale = builder.bitcast(bits, _F32)

    def place(self, index):
        return self.builder.gep(self.data, [index])

    def load(self, pointer, vector):
        """`vector`, a vector of floats, from a place."""
        builder = self.builder
        stored = ir.VectorType(self.element, vector.count)
        value = builder.load(builder.bitcast(pointer, stored.as_pointer()))
        value.align = self.align
        if self.element == _I8:
            return self._decoded(value, vector.count)
        return value if self.element == _F32 else builder.fpext(value, vector)

    def store(self, value, pointer) -> None:
        builder = self.builder
        stored = ir.VectorType(self.element, value.type.count)
        value = value if self.element == _F32 else builder.fptrunc(value, stored)
        builder.store(value, builder.bitcast(pointer, stored.as_pointer())).align = self.align

    def _decoded(self, codes, n):
        """Floats of codes: two multiplications, since 2**(127 + scale) may be out of range."""
        builder = self.builder
        floats, integers = ir.VectorType(_F32, n), ir.VectorType(_I32, n)
        wide = builder.zext(codes, integers)
        size = builder.and_(wide, ir.Constant(integers, [0x7F] * n))
        value = builder.bitcast(builder.shl(size, spread(builder, self.shift, n)), floats)
        value = builder.fmul(value, spread(builder, self.rebias, n))
        value = builder.fmul(value, spread(builder, self.scale, n))
        sign = builder.and_(wide, ir.Constant(integers, [0x80] * n))
        sign = builder.shl(sign, ir.Constant(integers, [24] * n))
        value = builder.bitcast(builder.or_(builder.bitcast(value, integers), sign), floats)
        is_nan = builder.icmp_unsigned("==", wide, ir.Constant(integers, [QUARTER_NAN] * n))
        return builder.select(is_nan, ir.Constant(floats, [math.nan] * n), value)


def spread(builder, value, n: int):
    """A vector with one number in all of its n lanes."""
    vector = ir.VectorType(value.type, n)
    alone = builder.insert_element(ir.Constant(vector, ir.Undefined), value, _I64(0))
    lanes = ir.Constant(ir.VectorType(_I32, n), [0] * n)
    return builder.shuffle_vector(alone, ir.Constant(vector, ir.Undefined), lanes)


class MatrixBlock:
    """Emits the code of one block of the result: a few rows, each a vector of n_cols."""

    def __init__(self, builder, n_cols: int, n_rows, n_block_rows: int = N_BLOCK_ROWS) -> None:
        self.builder, self.n_cols = builder, n_cols
        self.vector = ir.VectorType(_F32, n_cols)
        last = builder.sub(n_rows, _I64(1))
        self.rows = [
            builder.select(builder.icmp_signed("<", _I64(r), last), _I64(r), last)
            for r in range(n_block_rows)
        ]

    def row_starts(self, at, stride):
        builder = self.builder
        return [builder.add(at, builder.mul(stride, row)) for row in self.rows]

    def splat(self, operand: MatrixOperand, index):
        builder = self.builder
        one = operand.load(operand.place(index), ir.VectorType(_F32, 1))
        return spread(builder, builder.extract_element(one, _I64(0)), self.n_cols)

    def fused(self):
        module, vector = self.builder.module, self.vector
        name = f"llvm.fmuladd.v{self.n_cols}f32"
        kind = ir.FunctionType(vector, [vector, vector, vector])
        return cgutils.get_or_insert_function(module, kind, name)

    def loop(self, left: MatrixOperand, right: MatrixOperand, args, initial):
        """The sums after the loop over k: `args` are the intrinsic's, from left on."""
        builder = self.builder
        _, a_at, a_stride, a_step, _, w_at, w_stride, n_inner = args
        rows = self.row_starts(a_at, a_stride)
        entry = builder.basic_block
        body, done = builder.append_basic_block("inner"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", n_inner, _I64(0)), body, done)
        builder.position_at_end(body)
        k = builder.phi(_I64)
        sums = [builder.phi(self.vector) for _ in initial]
        weights = right.load(right.place(builder.add(w_at, builder.mul(k, w_stride))), self.vector)
        shift, fused = builder.mul(k, a_step), self.fused()
        added = [
            builder.call(fused, [self.splat(left, builder.add(row, shift)), weights, total])
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
            emit = MatrixBlock(builder, n_cols, args[-1])
            operands = zip((out, left, right), (args[0], args[3], args[7]), strict=True)
            sums, a, w = (MatrixOperand(context, builder, kind, value) for kind, value in operands)
            places = [sums.place(row) for row in emit.row_starts(*args[1:3])]
            initial = [sums.load(place, emit.vector) for place in places]
            results = emit.loop(a, w, args[3:-1], initial)
            for result, place in zip(results, places, strict=True):
                sums.store(result, place)
            return context.get_dummy_value()

        return types.void(out, i64, i64, left, i64, i64, i64, right, i64, i64, i64, i64), codegen

    return block


_block_wide = _make_block(N_WIDE_COLUMNS)
_block_16, _block_8, _block_4, _block_1 = (_make_block(n) for n in (16, 8, 4, 1))


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
        while j + N_WIDE_COLUMNS <= n_cols:
            _block_wide(out, row + j, out_stride, left, start, left_stride, left_step,
                        right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += N_WIDE_COLUMNS
        while j + 16 <= n_cols:
            _block_16(out, row + j, out_stride, left, start, left_stride, left_step,
                      right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 16
        while j + 8 <= n_cols:
            _block_8(out, row + j, out_stride, left, start, left_stride, left_step,
                     right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 8
        while j + 4 <= n_cols:
            _block_4(out, row + j, out_stride, left, start, left_stride, left_step,
                     right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 4
        while j < n_cols:
            _block_1(out, row + j, out_stride, left, start, left_stride, left_step,
                     right, right_at + j, right_stride, n_inner, n)  # fmt: skip
            j += 1
