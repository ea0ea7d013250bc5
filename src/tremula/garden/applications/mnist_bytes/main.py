"""Trains on bytes with overlapped transfers; the same step on waited-for floats is the measure."""

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.demo.mnist import DEVIATION, MEAN
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.mnist import load_mnist

N_BATCH, N_ITERATIONS, N_IO_TILES = 32, 8, 32


class ByteClassifier(nn.Module):
    """A convolution and a dense layer; pixels of any type between 0 and 255 in, the loss out."""

    def __init__(self, *, overlaps: bool):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 12 * 12, 10)
        )
        loop, none = poptorch.OverlapMode.OverlapDeviceIterationLoop, poptorch.OverlapMode.NoOverlap
        self.overlap = loop if overlaps else none

    def scores(self, pixels: Tensor) -> Tensor:
        return self.layers((pixels.float() / 255 - MEAN) / DEVIATION)

    def forward(self, pixels: Tensor, labels: Tensor) -> Tensor:
        pixels = poptorch.set_overlap_for_input(pixels, self.overlap)
        labels = poptorch.set_overlap_for_input(labels, self.overlap)
        loss = functional.cross_entropy(self.scores(pixels), labels)
        return poptorch.set_overlap_for_output(loss, self.overlap)


def run(settings: Settings) -> Findings:
    n_epochs = 2 if settings.tiny else 5
    pixels, labels = digits(train=True, is_subset=settings.tiny)
    model, training = compiled(overlaps=True)
    per_call = N_BATCH * N_ITERATIONS
    settings.show(f"{len(pixels):,} images as bytes, {per_call} a call")
    losses = []
    for epoch in range(n_epochs):
        for begin in range(0, len(pixels) - per_call + 1, per_call):
            part = slice(begin, begin + per_call)
            losses.append(float(training(pixels[part], labels[part]).mean()))
        settings.show(f"  epoch {epoch + 1}: loss {losses[-1]:.3f}")
    training.copyWeightsToHost()
    test_pixels, test_labels = digits(train=False, is_subset=settings.tiny)
    accuracy = float((model.scores(test_pixels).argmax(1) == test_labels).float().mean())
    _, plain = compiled(overlaps=False)
    plain(pixels[:per_call].float(), labels[:per_call])
    cost = {"n_items": N_BATCH, "unit": "images/s", "n_steps": N_ITERATIONS}
    ours = modelled_poptorch(training, settings, **cost)
    theirs = modelled_poptorch(plain, Settings(), **cost)
    settings.show(f"accuracy {accuracy:.1%}; {ours.cycles:,} cycles a step, else {theirs.cycles:,}")
    return Findings(
        results={
            "accuracy": accuracy,
            "speed_over_floats_waited_for": theirs.cycles / ours.cycles,
        },
        modelled=ours,
        curves={"loss": losses},
    )


def digits(*, train: bool, is_subset: bool) -> tuple[Tensor, Tensor]:
    """Pixels `uint8[n, 1, 28, 28]` as they are in the file, and labels."""
    images, labels = load_mnist(train, subset=is_subset)
    return torch.from_numpy(images).unsqueeze(1), torch.from_numpy(labels).int()


def compiled(*, overlaps: bool) -> tuple[ByteClassifier, poptorch.PoplarExecutor]:
    torch.manual_seed(0)
    model = ByteClassifier(overlaps=overlaps)
    options = poptorch.Options().deviceIterations(N_ITERATIONS)
    options.outputMode(poptorch.OutputMode.All)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    if overlaps:
        options.TensorLocations.numIOTiles(N_IO_TILES)
    else:
        options.Popart.set("enablePrefetchDatastreams", False)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    return model, poptorch.trainingModel(model, options, optimizer)
