"""Element-wise lowerings against ATen: every overload, type promotion, NaN, gradients, layouts."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.like_aten import assert_like_aten
from tremula.base.types import BOOL, HALF, INT, UNSIGNED_CHAR
from tremula.ir.lowering.pointwise.map import number
from tremula.ir.lowering.program.build import Schedule, build_tile_program
from tremula.ir.lowering.program.step_builder import StepBuilder
from tremula.ir.op_table import lowering_of
from tremula.ir.run.tile_run import capture_function
from tremula.poplar.target import IPUModel

nan, inf = float("nan"), float("inf")


@pytest.fixture
def values():
    """Floats, ints, bools, and floats that go wrong first."""
    random = torch.Generator().manual_seed(1)
    return (
        torch.randn(4, 6, generator=random),
        torch.randn(6, generator=random),
        torch.randint(-20, 20, (4, 6), generator=random),
        torch.randint(1, 7, (6,), generator=random),
        torch.rand(4, 6, generator=random) > 0.5,
        torch.rand(6, generator=random) > 0.5,
        torch.tensor([nan, 1.0, -inf, inf, 0.0, -0.0]),
    )


@pytest.mark.slow
def test_arithmetic(values):
    """Sums, products and quotients promote types and round integers as PyTorch does."""

    def function(a, b, i, j, m, n, e):
        return [
            a + b, a + 2, torch.add(a, b, alpha=3), i + 1.5, i + m, m + n, m * n, a * m, a - b,
            torch.sub(a, b, alpha=0.5), 1 - a, i - 1, a / b, i / j, i / 2,
            torch.div(a, b, rounding_mode="floor"), torch.div(i, j, rounding_mode="trunc"),
            torch.div(a, b, rounding_mode="trunc"), i // j, i // -3, a // b, e // b, i % j, i % -3,
            a % b, a % 1.5, torch.fmod(a, b), torch.fmod(i, j), torch.rsub(a, b, alpha=2),
        ]  # fmt: skip

    assert_like_aten(function, *values)


@pytest.mark.slow
def test_powers_and_extremes(values):
    """Powers of integers are whole; maximum, minimum and clamp keep NaN."""

    def function(a, b, i, j, m, n, e):
        p = a.abs()
        return [
            p**b, a**2, a**3, i**2, p**0.5, p**-0.5, a**-1.0, p**1.7, 2**a, i**j, i**1,
            torch.maximum(e, b), torch.maximum(b, e), torch.minimum(e, b), torch.minimum(b, e),
            torch.maximum(m, n), torch.minimum(m, n), a.clamp(-0.5, 0.5), a.clamp(min=0),
            i.clamp(max=3), e.clamp(-1, 1), torch.clamp(a, b, b + 1), torch.clamp(a, min=b),
            a.clamp(1, -1), i.clamp(0.5), a.clamp_max(0.1), F.hardtanh(a), torch.atan2(a, b),
            torch.addcmul(a, a, b, value=2.0), torch.addcdiv(a, b, b, value=-0.5),
            torch.lerp(a, b.expand(4, 6), 0.3), torch.lerp(a, b.expand(4, 6), p),
        ]  # fmt: skip

    assert_like_aten(function, *values)


@pytest.mark.slow
def test_comparisons_bits_and_choices(values):
    """Comparisons compute in the promoted type; numbers too large for an int are the largest."""

    def function(a, b, i, j, m, n, e):
        return [
            a == b, a != 1, i < j, i <= 0.5, a > b, a >= 0, m == n, e == e, m > 0, i < 2**40,
            i & j, i | j, i ^ j, m & n, m | n, m ^ n, i & 7, i << 2, i >> 1, 1 << j,
            torch.logical_and(a, m), torch.logical_or(i, m), torch.logical_xor(m, n),
            torch.where(m, a, b), torch.where(m, a, 0.0), torch.where(m, 1, i),
            torch.where(m, 1.0, 2.0), torch.where(m, i, a), a.masked_fill(m, -1e9),
            a.masked_fill(m, b[0]),
        ]  # fmt: skip

    assert_like_aten(function, *values)


@pytest.mark.slow
def test_functions(values):
    """Functions of floats agree to 1e-5, also those the machine has no instruction for."""

    def function(a, i):
        p, u = a.abs() + 0.1, a.clamp(-0.99, 0.99)
        return [
            a.exp(), a.exp2(), a.expm1(), p.log(), p.log1p(), p.sqrt(), p.rsqrt(), p.reciprocal(),
            a.sin(), a.cos(), a.tan(), u.asin(), a.atan(), a.tanh(), a.sigmoid(), a.erf(), i.exp(),
            p.log2(), p.log10(), u.acos(), a.sinh(), a.cosh(), a.asinh(), (p + 1).acosh(),
            u.atanh(), (a * 3).erfc(), torch.deg2rad(a), torch.rad2deg(a), a.frac(),
        ]  # fmt: skip

    assert_like_aten(function, values[0], values[2])


@pytest.mark.slow
def test_signs_rounding_tests_and_types(values):
    """Integers pass through rounding, unsigned ones wrap, and conversions cut towards zero."""
    small = torch.tensor([3, 0, 250], dtype=torch.uint8)

    def function(a, i, m, e, z):
        return [
            -a, -i, -z, a.abs(), i.abs(), z.abs(), a.sign(), i.sign(), z.sign(), e.relu(), i.relu(),
            torch.signbit(e), a.floor(), a.ceil(), a.trunc(), (a * 2).round(), i.floor(),
            a.round(decimals=1), (a * 100).round(decimals=-1), e.isnan(), e.isinf(), e.isfinite(),
            i.isnan(), i.isfinite(), torch.isposinf(e), torch.isneginf(e), e.nan_to_num(),
            e.nan_to_num(1.0, 2.0, 3.0), ~m, ~i, a.logical_not(), i.logical_not(), a.int(),
            a.long(), a.bool(), i.half(), i.to(torch.int8), m.float(), m.long(),
            i.to(torch.uint8), a.half().float(), i.short(), a.double(),
        ]  # fmt: skip

    assert_like_aten(function, values[0], values[2], values[4], values[6], small)


def activations(x):
    return [
        F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.hardsigmoid(x * 3),
        F.hardswish(x * 3), F.relu6(x * 5), F.leaky_relu(x, 0.2), F.threshold(x, 0.1, 0.5),
        F.hardtanh(x), F.elu(x, 0.7), F.selu(x), F.celu(x, 0.5), F.softplus(x),
        F.softplus(x, 2.0, 1.0), F.logsigmoid(x), F.relu(x), torch.sigmoid(x), torch.tanh(x),
        F.softsign(x), F.tanhshrink(x), F.softshrink(x, 0.3), F.hardshrink(x, 0.3),
    ]  # fmt: skip


@pytest.mark.slow
def test_activations(values):
    """Every activation of torch.nn.functional gives ATen's values."""
    assert_like_aten(activations, values[0], rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_gradients_of_activations(values):
    """Every activation's gradient is one formula that gives ATen's values."""

    def function(x, g):
        leaves = [x.detach().requires_grad_(True) for _ in activations(x)]
        return [
            torch.autograd.grad(activations(leaf)[number], leaf, g)[0]
            for number, leaf in enumerate(leaves)
        ]

    assert_like_aten(function, values[0], values[0].flip(0) + 0.5, rtol=2e-5, atol=2e-6)


@pytest.mark.slow
def test_halves(values):
    """Halves agree to 1e-2, and meet numbers beyond their range as floats."""

    def function(x):
        return [
            x * 1e-8, x + 1e5, x / 1e5, F.gelu(x), F.silu(x), x.sinh(),
            x.masked_fill(x > 0, -inf), torch.where(x > 0, x, -1e9), x**3, x.clamp(-0.1, 0.1),
            x * 0.1 + x, x.exp(), x.sigmoid(), x.float() * 2, x % 1.5, x.tanh(), x - x.float(),
        ]  # fmt: skip

    assert_like_aten(function, values[0].half())


@pytest.mark.slow
@settings(max_examples=8)
@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=4),
    data=st.data(),
)
def test_layouts(shape, data):
    """Operands that are permuted, sliced or broadcast give the same sums."""
    order = data.draw(st.permutations(range(len(shape))))
    kept = data.draw(st.lists(st.booleans(), min_size=len(shape), max_size=len(shape)))
    x = torch.randn([2 * n for n in shape]).permute(order)
    y = torch.randn([x.shape[d] // 2 if keep else 1 for d, keep in enumerate(kept)])

    def function(x, y):
        for dim in range(x.dim()):
            x = x.narrow(dim, x.shape[dim] // 4, x.shape[dim] // 2)
        return [x + y, x * y - 1]

    assert_like_aten(function, x, y)


def test_numbers_become_the_types():
    """Whole numbers saturate; floats overflow to infinity without a warning."""
    assert number(2**40, INT) == 2**31 - 1
    assert number(-(2**40), INT) == -(2**31)
    assert number(300, UNSIGNED_CHAR) == 255
    assert number(1e9, HALF) == inf
    assert number(0.5, BOOL).item() is True


@pytest.mark.parametrize("reads_target", [True, False])
def test_a_destination_is_written_at_once(monkeypatch, reads_target):
    """With a destination the result is that tensor; one that overlaps otherwise is left alone."""
    step = capture_function(
        lambda w, g: w - g if reads_target else g * 2 + w[:1], [torch.ones(3, 3), torch.ones(3, 3)]
    )
    results = []

    def lower(builder, node):
        values = builder.values
        tiles = values.tiles_on(node, 0, builder.flow.sequence_of(node))
        args = torch.fx.map_arg(node.args, values.of_node.__getitem__)
        held = values.of_node[step.placeholders()[0]]
        tiles.destination = held if str(node.target) != "aten.mul.Tensor" else None
        value = lowering_of(node).build(tiles, *args, **node.kwargs)
        values.of_node[node] = value
        results.append(value is held)

    monkeypatch.setattr(StepBuilder, "lower", lower)
    build_tile_program(step, IPUModel("bow", tiles_per_ipu=4).create_device().target, Schedule())
    assert results[-1] is reads_target
