"""On a GPU every backend computes what the CPU computes; needs one, so these skip elsewhere."""

import copy

import pytest
import torch
from torch import nn

import poptorch
from tremula.ir.settings import configured

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # Inductor's own imports warn
]
BACKENDS = ("eager", "inductor", "cuda-graph", "inductor-cuda-graph")


class Net(nn.Module):
    """Convolution, batch norm, pooling, dense: what makes buffers, indices and fused kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(8 * 5 * 5, 10),
        )  # fmt: skip

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> object:
        scores = self.body(x)
        return scores if labels is None else (scores, nn.functional.cross_entropy(scores, labels))


def trained(start: nn.Module, optimizer: str, **settings: object) -> tuple[nn.Module, list, object]:
    """Three calls of two iterations with two accumulated micro-batches each."""
    model = copy.deepcopy(start)
    options = poptorch.Options().deviceIterations(2).outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(2)
    torch.manual_seed(1)
    x, y = torch.randn(3, 32, 1, 12, 12), torch.randint(0, 10, (3, 32))
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[optimizer]
    arguments = {"lr": 0.05, "momentum": 0.9} if optimizer == "sgd" else {"lr": 1e-3, "eps": 1e-3}
    with configured(**settings):
        step = poptorch.trainingModel(model, options, make(model.parameters(), **arguments))
        losses = [step(x[i], y[i])[1] for i in range(3)]
        step.copyWeightsToHost()
        inference = poptorch.inferenceModel(model.eval())(x[0])
    return model, losses, inference


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_training_on_the_gpu_equals_training_on_the_cpu(backend: str, optimizer: str):
    """Losses, weights, running statistics and inference agree to float32's rounding."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(0)
    start = Net()
    cpu, cpu_losses, cpu_scores = trained(start, optimizer, device="cpu", host="eager")
    gpu, gpu_losses, gpu_scores = trained(start, optimizer, device="cuda", host=backend)
    close = {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(gpu_losses, cpu_losses, **close)
    torch.testing.assert_close(gpu_scores, cpu_scores, rtol=1e-2, atol=1e-3)
    for (name, a), b in zip(gpu.state_dict().items(), cpu.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, **close, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("backend", ["eager", "cuda-graph"])
def test_learning_rates_change_without_compiling_again(backend: str):
    """setOptimizer reaches a captured graph: a rate of zero leaves the weights unchanged."""
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    wrapped = nn.Sequential(model)
    x = torch.randn(8, 4)

    class WithLoss(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = wrapped

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return poptorch.identity_loss(self.model(x) ** 2, "mean")

    both = WithLoss()
    optimizer = torch.optim.SGD(both.parameters(), lr=0.1)
    with configured(device="cuda", host=backend):
        step = poptorch.trainingModel(both, poptorch.Options(), optimizer)
        step(x)
        step.copyWeightsToHost()
        before = model.weight.detach().clone()
        optimizer.param_groups[0]["lr"] = 0.0
        step.setOptimizer(optimizer)
        step(x)
        step.copyWeightsToHost()
    assert torch.equal(before, model.weight.detach())


def test_dropout_draws_other_numbers_in_every_replay():
    """The random numbers of a replayed graph go on; the same seed gives the same stream."""

    class Drop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.drop(x)

    def masks() -> list[torch.Tensor]:
        with configured(device="cuda", host="cuda-graph"):
            model = poptorch.inferenceModel(Drop().train(), poptorch.Options().randomSeed(3))
            return [model(torch.ones(1000)) == 0 for _ in range(3)]

    first, second = masks(), masks()
    assert not torch.equal(first[0], first[1])
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


class Dense(nn.Module):
    """One product, large enough for tensor cores, and its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(512, 256)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = self.linear(x)
        return out, poptorch.identity_loss(out * out, "mean")


@pytest.mark.parametrize("backend", ["cuda-graph", "inductor-cuda-graph"])
def test_the_precision_of_products_is_the_scripts_choice(backend: str):
    """`set_float32_matmul_precision`: full float32, or TF32 with its larger rounding."""
    torch.manual_seed(0)
    model, x = Dense(), torch.randn(128, 512)
    right = copy.deepcopy(model).double()(x.double())[0]
    errors = {}
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("highest", "high"):
            torch.set_float32_matmul_precision(precision)
            with configured(device="cuda", host=backend):
                result, _ = poptorch.inferenceModel(copy.deepcopy(model))(x)
            errors[precision] = float((result.double() - right).norm() / right.norm())
    finally:
        torch.set_float32_matmul_precision(before)
    assert errors["highest"] < 2e-6
    assert 2e-5 < errors["high"] < 2e-3


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_model_of_bfloat16_stays_one(backend: str):
    """Weights, outputs and losses are bfloat16 and learn as PyTorch's own do."""
    torch.manual_seed(0)
    ours, x = Dense().bfloat16(), torch.randn(64, 512).bfloat16()
    plain = copy.deepcopy(ours).to("cuda")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.5) for m in (ours, plain)]
    losses = []
    with configured(device="cuda", host=backend):
        step = poptorch.trainingModel(ours, poptorch.Options(), optimizers[0])
        for _ in range(4):
            out, loss = step(x)
            assert out.dtype is loss.dtype is torch.bfloat16
            optimizers[1].zero_grad()
            expected = plain(x.to("cuda"))[1]
            expected.backward()
            optimizers[1].step()
            losses.append((float(loss), float(expected)))
        step.copyWeightsToHost()
    assert ours.linear.weight.dtype is torch.bfloat16
    assert losses[-1][0] < losses[0][0]
    result, right = zip(*losses, strict=True)
    torch.testing.assert_close(result, right, rtol=2e-2, atol=1e-3)
    weights = ours.linear.weight.float(), plain.linear.weight.detach().cpu().float()
    torch.testing.assert_close(*weights, rtol=2e-2, atol=2e-3)


# -- random models ---------------------------------------------------------------------------------


class RandomImages(nn.Module):
    """A few layers drawn at random: those whose memory formats meet in a step."""

    def __init__(self, seed: int):
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        pick = lambda n: int(torch.randint(n, (), generator=random))  # noqa: E731
        n_channels, layers = 4, []
        for _ in range(2 + pick(4)):
            kind = pick(7)
            if kind == 0:
                wider = 4 * (1 + pick(3))
                layers.append(nn.Conv2d(n_channels, wider, 3, padding=1, groups=(1, 4)[pick(2)]))
                n_channels = wider
            else:
                choices = (nn.GroupNorm(2, n_channels), nn.BatchNorm2d(n_channels), Halves(),
                           Flipped(), nn.GELU(), nn.ChannelShuffle(2))  # fmt: skip
                layers.append(choices[kind - 1])
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), *layers, nn.GroupNorm(2, n_channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers(x)
        ramp = torch.arange(y.numel(), dtype=y.dtype).reshape(y.shape).sin()  # a norm has no mean
        return nn.functional.mse_loss((y * ramp).mean((1, 2, 3)), torch.ones(2))


class Halves(nn.Module):
    """Both halves of the channels, the other way round."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, 1)
        return torch.cat([second, first * 0.5], 1)


class Flipped(nn.Module):
    """Rows and columns exchanged."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.transpose(2, 3)


@pytest.mark.parametrize("seed", range(24))
def test_random_image_models_train_as_on_the_cpu(seed: int):
    """One step with ATen's kernels: the loss and all weights are those of the CPU."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(seed)
    start, x = RandomImages(seed), torch.randn(2, 3, 9, 9)
    results = {}
    for device, host in (("cpu", "eager"), ("cuda", "cuda-graph")):
        model = copy.deepcopy(start)
        with configured(device=device, host=host):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            step = poptorch.trainingModel(model, poptorch.Options(), optimizer)
            loss = step(x)
            step.copyWeightsToHost()
        results[device] = [loss, *(t for t in model.state_dict().values())]
    for a, b in zip(results["cuda"], results["cpu"], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


# -- reduced precision -----------------------------------------------------------------------------


class Attending(nn.Module):
    """Layers of attention with a mask of lengths or none, inside autocast if wanted."""

    def __init__(self, *, is_masked: bool, autocasts: bool):
        super().__init__()
        self.is_masked, self.autocasts = is_masked, autocasts
        self.layers = nn.ModuleList(nn.Linear(64, 192) for _ in range(3))

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=self.autocasts):
            positions = torch.arange(x.shape[1], device=x.device)
            mask = (positions[None, :] < lengths[:, None])[:, None, None, :]
            for layer in self.layers:
                heads = layer(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4)
                y = nn.functional.scaled_dot_product_attention(
                    *heads.unbind(0), mask if self.is_masked else None,
                    is_causal=not self.is_masked,
                )  # fmt: skip
                x = x + y.transpose(1, 2).flatten(2).to(x.dtype)
        return nn.functional.mse_loss(x.float(), torch.zeros_like(x, dtype=torch.float32))


@pytest.mark.parametrize("autocasts", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("backend", ["cuda-graph", "inductor-cuda-graph"])
def test_bfloat16_trains_within_its_rounding(backend: str, is_masked: bool, autocasts: bool):
    """Losses of ten steps are those of float32 on the CPU, to two digits."""
    torch.manual_seed(0)
    start = Attending(is_masked=is_masked, autocasts=autocasts)
    x, lengths = torch.randn(4, 32, 64), torch.tensor([32, 20, 7, 1])
    losses = {}
    for device, host in (("cpu", "eager"), ("cuda", backend)):
        model = copy.deepcopy(start)
        is_half = device == "cuda" and not autocasts
        model.autocasts = autocasts and device == "cuda"
        model = model.bfloat16() if is_half else model
        batch = x.bfloat16() if is_half else x
        with configured(device=device, host=host):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            step = poptorch.trainingModel(model, poptorch.Options(), optimizer)
            losses[device] = [float(step(batch, lengths)) for _ in range(10)]
    assert losses["cpu"][-1] < 0.9 * losses["cpu"][0]
    torch.testing.assert_close(losses["cuda"], losses["cpu"], rtol=3e-2, atol=1e-2)
