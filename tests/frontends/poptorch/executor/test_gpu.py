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
    """setOptimizer reaches a captured graph: a rate of nought leaves the weights alone."""
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


def test_dropout_draws_anew_in_every_replay():
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
