"""The matrix product that codelets call: its native twin against the function itself."""

import numpy as np
import pytest

from tremula import FLOAT, HALF, InOut, Input, MultiVertex, Vector
from tremula.base.types import Type, int32
from tremula.codelets import codelet_of
from tremula.codelets.python.function_source import native_module, read_function
from tremula.codelets.python.machine import multiply_accumulate
from tremula.codelets.python_codelet import call_kernel


def product_class(inputs: Type, partials: Type) -> type:
    class Product(MultiVertex):
        left: Input[Vector[inputs]]  # type: ignore[valid-type]
        right: Input[Vector[inputs]]  # type: ignore[valid-type]
        out: InOut[Vector[partials]]  # type: ignore[valid-type]
        n_rows: int32  # type: ignore[valid-type]
        n_inner: int32  # type: ignore[valid-type]
        n_cols: int32  # type: ignore[valid-type]

        def compute(self, worker_id):
            if worker_id == 0:
                multiply_accumulate(
                    self.out, 0, self.n_cols, self.left, 0, self.n_inner, 1, self.right, 0,
                    self.n_cols, self.n_rows, self.n_inner, self.n_cols,
                )  # fmt: skip

    return Product


@pytest.mark.slow
@pytest.mark.parametrize("types", [(FLOAT, FLOAT), (HALF, FLOAT), (HALF, HALF)])
def test_the_native_twin_multiplies(types):
    """All block shapes, odd sizes and both accumulator types give out + left @ right."""
    inputs, partials = types
    codelet = codelet_of(product_class(inputs, partials))
    assert "native_matrix" in codelet.kernel_text()
    address = codelet.kernel_address()
    random = np.random.default_rng(5)
    for n_rows, n_inner, n_cols in (
        (1, 1, 1),
        (4, 8, 16),
        (5, 3, 21),
        (3, 0, 7),
        (9, 17, 23),
        (6, 7, 53),
    ):
        parts = [
            random.standard_normal((n_rows, n_inner)).astype(inputs.dtype),
            random.standard_normal((n_inner, n_cols)).astype(inputs.dtype),
            random.standard_normal((n_rows, n_cols)).astype(partials.dtype),
        ]
        arena, columns = _arena(parts, (n_rows, n_inner, n_cols))
        assert call_kernel(address, arena, columns, 0, 1)
        out = arena[512 * 8 :].view(partials.dtype)[: n_rows * n_cols].reshape(n_rows, n_cols)
        left, right, before = (p.astype(np.float32) for p in parts)
        tolerance = 1e-5 if partials is FLOAT else 4e-3
        assert np.allclose(out, before + left @ right, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [FLOAT, HALF])
def test_blocks_of_any_width_add_in_one_order(inputs):
    """A column of the result has the same bits whichever columns are multiplied with it."""
    address = codelet_of(product_class(inputs, FLOAT)).kernel_address()
    random = np.random.default_rng(6)
    left, right = random.standard_normal((6, 9)), random.standard_normal((9, 53))

    def product(first: int, last: int) -> np.ndarray:
        parts = [left, right[:, first:last]]
        out = np.zeros((6, last - first), np.float32)
        arena, columns = _arena(
            [*(p.astype(inputs.dtype) for p in parts), out], (6, 9, last - first)
        )
        call_kernel(address, arena, columns, 0, 1)
        return arena[512 * 8 :].view(np.float32)[: out.size].reshape(out.shape)

    whole = product(0, 53)
    for first, last in ((0, 32), (0, 16), (20, 24), (31, 32), (40, 53)):
        np.testing.assert_array_equal(product(first, last), whole[:, first:last])


def _arena(parts, sizes):
    arena = np.zeros(512 * 16, np.uint8)
    columns = []
    for start, part in zip((0, 512 * 4, 512 * 8), parts, strict=True):
        raw = np.ascontiguousarray(part).view(np.uint8).ravel()
        arena[start : start + len(raw)] = raw
        columns += [np.array([start // part.itemsize]), np.array([part.size])]
    return arena, (*columns, *(np.array([size], np.int32) for size in sizes))


def test_python_and_text_decide():
    """The function itself computes the same in Python, and only its own text has the twin."""
    out, left, right = np.ones(4, np.float32), np.arange(4.0), np.arange(4.0)
    multiply_accumulate(out, 0, 2, left, 0, 2, 1, right, 0, 2, 2, 2, 2)
    assert out.tolist() == [3, 4, 7, 12]
    product = read_function(multiply_accumulate, "multiply_accumulate")
    assert native_module(product) == "matrix"
    assert native_module(read_function(_double, "multiply_accumulate")) is None


def _double(x: float) -> float:
    return x + x
