"""Batched products: every way gives NumPy's result, problems keep to their own tiles."""

import numpy as np
import pytest

import tremula as tr
from tremula.garden.applications.batched_gemm.program import (
    complex_gemm_engine,
    gemm_engine,
    multiplied,
)
from tremula.poplibs import poplin

SHAPE = (12, 16, 8)


def operands(n_problems: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    m, k, n = SHAPE
    return (
        random.standard_normal((n_problems, m, k)).astype(np.float32),
        random.standard_normal((n_problems, k, n)).astype(np.float32),
    )


@pytest.mark.parametrize("way", ["grouped", "one by one"])
def test_real_products(way):
    """Both ways multiply."""
    a, b = operands(5)
    engine = gemm_engine(5, SHAPE, 8, way=way).load()
    np.testing.assert_allclose(multiplied(engine, a=a, b=b)["c"], a @ b, rtol=1e-5, atol=1e-5)


def test_products_of_halves():
    """Halves are multiplied with sums in floats: the error is that of rounding the operands."""
    a, b = operands(4)
    engine = gemm_engine(4, SHAPE, 8, element=tr.HALF).load()
    c = multiplied(engine, a=a.astype(np.float16), b=b.astype(np.float16))["c"]
    assert np.abs(c - a @ b).max() < 0.02


@pytest.mark.parametrize("way", ["four products", "three products"])
def test_complex_products(way):
    """By four products and by Gauss's three."""
    (ar, br), (ai, bi) = operands(4), operands(4)
    ai, bi = ai[::-1].copy(), bi[::-1].copy()
    engine = complex_gemm_engine(4, SHAPE, 8, way=way).load()
    result = multiplied(engine, ar=ar, ai=ai, br=br, bi=bi)
    expected = (ar + 1j * ai) @ (br + 1j * bi)
    np.testing.assert_allclose(result["cr"] + 1j * result["ci"], expected, atol=1e-4)


def test_problems_keep_to_their_tiles():
    """As many problems as tiles: each tile holds one result, and none is spread over two."""
    graph = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=8).create_device())
    shapes = (8, 12, 16), (8, 16, 8)
    out = poplin.create_mat_mul_grouped_output(graph, tr.FLOAT, *shapes, "out")
    owners = [
        [t for t, result in enumerate(graph.get_tile_mapping(out[i])) if result] for i in range(8)
    ]
    assert all(len(tiles) == 1 for tiles in owners)
    assert len({tiles[0] for tiles in owners}) == 8


def test_a_batch_beats_single_products():
    """All problems at once take fewer cycles than one after another."""
    a, b = operands(8)
    cycles = {}
    for way in ("grouped", "one by one"):
        engine = gemm_engine(8, SHAPE, 8, way=way).load()
        multiplied(engine, a=a, b=b)
        cycles[way] = engine.report().total_cycles
    assert cycles["grouped"] < cycles["one by one"] / 3


def test_empty_batches_are_refused():
    """No problems, or none with columns."""
    with pytest.raises(tr.errors.InvalidOption, match="0 products of 12 × 16 × 8"):
        gemm_engine(0, SHAPE, 8)
