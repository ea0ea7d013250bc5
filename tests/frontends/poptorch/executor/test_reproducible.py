"""With reproducible randomness, host and tiles draw the same numbers from the same seed."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tremula.ir.settings import configured


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(12, 8)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.dropout(self.dense(x))
        return y, poptorch.identity_loss(y * y, "mean")


def trained(start: nn.Module, x: torch.Tensor, **settings: object) -> tuple:
    model = copy.deepcopy(start)
    options = poptorch.Options().randomSeed(7).deviceIterations(2)
    options.outputMode(poptorch.OutputMode.All)
    with configured(reproducible=True, **settings):
        step = poptorch.trainingModel(model, options, torch.optim.SGD(model.parameters(), lr=0.1))
        outputs = [step(x)[0] for _ in range(2)]
    step.copyWeightsToHost()
    return outputs, model.dense.weight.detach().clone(), step


@pytest.mark.slow
def test_host_and_tiles_drop_the_same_elements():
    """Two calls of two iterations: the same masks, so equal results but for rounding."""
    torch.manual_seed(0)
    start, x = Net(), torch.randn(8, 12)
    on_host, host_weight, _ = trained(start, x)
    on_tiles, tile_weight, _ = trained(start, x, tiles="run")
    for a, b in zip(on_host, on_tiles, strict=True):
        assert torch.equal(a == 0, b == 0)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(host_weight, tile_weight, rtol=1e-4, atol=1e-5)
    first, second = on_host[0].chunk(2)
    assert not torch.equal(first == 0, second == 0), "each iteration draws new numbers"


def test_the_state_can_be_put_back_and_survives_an_upload():
    """rng_state holds seed and counter; copying weights to the device does not rewind it."""
    torch.manual_seed(0)
    x = torch.randn(8, 12)
    _, _, step = trained(Net(), x)
    state = step.rng_state
    step.copyWeightsToDevice()
    assert step.rng_state == state
    masks = [step(x)[0] == 0]
    step.rng_state = state
    masks.append(step(x)[0] == 0)
    assert torch.equal(*masks)


def test_what_has_no_reproducible_form():
    """It is an error of PopTorch's that names the operation and says what to do."""

    class Waits(torch.nn.Module):
        def forward(self, x):
            return torch.poisson(x)

    with configured(reproducible=True), pytest.raises(poptorch.Error, match="aten::poisson cannot"):
        poptorch.inferenceModel(Waits())(torch.ones(3))
