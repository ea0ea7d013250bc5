"""Precision: loss scaling that follows gradients, types of partial sums, mixed half and float."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import poptorch
from tests.frontends.poptorch.models import on_host, quiet
from tests.sampling import one_in
from tremula.ir.optim.grouped_rule import AutomaticLossScaling
from tremula.ir.settings import configured

pytestmark = pytest.mark.slow

X = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        y = self.layer(x)
        return y, F.mse_loss(y, torch.zeros_like(y))


def trained(options, tiles="lazy", n_steps=3, model=None, lr=0.1):
    model = model or Net()
    with configured(tiles=tiles, host="eager", device="cpu"):
        compiled = poptorch.trainingModel(
            model, options, torch.optim.SGD(model.parameters(), lr=lr)
        )
        losses = [compiled(X)[1] for _ in range(n_steps)]
        compiled.copyWeightsToHost()
    return losses, model.layer.weight.detach().clone(), compiled


def automatic(**more):
    options = quiet()
    options.Training.setAutomaticLossScaling(True)
    for name, value in more.items():
        options._Popart.set(f"automaticLossScalingSettings.{name}", value)
    return options


@pytest.mark.parametrize("tiles", ["lazy", "run"])
def test_automatic_loss_scaling_changes_no_float(tiles):
    """A scale that doubles each step leaves losses and weights of a float model as they are."""
    losses, weight, _ = trained(quiet(), tiles)
    scaled_losses, scaled_weight, compiled = trained(automatic(), tiles)
    torch.testing.assert_close(scaled_losses, losses, rtol=1e-6, atol=0)
    torch.testing.assert_close(scaled_weight, weight, rtol=1e-6, atol=0)
    session = compiled.compiled_program().session
    if tiles == "lazy":
        assert session.state.hyper_floats[-1] == 8.0  # 1, 2, 4 in three steps, then 8
    else:
        assert session._read("hyper", 0)[-1].item() == 8.0


def test_scale_falls_when_gradients_grow():
    """Gradients near the largest half halve the scale; it never falls below 1."""
    scaling = AutomaticLossScaling()
    scale = torch.tensor(16.0)
    small, large = torch.ones(10), torch.tensor([1.0, 9000.0])
    assert scaling.next_scale(scale, [small]).item() == 32
    assert scaling.next_scale(scale, [small, large]).item() == 8
    assert scaling.next_scale(scale, [torch.tensor([float("nan")])]).item() == 8
    assert scaling.next_scale(torch.tensor(1.0), [large]).item() == 1
    assert scaling.next_scale(torch.tensor(2.0**24), [small]).item() == 2**24


def test_scaling_options():
    """The edge and the share of large elements are options; the period is fixed."""
    losses, _, compiled = trained(automatic(binEdgeLocation=1e-9))
    assert compiled.compiled_program().session.state.hyper_floats[-1] == 1.0
    assert len(losses) == 3
    with pytest.raises(poptorch.Error, match="updatePeriod can only be 1"):
        trained(automatic(updatePeriod=4))


def test_half_gradients_are_kept_from_vanishing():
    """Gradients too small for a half train the weights once the scale has grown."""

    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 3).half()

        def forward(self, x):
            return x, poptorch.identity_loss(self.layer(x.half()).float() * 1e-8, "sum")

    plain, scaled = Tiny(), Tiny()
    scaled.load_state_dict(plain.state_dict())
    before = plain.layer.weight.detach().clone()
    _, still, _ = trained(quiet(), model=plain, n_steps=12, lr=1e5)
    torch.testing.assert_close(still, before, rtol=0, atol=0)
    _, moved, compiled = trained(automatic(), model=scaled, n_steps=12, lr=1e5)
    assert compiled.compiled_program().session.state.hyper_floats[-1] == 2.0**12
    assert (moved - before).abs().min() > 1e-4


def test_partials_type_reaches_the_planner():
    """setPartialsType is what products on tiles sum in."""
    options = quiet()
    options.Precision.setPartialsType(torch.half)
    with configured(host="eager", device="cpu"):
        model = poptorch.inferenceModel(Net().layer, options)
        model(X)
    assert model.tile_program().lowering_options().partials_type == "half"


@pytest.mark.parametrize(
    ("input_type", "weight_type"),
    [(torch.float16, torch.float32), (torch.float32, torch.float16)],
)
def test_products_have_the_type_of_the_activation(input_type, weight_type):
    """Mixed half and float: weights are cast to the type of what they multiply."""
    layer = nn.Linear(4, 3).to(weight_type)
    assert on_host(layer, X.to(input_type)).dtype == input_type


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_half_weights_are_trained(momentum):
    """SGD on half weights does what it does to float weights, rounded."""

    class Wide(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            torch.manual_seed(0)
            self.layer = nn.Linear(4, 20).to(dtype)

        def forward(self, x):
            return poptorch.identity_loss(self.layer(x).float().square(), "mean")

    result = []
    for dtype in (torch.float32, torch.float16):
        model = Wide(dtype)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=momentum)
        with configured(host="eager", device="cpu", tiles="lazy"):
            compiled = poptorch.trainingModel(model, quiet(), optimizer)
            for _ in range(3):
                compiled(X.to(dtype))
            compiled.copyWeightsToHost()
        result.append(model.layer.weight.detach().float())
    torch.testing.assert_close(result[1], result[0], rtol=2e-2, atol=2e-3)
    assert (result[0] - Wide(torch.float32).layer.weight).abs().max() > 0.01


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.5),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.5, momentum=0.9, weight_decay=0.01),
    "half momentum": lambda p: poptorch.optim.SGD(
        p, lr=0.5, momentum=0.9, velocity_accum_type=torch.half, use_combined_accum=True
    ),
    "adamw": lambda p: poptorch.optim.AdamW(p, lr=0.1, loss_scaling=8.0),
    "half adam": lambda p: poptorch.optim.Adam(
        p, lr=0.1, first_order_momentum_accum_type=torch.half
    ),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.05),
    "lamb": lambda p: poptorch.optim.LAMB(p, lr=0.05),
}


@pytest.mark.parametrize("name", one_in(3, OPTIMIZERS))
def test_half_weights_are_equal_on_host_and_tiles(name):
    """Weights, sums of gradients and states are rounded at the same places: 1 ulp at most."""

    class Half(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layer, self.last = nn.Linear(4, 3).half(), nn.Linear(3, 2).half()

        def forward(self, x):
            y = self.last(F.relu(self.layer(x)))
            return poptorch.identity_loss(y.square(), "mean")

    result = {}
    for tiles in ("lazy", "run"):
        model, options = Half(), quiet()
        options.Training.gradientAccumulation(2)
        with configured(host="eager", device="cpu", tiles=tiles):
            compiled = poptorch.trainingModel(model, options, OPTIMIZERS[name](model.parameters()))
            for _ in range(3):
                compiled(X.half())
            compiled.copyWeightsToHost()
        result[tiles] = [p.detach() for p in model.parameters()]
    for host, tile in zip(result["lazy"], result["run"], strict=True):
        assert host.dtype is torch.float16
        torch.testing.assert_close(host, tile, rtol=2.0**-10, atol=2.0**-14)


def test_stochastic_rounding_of_the_tiles():
    """Half an ulp is lost when halves round to nearest, and kept on average when by chance."""

    class Add(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 2.0**-12  # a quarter of the step between halves above one

    x = torch.ones(4096, dtype=torch.half)
    result = {}
    for by_chance in (False, True):
        options = poptorch.Options().randomSeed(1)
        options.Precision.enableStochasticRounding(by_chance)
        with configured(tiles="run"):
            result[by_chance] = poptorch.inferenceModel(Add(), options)(x).float()
    assert torch.equal(result[False], torch.ones(4096))
    assert abs(float((result[True] - 1).mean()) - 2.0**-12) < 2.0**-15
