"""Products and convolutions of 8-bit floats on tiles, against exact arithmetic."""

import numpy as np
import pytest

import tremula as tr
from tremula.base.floats import QuarterFormat, pack_metadata, quarter_table, quarter_to_float32
from tremula.base.types import HALF, QUARTER, QUARTER_METADATA
from tremula.poplibs import poplin
from tremula.poplibs.registry import PoplibsError

F143, F152 = QuarterFormat.F143, QuarterFormat.F152


def small_c600(n_tiles: int = 8) -> tr.Graph:
    return tr.Graph(tr.IPUModel("c600", tiles_per_ipu=n_tiles).create_device())


def quarters(graph, shape, form, scale=0, name="x"):
    """A variable of 8-bit floats with a format and scale."""
    byte = graph.add_constant(QUARTER_METADATA, [], pack_metadata(form, scale))
    return graph.add_variable(QUARTER, shape, name, mapping="linear", metadata=byte)


def ran(graph, sequence, inputs, result):
    """The result of a program given codes."""
    for name, (tensor, _) in inputs.items():
        graph.create_host_write(name, tensor)
    graph.create_host_read("result", result)
    engine = tr.Engine(graph, sequence).load()
    for name, (_, codes) in inputs.items():
        engine.write_tensor(name, codes)
    engine.run()
    return np.asarray(engine.read_tensor("result"))


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right"), [(F143, F143), (F143, F152), (F152, F152)])
def test_every_product_of_two_codes_is_exact(left, right):
    """All 256 × 256 products of codes are those of exact arithmetic, rounded once to half."""
    graph, sequence = small_c600(), tr.Sequence()
    scales = (-3, -7) if right is F152 else (1, -2)
    a = quarters(graph, [256, 1], left, scales[0], "a")
    b = quarters(graph, [1, 256], right, scales[1], "b")
    out = poplin.mat_mul(graph, a, b, sequence)
    assert out.type is HALF
    codes = np.arange(256, dtype=np.uint8)
    got = ran(graph, sequence, {"a": (a, codes), "b": (b, codes)}, out)
    # A product of two codes has at most 8 bits of mantissa: float64 holds it exactly.
    exact = np.outer(quarter_table(left).astype(np.float64), quarter_table(right))
    with np.errstate(over="ignore"):
        expected = np.ldexp(exact, sum(scales)).astype(np.float16)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
def test_products_sum_in_float_and_round_once():
    """[m, k] · [k, n] with two formats and scales agrees with float64 to a rounding to half."""
    random = np.random.default_rng(0)
    graph, sequence = small_c600(), tr.Sequence()
    codes = [random.integers(0, 0x70, shape).astype(np.uint8) for shape in ((33, 70), (70, 21))]
    codes = [np.where(random.random(c.shape) < 0.5, c | 0x80, c).astype(np.uint8) for c in codes]
    codes = [np.where(c == 0x80, 0, c).astype(np.uint8) for c in codes]
    a, b = quarters(graph, [33, 70], F143, -5), quarters(graph, [70, 21], F152, -9)
    out = poplin.mat_mul(graph, a, b, sequence)
    got = ran(graph, sequence, {"a": (a, codes[0]), "b": (b, codes[1])}, out)
    wide = [
        quarter_to_float32(c, form, scale).astype(np.float64)
        for c, form, scale in zip(codes, (F143, F152), (-5, -9), strict=True)
    ]
    expected = wide[0] @ wide[1]
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < 2**-10


@pytest.mark.slow
def test_transposed_operands_and_convolutions():
    """Codes are transposed as bytes; a convolution is the sum of its taps' products."""
    random = np.random.default_rng(1)
    x = random.integers(0x38, 0x48, (2, 6, 5, 5)).astype(np.uint8)
    w = random.integers(0xB8, 0xC8, (1, 7, 6, 3, 3)).astype(np.uint8)
    graph, sequence = small_c600(), tr.Sequence()
    params = poplin.ConvParams(
        type=QUARTER, n_batch=2, field_shape=(5, 5), kernel_shape=(3, 3), n_in_chans=6,
        n_out_chans=7, padding_lower=(1, 1), padding_upper=(1, 1),
    )  # fmt: skip
    byte = graph.add_constant(QUARTER_METADATA, [], pack_metadata(F143, 0))
    acts = quarters(graph, x.shape, F143)
    weights = poplin.create_weights(graph, params, metadata=byte)
    out = poplin.convolution(graph, acts, weights, params, sequence)
    got = ran(graph, sequence, {"a": (acts, x), "w": (weights, w)}, out)
    torch = pytest.importorskip("torch")
    wide = [torch.from_numpy(quarter_to_float32(c, F143)) for c in (x, w[0])]
    expected = torch.nn.functional.conv2d(*wide, padding=1).numpy()
    np.testing.assert_allclose(got, expected, rtol=2e-3, atol=1e-2)


@pytest.mark.slow
def test_planned_at_the_rate_of_8_bit_floats():
    """A large product takes little more than half the cycles of one of halves."""
    graph = tr.Graph(tr.IPUModel("c600").create_device())
    shape = (2048, 2048)
    small = poplin.mat_mul_plan(graph, QUARTER, shape, shape)
    half = poplin.mat_mul_plan(graph, HALF, shape, shape, partials_type=HALF)
    assert 0.4 < small.cycles / half.cycles < 0.65


def test_chips_without_8_bit_units_refuse():
    """On a Bow the error says which chip has them, and that a cast helps; floats are no result."""
    graph, sequence = tr.Graph(tr.IPUModel("bow", tiles_per_ipu=4).create_device()), tr.Sequence()
    a, b = quarters(graph, [4, 8], F143), quarters(graph, [8, 4], F143)
    with pytest.raises(PoplibsError, match=r"(?s)Bow does not multiply.*cast.*c600"):
        poplin.mat_mul(graph, a, b, sequence)
    graph = small_c600()
    a, b = quarters(graph, [4, 8], F143), quarters(graph, [8, 4], F143)
    with pytest.raises(PoplibsError, match="of quarter cannot be float, expected half"):
        poplin.mat_mul(graph, a, b, sequence, out_type="float")
