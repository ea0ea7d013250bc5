"""Large products whose rows do not begin at multiples of 16 bytes are padded for tensor cores."""

from collections import Counter

import pytest
import torch
from torch import nn

from tests.ir.steps import captured, training_step
from tremula.ir.host.passes.pad_products import pad_products
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.step import CapturedStep

aten = torch.ops.aten
_PRODUCTS = (aten.mm.default, aten.bmm.default, aten.addmm.default)


@pytest.fixture(autouse=True)
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


class Classifier(nn.Module):
    """An output layer over an odd number of classes, and its loss."""

    def __init__(self, n_classes: int, bias: bool):
        super().__init__()
        self.out = nn.Linear(512, n_classes, bias=bias)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        scores = self.out(x)  # of sequences, of which each predicts what follows
        return nn.functional.cross_entropy(scores[:, :-1].flatten(0, 1), y[:, 1:].flatten())


def sizes(step: CapturedStep) -> list[tuple[int, ...]]:
    return [tuple(n.meta["val"].shape) for n in step.graph.nodes if n.target in _PRODUCTS]


@pytest.mark.parametrize("bias", [False, True])
def test_an_output_layer_is_padded_forwards_and_backwards(bias: bool):
    """Products and results are those of the step as it was; operands are padded once for all."""
    torch.manual_seed(0)
    model, x = Classifier(515, bias), torch.randn(8, 64, 512)
    y = torch.randint(515, (8, 64))
    step = apply(training_step(model, x, y), HOST_PASSES, "host")
    arguments = [*(p.detach() for p in model.parameters()), x, y, torch.tensor(0.1)]
    expected = step.module().forward(*arguments)
    assert any(515 in size for size in sizes(step))
    padded = pad_products(step)
    assert not any(515 in size for size in sizes(padded))
    torch.testing.assert_close(padded.module().forward(*arguments), expected)
    pads = Counter(
        node.args[0] for node in padded.graph.nodes if node.target is aten.constant_pad_nd.default
    )
    assert set(pads.values()) == {1}


@pytest.mark.parametrize("make", [torch.mm, torch.bmm])
def test_factors_by_columns_are_padded_along_their_memory(make):
    """A transposed factor is padded as it is stored, in batches too; results are equal."""
    torch.manual_seed(0)
    shape = (518, 519) if make is torch.mm else (2, 518, 519)
    a, b = torch.randn(shape), torch.randn(shape)
    step = captured(lambda a, b: make(a.transpose(-2, -1), b), a, b)
    expected = step.module().forward(a, b)
    padded = pad_products(step)
    assert [size[-2:] for size in sizes(padded)] == [(520, 520)]
    torch.testing.assert_close(padded.module().forward(a, b), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("m", "n"), [(512, 512), (512, 3), (515, 512)])
def test_other_products_are_left(m: int, n: int):
    """Aligned ones, those that memory binds, and an odd number of rows by rows need nothing."""
    step = captured(torch.mm, torch.randn(m, 512), torch.randn(512, n))
    before = len(step.graph.nodes)
    assert len(pad_products(step).graph.nodes) == before


def test_full_precision_has_no_tensor_cores():
    """With "highest" products of floats are left as they are."""
    torch.set_float32_matmul_precision("highest")
    step = captured(torch.mm, torch.randn(512, 512), torch.randn(512, 515))
    assert sizes(pad_products(step)) == [(512, 515)]
