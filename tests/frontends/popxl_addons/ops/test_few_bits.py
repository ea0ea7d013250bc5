"""Rotary embeddings, constant sparse products, 4-bit weights and 8-bit layers, against NumPy."""

import numpy as np
import pytest
import torch

import popart
import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import LinearFP8, LinearGQ
from popxl_addons.ops.fp8_amax_scale import fp8_amax_scale
from popxl_addons.ops.fp8_mse_scale import fp8_mse_scale
from popxl_addons.ops.group_quantize_decompress import (
    group_quantize_compress_numpy,
    group_quantize_decompress,
    group_quantize_decompress_numpy,
)
from popxl_addons.ops.rotary_pos_embed import rotary_pos_embed, trig_table_constants, trig_tables
from popxl_addons.ops.static_sparse_ops import dense_const_sparse_matmul, random_sparse
from tests.frontends.popxl.runs import compare, run
from tests.frontends.popxl.samples import Sample
from tremula.poplibs.popsparse import CSRMatrix

DEVICES = ["cpu", "tiles"]


def device_of(name: str) -> object:
    if name == "cpu":
        return name
    return popart.DeviceManager().createIpuModelDevice({"numIPUs": 1, "tilesPerIPU": 4})


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


# -- rotary embeddings --


def turned(x: torch.Tensor, rotary_dim: int) -> torch.Tensor:
    """Pairs as complex numbers, times e^(i angle)."""
    n = x.shape[1]
    rates = 10000.0 ** (-torch.arange(0, rotary_dim, 2) / rotary_dim)
    angles = torch.outer(torch.arange(n), rates)[:, None]
    pairs = torch.view_as_complex(x[..., :rotary_dim].unflatten(-1, (-1, 2)).contiguous())
    result = torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)
    return torch.cat([result, x[..., rotary_dim:]], -1)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rotary_dim", [None, 4])
def test_rotary_embeddings_turn_pairs(device, rotary_dim):
    """Forward and gradient are those of complex numbers times e^(i · position · rate)."""
    size = rotary_dim or 8

    def build(t):
        return rotary_pos_embed(t, *trig_table_constants(3, size), rotary_dim)

    sample = Sample("rotary", (normal(2, 3, 2, 8),), build, lambda x: turned(x, size))
    compare(sample, device_of(device), 2e-5)


def test_rotary_tables_that_do_not_fit():
    """Odd sizes and tables of another length are refused."""
    with pytest.raises(ValueError, match="must be even, got 3"):
        trig_tables(4, 3)
    with popxl.Ir().main_graph:
        x = popxl.variable(normal(2, 3, 2, 8))
        with pytest.raises(ValueError, match=r"tables \[sequence, 4\], got .* sin \(4, 4\)"):
            rotary_pos_embed(x, *trig_table_constants(4, 8))


# -- sparse products --


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 12), (1, 5, 12)])
def test_constant_sparse_products(device, shape):
    """The product with a sparse matrix is that with the dense one, and so is its gradient."""
    dense = random_sparse(normal(12, 6, seed=1), 0.4, np.random.default_rng(2))
    assert 0 < np.count_nonzero(dense) < dense.size
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(dense, axis=1))])
    matrix = CSRMatrix(12, 6, dense[dense != 0], np.nonzero(dense)[1], starts)
    rhs = type("Rows", (), {
        "data": matrix.nz_values, "indices": matrix.column_indices, "indptr": matrix.row_indices,
    })  # fmt: skip
    sample = Sample(
        "sparse", (normal(*shape),), lambda t: dense_const_sparse_matmul(t, rhs, 6),
        lambda x: x @ torch.from_numpy(dense),
    )  # fmt: skip
    compare(sample, device_of(device), 2e-5)
    with popxl.Ir().main_graph:
        x = popxl.variable(normal(2, 3))
        with pytest.raises(ValueError, match="has 12 rows, expected 3"):
            dense_const_sparse_matmul(x, rhs, 6)
        wide = popxl.variable(normal(2, 12))
        with pytest.raises(ValueError, match="not below output_cols, 2"):
            dense_const_sparse_matmul(wide, rhs, 2)


# -- 4-bit weights --


@pytest.mark.parametrize("device", DEVICES)
def test_weights_of_4_bits(device):
    """Codes are decompressed to within half a step of what was compressed, as NumPy does."""
    weight = normal(6, 16)
    packed = group_quantize_compress_numpy(weight, 8)
    assert [part.shape for part in packed] == [(6, 2, 2), (6, 2, 1), (6, 2, 1)]
    ir = popxl.Ir()
    with ir.main_graph:
        out = group_quantize_decompress(*(popxl.variable(part) for part in packed))
    (result,) = run(ir, [out], device_of(device))
    np.testing.assert_array_equal(result, group_quantize_decompress_numpy(*packed))
    half_step = packed[1].astype(np.float32).repeat(8, axis=1).reshape(6, 16) / 2
    assert (np.abs(result - weight) <= half_step + 5e-3).all()


def test_a_layer_with_weights_of_4_bits():
    """LinearGQ multiplies by the decompressed weight."""
    x, weight = normal(3, 6), normal(6, 16, seed=1)
    packed = group_quantize_compress_numpy(weight, 8)
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(x)
        factories, graph = LinearGQ(16, group_size=8).create_graph(t)
        variables = factories.init()
        (y,) = graph.bind(variables).call(t)
        stream = addons.host_store(y)
    names = ("weight_compressed", "weight_decompression_scale", "weight_decompression_bias")
    with popxl.Session(ir) as session:
        for name, data in zip(names, packed, strict=True):
            kind = np.uint16 if data.dtype == np.uint16 else np.float32
            session.write_variable_data(variables.get(name), data.astype(kind))
        result = session.run()[stream]
    expected = x @ group_quantize_decompress_numpy(*packed).astype(np.float32)
    np.testing.assert_allclose(result, expected, atol=2e-2)
    with pytest.raises(ValueError, match="positive multiple of 4, got 6"):
        LinearGQ(16, group_size=6)


# -- 8-bit floats --


@pytest.mark.parametrize("dtype", [popxl.float8_143, popxl.float8_152])
@pytest.mark.parametrize("factor", [1e-3, 1.0, 3000.0])
def test_scales_fill_the_range(dtype, factor):
    """With the scale of a tensor nothing overflows; with one more, its largest element does."""
    values = normal(40) * np.float32(factor)
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(values)
        scale = fp8_amax_scale(t, dtype)
        fits = ops.pow2scale_cast_to_fp8(t, scale, dtype)
        back = ops.pow2scale_cast_from_fp8(fits, ops.negate(scale), popxl.float32)
    result, numbers = run(ir, [scale, back])
    np.testing.assert_allclose(numbers, values, rtol=0.13, atol=np.abs(values).max() * 2e-3)
    cast = popxl.fp8_utils.host_pow2scale_cast_to_fp8
    back_again = popxl.fp8_utils.host_pow2scale_cast_from_fp8
    if result < 31:
        over = back_again(cast(values, dtype, int(result) + 1), popxl.float32)
        assert np.isnan(over[np.abs(values).argmax()])


def test_the_scale_of_zeros():
    """It is the largest there is, not an undefined number."""
    ir = popxl.Ir()
    with ir.main_graph:
        scale = fp8_amax_scale(popxl.variable(np.zeros(3, np.float32)))
    assert run(ir, [scale])[0] == 31


WIDE = 2.0 ** np.random.default_rng(3).uniform(-40, 20, 50)


@pytest.mark.parametrize("dtype", [popxl.float8_143, popxl.float8_152])
@pytest.mark.parametrize(
    "values",
    [normal(40), normal(40) * 1e-6, WIDE, np.zeros(3), np.array([3e4, 0.0, -3e4]), 2.0 * WIDE[:1]],
    ids=["normal", "small", "wide", "zeros", "equal", "one"],
)
def test_the_scale_that_loses_least(dtype, values):
    """No scale has a smaller error, by trying all; device and host agree."""
    values = values.astype(np.float32)
    there = popxl.fp8_utils.host_pow2scale_cast_to_fp8
    back = popxl.fp8_utils.host_pow2scale_cast_from_fp8

    def error(scale):
        codes = there(values, dtype, scale, nan_on_overflow=False)
        return float(np.mean((back(codes, popxl.float32, -scale).astype(float) - values) ** 2))

    result, scale = popxl.fp8_utils.host_fp8_mse_scale(values, dtype)
    assert result == error(scale)
    assert result <= min(error(s) for s in range(-31, 32)) * (1 + 1e-6)
    ir = popxl.Ir()
    with ir.main_graph:
        on_device = fp8_mse_scale(popxl.variable(values), dtype)
    assert run(ir, [on_device])[0] == scale == popxl.fp8_utils.host_fp8_mse_scale_pb(values, dtype)


@pytest.mark.parametrize("metric", ["amax", "mse"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_layer_in_8_bit_floats(device, metric):
    """LinearFP8 and its gradients are those of a linear layer, to the 8-bit formats' precision."""
    x, dy = normal(4, 8), normal(4, 6, seed=1)
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(x)
        factories, graph = LinearFP8(6, scale_metric=metric).create_graph(t)
        grad = addons.autodiff(graph)
        variables = factories.init()
        info = graph.bind(variables).call_with_info(t)
        given = grad.grad_graph_info.inputs_dict(info)
        gradients = grad.call(popxl.constant(dy), args=given)
        tensors = [info.outputs[0], *gradients, variables.weight]
    result, dx, dw, db, weight = run(ir, tensors, device_of(device))
    for got, want in ((result, x @ weight), (dx, dy @ weight.T), (dw, x.T @ dy)):
        assert np.linalg.norm(got - want) < 0.1 * np.linalg.norm(want)
    np.testing.assert_allclose(db, dy.sum(0), rtol=1e-5, atol=1e-6)


def test_scales_that_are_unknown():
    """A metric that there is not is refused by name."""
    with pytest.raises(ValueError, match=r"must be one of .*'amax'.*, got 'max'"):
        LinearFP8(4, scale_metric="max")


def test_streams_at_once():
    """host_load and host_store make streams of the tensors' shapes."""
    ir = popxl.Ir()
    with ir.main_graph:
        array, stream, x = addons.host_load(np.arange(3.0), popxl.float32, "x")
        out = addons.host_store(x + 1)
    assert array.dtype == np.float32
    with popxl.Session(ir) as session:
        np.testing.assert_array_equal(session.run({stream: array})[out], [1, 2, 3])
