"""Linear layers of one input as one product, forwards and backwards."""

import pytest
import torch
from torch import Tensor, nn

from tests.ir.steps import captured, training_step
from tremula.ir.host.passes.fused_attention import fuse_attention
from tremula.ir.host.passes.join_products import join_products
from tremula.ir.host.passes.memory_format import relax_strides
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.passes.clean import drop_dead
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.addmm.default)
_WIDTH = 8


def loss_of(x: Tensor) -> Tensor:
    return nn.functional.mse_loss(x.float(), torch.zeros_like(x, dtype=torch.float32))


class Attention(nn.Module):
    """Queries, keys and values of one input, which needs a gradient."""

    def __init__(self, n_keys: int = _WIDTH, bias: bool = True):
        super().__init__()
        self.first = nn.Linear(_WIDTH, _WIDTH)
        self.query, self.key, self.value = (
            nn.Linear(_WIDTH, n, bias) for n in (n_keys, n_keys, 2 * _WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        query, key, value = (layer(x).unsqueeze(1) for layer in (self.query, self.key, self.value))
        result = nn.functional.scaled_dot_product_attention(query, key, value.sin())
        return loss_of(result + 0.5 * x.sum())


def step_of(model: nn.Module, x: Tensor) -> CapturedStep:
    step = apply(training_step(model, x), HOST_PASSES, "host")
    return relax_strides(drop_dead(fuse_attention(step)))


def n_products(step: CapturedStep) -> int:
    return sum(node.target in _PRODUCTS for node in step.graph.nodes)


def assert_equal_results(step: CapturedStep, joined: CapturedStep, *arguments: Tensor) -> None:
    for mine, expected in zip(joined.module()(*arguments), step.module()(*arguments), strict=True):
        torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_keys", [_WIDTH, 3])
def test_three_layers_are_one_product_in_each_direction(n_keys, bias):
    """Also with different widths, and with a gradient that has other terms; equal results."""
    torch.manual_seed(0)
    model, x = Attention(n_keys, bias), torch.randn(3, 40, _WIDTH)
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    step, joined = step_of(model, x), join_products(step_of(model, x))
    assert n_products(step) - n_products(joined) == 3 * (3 - 1)
    joined.graph.lint()
    assert_equal_results(step, joined, *arguments)


def test_a_few_rows_are_not_joined():
    """Weights would be copied for rows that take less memory."""
    model = Attention()
    n_enough = 9  # 2 × 32 columns < 4 × 2 × 9 rows
    few, enough = (torch.randn(1, n, _WIDTH) for n in (n_enough - 1, n_enough))
    assert n_products(join_products(step_of(model, few))) == n_products(step_of(model, few))
    assert n_products(join_products(step_of(model, enough))) < n_products(step_of(model, enough))


class Gated(nn.Module):
    """Two layers of one input; one of them may be read by another product at once."""

    def __init__(self, is_chained: bool):
        super().__init__()
        self.is_chained = is_chained
        self.first, self.gate, self.up, self.down = (nn.Linear(_WIDTH, _WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return loss_of(self.values(x))

    def values(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        gate, up = self.gate(x), self.up(x)
        return self.down(gate) + up.sin() if self.is_chained else self.down(gate.exp() * up)


@pytest.mark.parametrize(("is_chained", "n_fewer"), [(False, 3), (True, 1)])
def test_gradients_that_a_product_writes_stay_where_they_are(is_chained, n_fewer):
    """To be side by side they would be copied: only the product of the forward pass is joined."""
    torch.manual_seed(0)
    model, x = Gated(is_chained), torch.randn(100, _WIDTH)
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    step, joined = step_of(model, x), join_products(step_of(model, x))
    assert n_products(step) - n_products(joined) == n_fewer
    assert_equal_results(step, joined, *arguments)


def test_weights_in_another_type_are_joined():
    """Autocast converts each weight before its product."""
    torch.manual_seed(0)

    class Cast(Gated):
        def values(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                return super().values(x)

    model, x = Cast(False), torch.randn(100, _WIDTH)
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    step, joined = step_of(model, x), join_products(step_of(model, x))
    assert n_products(step) - n_products(joined) == 3
    for mine, expected in zip(joined.module()(*arguments), step.module()(*arguments), strict=True):
        torch.testing.assert_close(mine, expected, rtol=3e-2, atol=1e-2)


def test_gradients_that_change_what_follows_are_not_joined():
    """A weight that is read twice has a gradient that is a sum; results are equal."""

    class Shared(Gated):
        def values(self, x: Tensor) -> Tensor:
            return super().values(x) + super().values(x.cos())

    torch.manual_seed(0)
    model, x = Shared(False), torch.randn(100, _WIDTH)
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    joined = join_products(step_of(model, x))
    joined.graph.lint()
    assert_equal_results(step_of(model, x), joined, *arguments)


@pytest.mark.parametrize("change", [lambda x: x + x, lambda x: x + 1.0, lambda x: x + x[:1]])
def test_sums_of_other_kinds_have_equal_results(change):
    """A gradient that is added to itself, to a number or to fewer rows."""

    class Changed(Gated):
        def values(self, x: Tensor) -> Tensor:
            x = change(self.first(x).tanh())
            return self.down(self.gate(x).exp() * self.up(x))

    torch.manual_seed(0)
    model, x = Changed(False), torch.randn(100, _WIDTH)
    arguments = [*(p.detach() for p in model.parameters()), x, torch.tensor(0.1)]
    assert_equal_results(step_of(model, x), join_products(step_of(model, x)), *arguments)


def test_a_product_that_is_added_twice_counts_twice():
    """By hand: autograd would multiply instead."""
    rows, widths = torch.randn(40, _WIDTH), (_WIDTH, _WIDTH)

    def function(weights: list[Tensor]) -> list[Tensor]:
        x, first, second = weights
        y, z = (torch.mm(x, w.t()).sin() for w in (first, second))
        twice = torch.mm(y, first) + torch.mm(z, second)
        return [twice + twice, torch.mm(y.t(), x), torch.mm(z.t(), x)]

    arguments = [rows, torch.randn(widths), torch.randn(widths)]
    step, joined = (relax_strides(captured(lambda *a: function([*a]), *arguments)) for _ in "12")
    assert_equal_results(step, join_products(joined), *arguments)
