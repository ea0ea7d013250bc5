"""Complex numbers on tiles against PyTorch: functions, products, views, writes, gradients."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import poptorch
from tests.ir.like_aten import assert_like_aten, complex_gradients
from tremula import run_on_tiles
from tremula.ir.errors import UnsupportedOperations

pytestmark = pytest.mark.slow

ELEMENTARY = (
    "abs angle exp expm1 log log1p log2 sqrt rsqrt reciprocal square sgn sin cos tan sinh cosh tanh"
    " sigmoid asin acos atan asinh acosh atanh sinc"
).split()
OF_ALL = "sum mean prod var std norm".split()


def numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("exp", "sqrt", "tanh", "abs", "prod"), id="some"),
        pytest.param((*ELEMENTARY, *OF_ALL), id="all", marks=pytest.mark.wide),
    ],
)
def test_elementary_functions_and_their_gradients(names):
    """Each function of complex numbers, and the gradient through it, equals PyTorch's."""
    functions = [getattr(torch, name) for name in names]

    def function(z):
        return [part for f in functions for part in (f(z), *complex_gradients(f, z))]

    assert_like_aten(function, numbers(3, 4), rtol=1e-4, atol=1e-5)


def test_arithmetic_of_complex_and_real_operands():
    """Sums, products, quotients and powers of complex tensors, real ones and numbers, broadcast."""

    def function(z, w, x):
        return [
            z + w, z - 2j, 1.5 - z, z * w, z * x, (2 + 1j) * x, z / w, x / z, 1j / z, z / 3,
            z**2, z**3, z**1.3, 2**z, z**w, torch.addcmul(z, z, x, value=2j), torch.lerp(z, w, 0.3),
            z == w, z != 0, z.isfinite(), torch.where(x > 0, z, w), z.masked_fill(x > 0, 1 + 2j),
            *complex_gradients(lambda z, w: z * w.conj() - w / z, z, w),
        ]  # fmt: skip

    x = torch.tensor([1.0, -2.0, 0.5, 3.0])
    assert_like_aten(function, numbers(3, 4), numbers(3, 1, seed=1) + 0.3, x, rtol=1e-4, atol=1e-5)


def test_products_of_matrices():
    """Products of complex and real matrices, vectors and batches, and their gradients."""

    def function(a, b, x):
        return [
            a @ b, a @ (x + 0j), torch.mv(a[0], b[0, :, 0]), torch.vdot(b[0, 0], b[1, 0]),
            torch.einsum("bij,bjk->ik", a, b), torch.linalg.inv(b[0, :, :4]),
            torch.nn.functional.linear(a, b[0].mT, b[1, 0]),
            *complex_gradients(torch.matmul, a, b),
        ]  # fmt: skip

    operands = numbers(2, 3, 4), numbers(2, 4, 5, seed=1), torch.randn(4, 4)
    assert_like_aten(function, *operands, rtol=1e-4, atol=1e-5)


def test_views_and_writes():
    """Views, copies, lookups; writes through real and imaginary part reach the complex tensor."""

    def function(z, rows):
        written = z.clone()
        written[0] = 1j
        written.real.mul_(2)
        written[:, 1:].imag.add_(3)
        torch.view_as_real(written)[..., 0] += 1
        return [
            written, z.conj(), z.conj().imag, z.real, z.T.reshape(-1), z.flip(0), z.roll(1, 1),
            torch.cat([z, z.conj()]), torch.stack([z, 1j * z], 1), z[rows], z[:, ::2], z.cumsum(1),
            z.cumprod(0), torch.nn.functional.pad(z, (1, 0), value=2), z.tril(),
            torch.zeros(2, dtype=torch.complex64) + z[0, 0], torch.polar(z.real.abs(), z.imag),
            torch.view_as_complex(torch.stack([z.imag, z.real], -1)), torch.ones_like(z),
        ]  # fmt: skip

    assert_like_aten(function, numbers(3, 4), torch.tensor([2, 0]))


@settings(max_examples=4, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans())
def test_inputs_and_results_are_complex(shape, is_conjugate):
    """A complex input is read, and a complex result given, in PyTorch's own form."""
    z = numbers(*shape)
    z = z.conj() if is_conjugate else z
    (result,) = run_on_tiles(lambda z: z * 2, z)
    assert result.dtype == torch.complex64
    torch.testing.assert_close(result, z * 2)


def test_what_has_no_rule_is_refused_by_name():
    """An operation without a rule for complex numbers is named, not computed of one part."""
    with pytest.raises(UnsupportedOperations, match=r"aten::lgamma|aten::linalg_eig"):
        run_on_tiles(torch.linalg.eigvals, numbers(3, 3))


def test_a_complex_parameter_is_not_trained():
    """Optimisers have formulas of real numbers: a complex weight is rejected."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(numbers(3))

        def forward(self, x):
            return poptorch.identity_loss((x * self.weight).abs().sum(), "none")

    model = Model()
    trained = poptorch.trainingModel(model, optimizer=poptorch.optim.Adam(model.parameters()))
    with pytest.raises(poptorch.Error, match="parameter weight is complex"):
        trained(torch.ones(3))
