"""Products of fixed sparsity on a CPU: rows of blocks side by side on the cores.

Sums of four rows and 64 columns stay in registers while all blocks of a row pass by. Imported only
when a product runs.
"""

# Numba replaces these functions, which pyright cannot see.
# pyright: reportCallIssue=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportGeneralTypeIssues=false
# ruff: noqa: PLR0913, PLR0917 - the operands of a product
from functools import partial
from itertools import pairwise

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tremula.base.processes import SharedThreads, n_cores
from tremula.codelets.native.matrix import MatrixBlock, MatrixOperand
from tremula.codelets.native.sparse import SumLoop, sum_scaled_rows
from tremula.codelets.native.stored_code import jit

_I64 = ir.IntType(64)
_ROWS = 4
_COLUMNS = 64


def _make_strip(n_cols: int):
    """An intrinsic: some columns of up to four rows of a row of blocks."""

    @intrinsic
    def strip(
        typingctx, out, out_at, n, values, value_at, side, n_area, dense, dense_at, offsets, begin,
        end, n_rows,
    ):  # fmt: skip
        i64 = types.int64

        def codegen(context, builder, signature, args):
            o, o_at, width, v, v_at, inner, area, x, x_at, offs, first, last, rows = args
            emit = MatrixBlock(builder, n_cols, rows, _ROWS)
            operands = zip((out, values, dense), (o, v, x), strict=True)
            sums, blocks, right = (MatrixOperand(context, builder, *pair) for pair in operands)
            places = [sums.place(row) for row in emit.row_starts(o_at, width)]
            zero = ir.Constant(emit.vector, [0.0] * n_cols)
            places_of = context.make_array(offsets)(context, builder, offs).data

            def product(p, totals):
                at = builder.add(v_at, builder.mul(p, area))
                row = builder.load(builder.gep(places_of, [p]))
                operands = (v, at, inner, _I64(1), x, builder.add(x_at, row), width, inner)
                return emit.loop(blocks, right, operands, totals)

            loop = SumLoop(builder, first, last, [zero] * _ROWS, product)
            for result, place in zip(loop.results, places, strict=True):
                sums.store(result, place)
            return context.get_dummy_value()

        signature = types.void(
            out, i64, i64, values, i64, i64, i64, dense, i64, offsets, i64, i64, i64
        )
        return signature, codegen

    return strip


_strip_64, _strip_16, _strip_1 = (_make_strip(n) for n in (_COLUMNS, 16, 1))


def block_product(values, row_start, offsets, dense, out, side, n):
    """Out [m, n] = blocks [blocks, side, side] by dense rows that begin at offsets; all flat."""
    operands = (values, row_start, offsets, dense, out, side, n)
    _on_threads(_blocks, operands, row_start * (side * side * n))


def element_product(values, row_start, offsets, dense, out, n):
    """Rows of single elements times a dense matrix."""
    _on_threads(_elements, (values, row_start, offsets, dense, out, n), row_start * n)


def sampled_product(gradient, dense, rows, columns, out, side):
    """Out [blocks, side, side]: rows of gradient [m, n] by rows of dense [k, n], at a pattern."""
    operands = (gradient, dense, rows, columns, out, side)
    _on_threads(_samples, operands, np.arange(len(columns) + 1) * (side * side * dense.shape[1]))


# Multiplications that are worth a thread: it takes some ten microseconds to reach one.
_N_ALONE = 1 << 18
_threads = SharedThreads("tremula-sparse", n_cores())


def _on_threads(kernel, operands, work_before):
    """Run a kernel over all rows, cut where threads get equal work; `work_before` of each row."""
    n_parts = max(1, min(n_cores(), int(work_before[-1]) // _N_ALONE))
    cuts = np.searchsorted(work_before, work_before[-1] * np.arange(1, n_parts) / n_parts)
    bounds = [0, *cuts.tolist(), len(work_before) - 1]
    _threads.run_all([partial(kernel, *operands, *ends) for ends in pairwise(bounds)])


@jit(nogil=True, error_model="numpy")
def _blocks(values, row_start, offsets, dense, out, side, n, first, last):
    area = side * side
    for row in range(first, last):
        begin, end = row_start[row], row_start[row + 1]
        j = 0
        while j < n:
            width = _COLUMNS if j + _COLUMNS <= n else 16 if j + 16 <= n else 1
            for i in range(0, side, _ROWS):
                rows, at = min(_ROWS, side - i), (row * side + i) * n + j
                if width == _COLUMNS:
                    _strip_64(out, at, n, values, i * side, side, area, dense, j, offsets, begin,
                              end, rows)  # fmt: skip
                elif width == 16:
                    _strip_16(out, at, n, values, i * side, side, area, dense, j, offsets, begin,
                              end, rows)  # fmt: skip
                else:
                    _strip_1(out, at, n, values, i * side, side, area, dense, j, offsets, begin,
                             end, rows)  # fmt: skip
            j += width


@jit(nogil=True, error_model="numpy")
def _elements(values, row_start, offsets, dense, out, n, first, last):
    for row in range(first, last):
        sum_scaled_rows(
            out, row * n, dense, 0, values, offsets, row_start[row], row_start[row + 1], n
        )


@jit(nogil=True, fastmath={"contract", "reassoc"})
def _samples(gradient, dense, rows, columns, out, side, first, last):
    n = dense.shape[1]
    for block in range(first, last):
        for i in range(side):
            left = gradient[rows[block] * side + i]
            for j in range(side):
                right = dense[columns[block] * side + j]
                total = np.float32(0)
                for c in range(n):
                    total += left[c] * right[c]
                out[block, i, j] = total
