"""The native twins of machine.py's products of blocks that lie anywhere.

Imported only when a codelet that uses them compiles.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false
# ruff: noqa: PLR0913, PLR0917 - the matrix unit has many operands
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from tremula.codelets.native.matrix import HAS_AVX512, N_BLOCK_ROWS, MatrixBlock, MatrixOperand

_I64 = ir.IntType(64)
# Rows of the tallest block, which is of 16 columns: eight sums in flight, as in matrix.py.
N_TALL_ROWS = 8 if HAS_AVX512 else N_BLOCK_ROWS


class SumLoop:
    """A loop from `first` to `last` that carries vectors: `body(index, sums) -> sums`."""

    def __init__(self, builder, first, last, initial, body) -> None:
        entry = builder.basic_block
        inside, done = builder.append_basic_block("blocks"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed("<", first, last), inside, done)
        builder.position_at_end(inside)
        index = builder.phi(_I64)
        sums = [builder.phi(value.type) for value in initial]
        added = body(index, sums)
        end = builder.basic_block  # the body may have added blocks
        following = builder.add(index, _I64(1))
        builder.cbranch(builder.icmp_signed("<", following, last), inside, done)
        index.add_incoming(first, entry)
        index.add_incoming(following, end)
        builder.position_at_end(done)
        self.results = [builder.phi(value.type) for value in initial]
        for phis in (sums, self.results):
            for phi, before, after in zip(phis, initial, added, strict=True):
                phi.add_incoming(before, entry)
                phi.add_incoming(after, end)


def _load_index(context, builder, array_type, array, index):
    """An element of an array of integers, as 64 bits."""
    data = make_array(array_type)(context, builder, array).data
    value = builder.load(builder.gep(data, [index]))
    return value if value.type == _I64 else builder.sext(value, _I64)


def _make_blocks(n_cols: int, n_rows_at_once: int):
    """An intrinsic: up to n_rows_at_once rows of the sum of products of blocks."""

    @intrinsic
    def blocks(
        typingctx, out, out_at, out_stride, left, left_at, left_stride, right, right_at,
        right_stride, offsets, begin, end, n_inner, n_rows,
    ):  # fmt: skip
        i64 = types.int64

        def codegen(context, builder, signature, args):
            o, o_at, o_stride, a, a_at, a_stride, w, w_at, w_stride, offs, first, last = args[:12]
            n_inner, n_rows = args[12:]
            emit = MatrixBlock(builder, n_cols, n_rows, n_rows_at_once)
            operands = zip((out, left, right), (o, a, w), strict=True)
            sums, dense, weights = (MatrixOperand(context, builder, *pair) for pair in operands)
            places = [sums.place(row) for row in emit.row_starts(o_at, o_stride)]
            zero = ir.Constant(emit.vector, [0.0] * n_cols)
            n_block = builder.mul(n_inner, w_stride)

            def product(p, totals):
                at = builder.add(a_at, _load_index(context, builder, offsets, offs, p))
                first_weight = builder.add(w_at, builder.mul(p, n_block))
                operands = (a, at, a_stride, _I64(1), w, first_weight, w_stride, n_inner)
                return emit.loop(dense, weights, operands, totals)

            loop = SumLoop(builder, first, last, [zero] * n_rows_at_once, product)
            for result, place in zip(loop.results, places, strict=True):
                sums.store(result, place)
            return context.get_dummy_value()

        signature = types.void(
            out, i64, i64, left, i64, i64, right, i64, i64, offsets, i64, i64, i64, i64
        )
        return signature, codegen

    return blocks


_blocks_tall = _make_blocks(16, N_TALL_ROWS)
_blocks_16, _blocks_4, _blocks_1 = _make_blocks(16, 4), _make_blocks(4, 4), _make_blocks(1, 4)


@njit(nogil=True, error_model="numpy")
def multiply_blocks(
    out, out_at, out_stride, left, left_at, left_stride, right, right_stride, offsets, begin, end,
    n_rows, n_inner, n_cols,
):  # fmt: skip
    """See machine.multiply_blocks."""
    n_tall = n_rows // N_TALL_ROWS * N_TALL_ROWS
    for i in range(0, n_tall, N_TALL_ROWS):
        row, start = out_at + i * out_stride, left_at + i * left_stride
        for j in range(0, n_cols - 15, 16):
            _blocks_tall(out, row + j, out_stride, left, start, left_stride, right, j,
                         right_stride, offsets, begin, end, n_inner, N_TALL_ROWS)  # fmt: skip
    for i in range(0, n_rows, N_BLOCK_ROWS):
        n = min(N_BLOCK_ROWS, n_rows - i)
        row, start = out_at + i * out_stride, left_at + i * left_stride
        j = n_cols // 16 * 16 if i < n_tall else 0
        while j + 16 <= n_cols:
            _blocks_16(out, row + j, out_stride, left, start, left_stride, right, j, right_stride,
                       offsets, begin, end, n_inner, n)  # fmt: skip
            j += 16
        while j + 4 <= n_cols:
            _blocks_4(out, row + j, out_stride, left, start, left_stride, right, j, right_stride,
                      offsets, begin, end, n_inner, n)  # fmt: skip
            j += 4
        while j < n_cols:
            _blocks_1(out, row + j, out_stride, left, start, left_stride, right, j, right_stride,
                      offsets, begin, end, n_inner, n)  # fmt: skip
            j += 1


def _make_scaled(n_cols: int):
    """An intrinsic: n_cols columns of the sum of scaled rows."""

    @intrinsic
    def scaled(typingctx, out, out_at, rows, row_at, scales, offsets, begin, end):
        i64 = types.int64

        def codegen(context, builder, signature, args):
            o, o_at, r, r_at, s, offs, first, last = args
            emit = MatrixBlock(builder, n_cols, _I64(1), 1)
            operands = zip((out, rows, scales), (o, r, s), strict=True)
            total, dense, factors = (MatrixOperand(context, builder, *pair) for pair in operands)
            zero, fused = ir.Constant(emit.vector, [0.0] * n_cols), emit.fused()

            def product(p, sums):
                scale = emit.splat(factors, p)
                at = builder.add(r_at, _load_index(context, builder, offsets, offs, p))
                row = dense.load(dense.place(at), emit.vector)
                return [builder.call(fused, [scale, row, sums[0]])]

            loop = SumLoop(builder, first, last, [zero], product)
            total.store(loop.results[0], total.place(o_at))
            return context.get_dummy_value()

        return types.void(out, i64, rows, i64, scales, offsets, i64, i64), codegen

    return scaled


_scaled_64, _scaled_16, _scaled_4, _scaled_1 = (_make_scaled(n) for n in (64, 16, 4, 1))


@njit(nogil=True, error_model="numpy")
def sum_scaled_rows(out, out_at, rows, row_at, scales, offsets, begin, end, n_cols):
    """See machine.sum_scaled_rows."""
    j = 0
    while j + 64 <= n_cols:
        _scaled_64(out, out_at + j, rows, row_at + j, scales, offsets, begin, end)
        j += 64
    while j + 16 <= n_cols:
        _scaled_16(out, out_at + j, rows, row_at + j, scales, offsets, begin, end)
        j += 16
    while j + 4 <= n_cols:
        _scaled_4(out, out_at + j, rows, row_at + j, scales, offsets, begin, end)
        j += 4
    while j < n_cols:
        _scaled_1(out, out_at + j, rows, row_at + j, scales, offsets, begin, end)
        j += 1
