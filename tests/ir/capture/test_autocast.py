"""`torch.autocast` inside a recorded model: which operations compute in which type."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.ir.steps import captured, run_host, training_step
from tremula.ir.nodes import schema_name


class Autocast(nn.Module):
    """Products, a norm and a softmax, some of them outside autocast."""

    def __init__(self, device: str = "cuda", dtype: torch.dtype | None = torch.bfloat16) -> None:
        super().__init__()
        self.device, self.dtype = device, dtype
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(self.device, dtype=self.dtype):
            x = torch.softmax(self.norm(self.first(x)), -1)
            with torch.autocast(self.device, enabled=False):
                assert not torch.is_autocast_enabled(x.device.type)
                x = x.float() @ self.last.weight
            return F.mse_loss(self.last(x), torch.zeros_like(x))


def types_of(step: object) -> dict[str, set[torch.dtype]]:
    """The types of the results of each operation."""
    result: dict[str, set[torch.dtype]] = {}
    for node in step.graph.nodes:
        value = node.meta.get("val")
        for tensor in value if isinstance(value, list | tuple) else [value]:
            if isinstance(tensor, Tensor):
                result.setdefault(schema_name(node), set()).add(tensor.dtype)
    return result


@pytest.mark.parametrize(("device", "dtype"), [("cuda", torch.bfloat16), ("ipu", torch.float16)])
def test_products_are_in_halves_and_norms_in_floats(device, dtype):
    """Whatever device a script names: operands of products are cast, softmax and losses are not."""
    types = types_of(captured(Autocast(device, dtype), torch.randn(4, 8)))
    assert types["aten::addmm"] == {dtype}
    assert types["aten::mm"] == {torch.float32}
    for name in ("aten::native_layer_norm", "aten::_softmax", "aten::mse_loss"):
        assert types[name] == {torch.float32}


def test_the_default_type_is_that_of_the_device():
    """float16 where a script names a GPU or an IPU, as in PyTorch."""
    types = types_of(captured(Autocast("cuda", None), torch.randn(4, 8)))
    assert types["aten::addmm"] == {torch.float16}


def test_values_are_those_of_pytorch():
    """The result is PyTorch's with the casts written out; gradients reach the float weights."""
    torch.manual_seed(0)
    model, x = Autocast(), torch.randn(4, 8)
    half = torch.bfloat16
    first = F.linear(x.to(half), model.first.weight.to(half), model.first.bias.to(half)).float()
    y = torch.softmax(model.norm(first), -1) @ model.last.weight
    last = F.linear(y.to(half), model.last.weight.to(half), model.last.bias.to(half)).float()
    (result,) = run_host(captured(model, x), x, model=model)
    torch.testing.assert_close(result, last.square().mean().detach())
    step = training_step(model, x)
    gradients = [
        n for s, n in zip(step.outputs, step.results(), strict=True) if s.kind == "gradient"
    ]
    assert {n.meta["val"].dtype for n in gradients} == {torch.float32}


@pytest.mark.parametrize("dropout_p", [0.0, 0.5])
def test_attention_is_in_halves(dropout_p):
    """With and without dropout."""

    def attend(x: Tensor) -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return F.scaled_dot_product_attention(x, x, value=x, dropout_p=dropout_p)

    step = captured(attend, torch.randn(1, 2, 4, 8))
    assert step.results()[0].meta["val"].dtype is torch.bfloat16
