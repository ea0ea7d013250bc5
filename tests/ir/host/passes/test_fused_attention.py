"""Attention on a GPU: one fused kernel forwards and one backwards, whatever the model writes."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from tests.ir.steps import training_step
from tremula.ir.host.passes.fused_attention import (
    EFFICIENT,
    FLASH,
    fuse_attention,
    fused_backward,
    fused_forward,
)
from tremula.ir.host.passes.spelled_attention import spell_out_attention
from tremula.ir.nodes import schema_name
from tremula.ir.passes import HOST_PASSES, apply
from tremula.ir.passes.clean import drop_dead
from tremula.ir.passes.random_bits import reproducible
from tremula.ir.step import CapturedStep

aten = torch.ops.aten


class Attention(nn.Module):
    """One layer of self-attention, with whatever the test passes on."""

    def __init__(self, mask: str = "", n_groups: int = 4, **how: object):
        super().__init__()
        self.mask, self.how = mask, how
        self.query, self.key = nn.Linear(32, 32), nn.Linear(32, 8 * n_groups)
        self.value = nn.Linear(32, 8 * n_groups)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        heads = [
            layer(x).unflatten(-1, (-1, 8)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        result = scaled_dot_product_attention(*heads, self._mask(x, lengths), **self.how)
        return nn.functional.mse_loss(result.float(), torch.zeros_like(result, dtype=torch.float32))

    def _mask(self, x: Tensor, lengths: Tensor) -> Tensor | None:
        positions = torch.arange(x.shape[1], device=x.device)
        causal = positions[None, :] <= positions[:, None]
        if self.mask == "causal":
            return causal
        if self.mask == "causal numbers":
            return torch.zeros(causal.shape, dtype=x.dtype).masked_fill(~causal, -torch.inf)
        if self.mask == "everything":
            return torch.ones_like(causal)[None, None]
        if self.mask == "lengths":
            return (positions[None, :] < lengths[:, None])[:, None, None, :]
        return None


def step_of(dtype: torch.dtype = torch.bfloat16, length: int = 16, **how: object) -> CapturedStep:
    torch.manual_seed(0)
    model = Attention(**how).to(dtype)
    inputs = torch.randn(2, length, 32).to(dtype), torch.tensor([length, 9])
    return apply(training_step(model, *inputs), HOST_PASSES, "host")


def kernels_of(step: CapturedStep) -> list[tuple]:
    """(kernel, probability of dropout, is causal) of each fused call, forwards and backwards."""
    nodes = drop_dead(fuse_attention(step)).graph.nodes
    forward = [(n.args[0], *n.args[5:7]) for n in nodes if n.target is fused_forward]
    backward = [(n.args[0], *n.args[10:12]) for n in nodes if n.target is fused_backward]
    assert forward == backward
    return forward


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ({}, (FLASH, 0.0, False)),
        ({"is_causal": True}, (FLASH, 0.0, True)),
        ({"is_causal": True, "dropout_p": 0.25}, (FLASH, 0.25, True)),
        ({"n_groups": 2, "enable_gqa": True}, (FLASH, 0.0, False)),
        ({"mask": "causal"}, (FLASH, 0.0, True)),
        ({"mask": "causal numbers", "dropout_p": 0.25}, (FLASH, 0.25, True)),
        ({"mask": "everything"}, (FLASH, 0.0, False)),
        ({"mask": "lengths"}, (EFFICIENT, 0.0, False)),
        ({"mask": "lengths", "dropout_p": 0.25}, (EFFICIENT, 0.25, False)),
    ],
)
def test_attention_in_halves_is_one_kernel_in_each_direction(how, expected):
    """With dropout, masks and shared keys; a mask that is causal, or empty, is none."""
    step = step_of(**how)
    assert kernels_of(step) == [expected]
    assert not any(
        schema_name(n) in ("aten::bernoulli", "aten::_softmax") for n in step.graph.nodes
    )


def test_what_no_kernel_takes_is_products_and_a_softmax():
    """Floats, odd heads, and masks that `reproducible` draws."""
    assert kernels_of(step_of(torch.float32, is_causal=True)) == []
    assert kernels_of(step_of(torch.float32, 13)) == [], "aligned or not"
    torch.manual_seed(0)
    model = Attention(dropout_p=0.25).to(torch.bfloat16)
    step = training_step(model, torch.randn(2, 16, 32).bfloat16(), torch.tensor([16, 9]))
    assert kernels_of(apply(reproducible(step), HOST_PASSES, "host")) == []


@pytest.mark.parametrize("mask", ["", "lengths"])
def test_spelled_out_attention_drops_what_pytorch_drops(mask):
    """On a CPU gradients are those of PyTorch with the same seed."""
    how = {"mask": mask, "dropout_p": 0.3}
    step = drop_dead(spell_out_attention(step_of(torch.float32, **how)))
    assert not any("attention" in schema_name(n) for n in step.graph.nodes)
    torch.manual_seed(0)
    model = Attention(**how)
    inputs = torch.randn(2, 16, 32), torch.tensor([16, 9])
    torch.manual_seed(7)
    model(*inputs).backward()
    torch.manual_seed(7)
    arguments = [*(p.detach() for p in model.parameters()), *inputs, torch.tensor(0.1)]
    _, *gradients = step.module().forward(*arguments)
    for gradient, parameter in zip(gradients, model.parameters(), strict=False):
        torch.testing.assert_close(gradient, parameter.grad, rtol=1e-5, atol=1e-7)
