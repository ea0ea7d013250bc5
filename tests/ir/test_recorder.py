"""Tensors from outside forward, and the device of a model while it is recorded."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.ir.steps import captured, run_host, train_on_tiles
from tremula.ir.errors import CaptureError

X = torch.arange(12.0).reshape(3, 4)
OUTSIDE = torch.arange(4.0)
WHOLE = torch.tensor([3, 1, 0, 2])

FROM_OUTSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "to a device": lambda x: x + OUTSIDE.to(x.device),
    "to a device and type": lambda x: x + WHOLE.to(x.device, x.dtype),
    "to a device by name": lambda x: x + WHOLE.to(device=x.device, dtype=torch.float16),
    "to a tensor": lambda x: x + OUTSIDE.to(x),
    "to a tensor of another type": lambda x: x + OUTSIDE.double().to(x),
    "type_as": lambda x: x + OUTSIDE.type_as(x) + WHOLE.type_as(x),
    "operations": lambda x: x + (OUTSIDE * 2 + OUTSIDE.flip(0)).to(x.device),
    "operations there": lambda x: x + (OUTSIDE.to(x.device) * OUTSIDE.to(x.device)).cumsum(0),
    "item": lambda x: x + OUTSIDE[1].item() + int(OUTSIDE.sum()) + float(OUTSIDE.max()),
    "item there": lambda x: x + OUTSIDE.to(x.device)[1].item() + WHOLE.to(x.device).sum().item(),
    "branches": lambda x: x + 1 if bool((OUTSIDE > 2).any()) else x - 1,
    "lists": lambda x: x + sum(OUTSIDE.tolist()),
    "shapes": lambda x: x.reshape(WHOLE[1].item() * 4, int(WHOLE.max())),
    "indices": lambda x: x[:, WHOLE.to(x.device)] + x.index_select(1, WHOLE.to(x.device)),
    "masks": lambda x: x[:, (OUTSIDE > 1).to(x.device)],
    "repeats": lambda x: x.repeat_interleave(WHOLE.to(x.device), 1),
    "as_tensor": lambda x: x + torch.as_tensor(OUTSIDE, device=x.device),
    "new tensors": lambda x: x + torch.ones_like(OUTSIDE, device=x.device),
    "arrays": lambda x: x + torch.from_numpy(np.arange(4.0)).to(x),
    "typed constructors": lambda x: x + torch.LongTensor([1, 2, 3, 4]).to(x.device),
    "writes before": lambda x: x + OUTSIDE.clone().add_(1).to(x.device),
    "writes there": lambda x: x + OUTSIDE.to(x.device).clone().add_(1),
    "scalars": lambda x: x * OUTSIDE[2],
    "factories": lambda x: (
        x + torch.zeros(4, device=x.device) + torch.arange(4, device=str(x.device)) + x.new_ones(4)
    ),
    "the device of another": lambda x: x.to(OUTSIDE.to(x.device).device),
}


@pytest.mark.parametrize("name", FROM_OUTSIDE)
def test_tensors_from_outside_are_constants(name):
    """What forward does with tensors that are not of the model is computed when it is recorded."""
    function = FROM_OUTSIDE[name]
    before = OUTSIDE.clone()
    (result,) = run_host(captured(function, X), X)
    torch.testing.assert_close(result, function(X))
    assert torch.equal(OUTSIDE, before)


def test_a_tensor_that_was_not_moved_is_refused():
    """Mixed with tensors of the model it is an error, which says how to move it."""
    with pytest.raises(CaptureError, match=r"Expected an IPU tensor but got tensor\(device=cpu"):
        captured(lambda x: x + OUTSIDE, X)
    with pytest.raises(CaptureError, match=r"to\(x.device\)"):
        captured(lambda x: x + OUTSIDE * 2, X)


def test_the_device_of_a_model():
    """While recording, tensors of the model are on an IPU; afterwards nothing remembers it."""
    seen: list[object] = []

    def function(x):
        made = torch.zeros(2)
        seen.extend(t.device for t in (x, x + 1, made, OUTSIDE.to(x.device), x.to(x.device)))
        seen.append(OUTSIDE.device)
        same = x.to(x.device) is x
        return torch.full((2,), float(same and x.is_ipu and not x.is_cpu and OUTSIDE.is_cpu))

    (result,) = run_host(captured(function, X), X)
    assert seen == [torch.device("ipu", 0)] * 5 + [torch.device("cpu")]
    assert result.tolist() == [1, 1]
    assert X.device == torch.device("cpu")
    assert not hasattr(torch, "ipu")


class _WithAttributes(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = torch.ones(4)
        self.table = {"rows": [torch.arange(4.0)]}

    def forward(self, x: Tensor) -> Tensor:
        before = x + self.offset
        self.offset.add_(1)
        return before * self.offset + self.table["rows"][0] + self.offset.sum().item()


def test_attributes_are_constants_that_forward_may_write():
    """Writes are seen later in the same forward; the attribute of the module keeps its value."""
    model = _WithAttributes()
    (result,) = run_host(captured(model, X), X)
    assert torch.equal(model.offset, torch.ones(4))
    torch.testing.assert_close(result, model(X))


class _Trained(nn.Module):
    def __init__(self, forward: Callable[[nn.Module, Tensor], Tensor]):
        super().__init__()
        torch.manual_seed(1)
        self.layer, self.run = nn.Linear(4, 4), forward

    def forward(self, x: Tensor) -> Tensor:
        y = self.run(self.layer, x)
        return nn.functional.mse_loss(y, torch.zeros_like(y))


def _squeezed(layer: nn.Module, x: Tensor) -> Tensor:
    y = layer(x)[:1]
    y.squeeze_(0)
    z = layer(x)[1:2].clone()
    return y * z.squeeze_(0).mul_(2).unsqueeze_(0)


def _recomputed(layer: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(lambda x: layer(x).relu() + OUTSIDE.to(x.device), x, use_reentrant=False)


@pytest.mark.parametrize("forward", [_squeezed, _recomputed])
def test_trained_like_pytorch(forward):
    """Views in place, and parts that checkpoint() runs again in the backward pass."""
    model = _Trained(forward)
    model(X).backward()
    wanted = [(p - 0.1 * p.grad).detach() for p in model.parameters()]
    trained = train_on_tiles(_Trained(forward), X)
    for got, right in zip(trained.weights, wanted, strict=True):
        torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5)
