"""Codelets with a `compute_on_host`: its kernel writes the bits that `compute` writes."""

from dataclasses import replace

import numpy as np
import pytest

from tests.codelets.conftest import Table, make_table  # noqa: F401 - a fixture
from tremula.base.types import FLOAT, HALF, INT, QUARTER
from tremula.codelets.python_codelet import PythonCodelet, codelet_of
from tremula.poplibs.poplin.product.vertices import ITEM, conv_partial, conv_reduce
from tremula.poplibs.popops.slicing.update_codelets import (
    join_partials_codelet,
    multi_update_codelet,
)
from tremula.poplibs.popsparse.static.codelets import sparse_dense_blocks

CODELETS = [
    *(conv_reduce(*types) for types in ((FLOAT, FLOAT), (HALF, HALF), (FLOAT, HALF))),
    *(join_partials_codelet(FLOAT, operation) for operation in ("add", "max", "mul", "set")),
    *(join_partials_codelet(type, "add") for type in (HALF, INT)),
]


def of_tile(codelet: PythonCodelet) -> PythonCodelet:
    """The codelet without its form for hosts: its kernel runs `compute`."""
    return replace(codelet, host_compute=None, _texts={}, _addresses={})


@pytest.mark.parametrize("cls", CODELETS, ids=lambda cls: cls.name)
def test_a_host_writes_what_a_tile_writes(make_table, cls):  # noqa: F811 - the fixture
    """On lists of as many vectors as each has elements, for every remainder of their blocks."""
    codelet = codelet_of(cls)
    assert codelet.host_compute is not None
    for size in (1, 2, 4, 5, 6, 7, 8, 21):
        assert_equal(make_table(codelet, 3, size, size))


def assert_equal(on_host: Table) -> None:
    """Both kernels write the same arena."""
    on_tile = on_host.copy()
    on_tile.codelet = of_tile(on_host.codelet)
    assert on_host.run()
    assert on_tile.run()
    np.testing.assert_array_equal(on_host.arena, on_tile.arena)


@pytest.mark.parametrize("operation", ["add", "max", "mul", "set"])
@pytest.mark.parametrize("starts", [True, False])
def test_updates_of_a_table(make_table, starts, operation):  # noqa: F811 - the fixture
    """On tables with two, four and other numbers of columns; some indices are others' rows."""
    codelet = codelet_of(multi_update_codelet(HALF, FLOAT, operation, starts))
    for width in (2, 3, 4):
        sizes = {"indices": 30, "updates": 30 * width, "table": 7 * width}
        table = make_table(codelet, 3, width, sizes)
        table.fill("indices", np.random.default_rng(width).integers(0, 20, (3, 30)))
        table.column("n_columns", "value")[:] = width
        table.column("first_row", "value")[:] = 5
        assert_equal(table)


@pytest.mark.parametrize("type", [FLOAT, HALF], ids=str)
def test_products_of_blocks(make_table, type):  # noqa: F811 - the fixture
    """On blocks of several sides and numbers of columns, with a row that has none."""
    codelet, n_blocks = codelet_of(sparse_dense_blocks(type)), 5
    for side, n in ((16, 50), (16, 3), (4, 9), (8, 24)):
        sizes = {
            "dense": 3 * n * side, "values": n_blocks * side * side, "out": 3 * n * side,
            "row_start": 4, "offsets": n_blocks,
        }  # fmt: skip
        table = make_table(codelet, 2, side + n, sizes)
        table.column("row_start", "value")[:] = [0, 3, 3, n_blocks] * 2
        table.column("offsets", "value")[:] = np.array([2, 0, 1, 1, 0] * 2) * n * side
        table.column("n_columns", "value")[:] = n
        table.column("side", "value")[:] = side
        assert_equal(table)


PRODUCTS = [
    ("AMP", HALF, FLOAT),
    ("AMP", HALF, HALF),
    ("AMP", QUARTER, HALF),
    ("HMAC", HALF, FLOAT),
]


@pytest.mark.parametrize(("method", "inputs", "partials"), PRODUCTS, ids=str)
def test_products(make_table, method, inputs, partials):  # noqa: F811 - the fixture
    """Workers have two items for each of their rows: the first sets it, the second adds to it."""
    codelet, n_inner, n_rows = codelet_of(conv_partial(method, inputs, partials)), 5, 3
    for n_cols in (1, 24, 53):
        sizes = {
            "left": 6 * n_rows * n_inner, "right": 2 * n_inner * n_cols, "out": 6 * n_rows * n_cols,
            "items": 6 * 2 * ITEM, "first_item": 7,
        }  # fmt: skip
        table = make_table(codelet, 2, n_cols, sizes)
        items = [
            (
                w * n_rows * n_cols,
                w * n_rows * n_inner,
                k * n_inner * n_cols,
                n_rows,
                n_inner,
                k == 0,
            )
            for w in range(6)
            for k in (0, 1)
        ]
        table.column("items", "value")[:] = np.array(items * 2).ravel()
        table.column("first_item", "value")[:] = np.arange(0, 14, 2).tolist() * 2
        strides = {"out_stride": n_cols, "left_stride": n_inner, "left_step": 1}
        for name, value in {**strides, "right_stride": n_cols, "n_cols": n_cols}.items():
            table.column(name, "value")[:] = value
        assert_equal(table)
