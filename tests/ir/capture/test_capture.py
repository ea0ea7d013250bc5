"""A recorded forward: transformers that look at masks, and errors in the author's words."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.ir.steps import captured, run_host
from tests.sampling import in_turn

X = torch.linspace(-1, 1, 80).reshape(2, 5, 8) ** 3
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)
PADDED = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 1, 1]]).bool()


class _Called(nn.Module):
    def __init__(self, inner: nn.Module, call: Callable):
        super().__init__()
        self.inner, self.call = inner, call

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(self.inner, *inputs)


def _encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def _whole() -> nn.Module:
    return nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)


def _own_mask(model: nn.Module, x: Tensor) -> Tensor:
    mask = nn.Transformer.generate_square_subsequent_mask(5, device=x.device)
    return model(x, mask=mask)


CASES: dict[str, tuple[Callable, Callable, tuple]] = {
    "encoder, mask": (_encoder, lambda m, x, k: m(x, mask=k), (X, CAUSAL)),
    "encoder, any mask": (_encoder, lambda m, x, k: m(x, mask=k), (X, CAUSAL.flip(0).exp())),
    "encoder, its own mask": (_encoder, _own_mask, (X,)),
    "encoder, padding": (_encoder, lambda m, x, k: m(x, src_key_padding_mask=k), (X, PADDED)),
    "transformer": (_whole, lambda m, x: m(x, x), (X,)),
    "transformer, mask": (_whole, lambda m, x, k: m(x, x, tgt_mask=k), (X, CAUSAL)),
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "training"), in_turn(CASES, [True, False]))
def test_transformers_with_masks(name, training):
    """PyTorch looks whether a mask is causal or pads the end; a recording does not need to."""
    make, call, inputs = CASES[name]
    torch.manual_seed(1)
    model = _Called(make(), call).train(training)
    wanted = model(*inputs)
    (result,) = run_host(captured(model, *inputs), *inputs, model=model)
    torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-5)


WRONG: dict[str, Callable[[Tensor], object]] = {
    "operand": lambda x: x + "text",
    "order": lambda x: x < "text",
    "operator": lambda x: x @ 3,
    "attribute": lambda x: x.no_such_thing,
    "assignment": lambda x: x.__setitem__(0, "text"),
    "argument": lambda x: torch.add(x, "text"),
    "arguments": lambda x: torch.cat(x, x),
    "call": lambda x: x(),
    "number of arguments": torch.mm,
    "keyword": lambda x: torch.sum(x, along=1),
    "module": lambda x: nn.Linear(8, 3)(x, x),
    "shapes": lambda x: x @ x,
    "length": lambda x: x.reshape(7, 7),
    "place": lambda x: x[9],
    "dimension": lambda x: x.sum(5),
    "index": lambda x: x["text"],
    "conversion": torch.zeros,
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_are_those_of_pytorch(name):
    """The class and the words that PyTorch has for real tensors: 'Tensor', no class of ours."""
    with pytest.raises(Exception) as wanted:  # noqa: PT011 - whatever PyTorch says
        WRONG[name](X)
    with pytest.raises(wanted.type) as got:
        captured(WRONG[name], X)
    assert "Fake" not in str(got.value)
    if name not in {"module", "index", "conversion"}:  # they show values, or name a place
        assert str(got.value) == re.sub(r"\n +at .*", "", str(wanted.value))


def test_weights_may_lie_anywhere():
    """A step is recorded on the host, wherever the weights are: those of Keras lie on a GPU."""
    model = nn.Linear(8, 3, device="meta")
    step = captured(model, X)
    devices = {node.meta["val"].device.type for node in step.graph.nodes if "val" in node.meta}
    assert devices == {"cpu"}
