"""`poptorch.autocast` as a context and as a decorator of a model's forward."""

import pytest
import torch
from torch import Tensor, nn

import poptorch


class Layers(nn.Module):
    """Two products, the second of them outside autocast; returns the types of both results."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    @poptorch.autocast()
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first = self.first(x)
        with poptorch.autocast(enabled=False):
            return first, self.second(first.float())


@pytest.mark.parametrize("tiles", [False, True])
def test_products_of_a_region_are_in_half(tiles: bool):
    """Their results are float16, those of a part that is turned off float32."""
    torch.manual_seed(0)
    model, x = Layers(), torch.randn(3, 4)
    expected = model(x)
    assert expected[0].dtype is torch.float32, "a model that is not compiled does not cast"
    compiled = poptorch.inferenceModel(model, poptorch.Options().useIpuModel(tiles))
    first, second = compiled(x)
    assert (first.dtype, second.dtype) == (torch.float16, torch.float32)
    torch.testing.assert_close((first.float(), second), expected, rtol=2e-3, atol=2e-3)


def test_weights_are_trained_in_float():
    """Gradients reach float32 weights through the casts, near those without autocast."""

    class Loss(nn.Module):
        def __init__(self, enabled: bool):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.enabled = nn.Linear(4, 4), enabled

        def forward(self, x: Tensor) -> Tensor:
            with poptorch.autocast(self.enabled):
                return poptorch.identity_loss(self.layer(x).float().square(), reduction="mean")

    weights, x = [], torch.randn(3, 4)
    for enabled in (True, False):
        model = Loss(enabled)
        training = poptorch.trainingModel(
            model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5)
        )
        training(x)
        training.copyWeightsToHost()
        weights.append(model.layer.weight.detach().clone())
    assert weights[0].dtype is torch.float32
    assert not torch.equal(*weights), "products are rounded"
    torch.testing.assert_close(*weights, rtol=5e-3, atol=5e-3)


def test_autocast_takes_a_boolean():
    """Anything else is an error that says so, such as a decorator without parentheses."""
    with pytest.raises(poptorch.Error, match=r"autocast\(enabled\) takes True or False, got"):
        poptorch.autocast(lambda x: x)
