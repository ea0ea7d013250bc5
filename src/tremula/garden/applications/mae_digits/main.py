"""Trains a masked autoencoder as a pipeline; a running mean of its weights is what is tested."""

import copy

import numpy as np
import torch
from torch import Tensor

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.mae_digits.model import (
    N_PATCHES,
    N_SHOWN,
    MaskedAutoencoder,
    images_of,
    patches_of,
)
from tremula.garden.models.datasets.mnist import Mnist

N_BATCH, N_ACCUMULATED = 32, 4
KEPT = 0.3  # of the mean, at each update of it


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_images, n_epochs, width = (3072, 4, 32) if settings.tiny else (60000, 10, 128)
    known = Mnist(train=True, subset=settings.tiny, n_images=n_images)
    test = Mnist(train=False, subset=True, n_images=500)
    patches = patches_of(known.images)
    model = MaskedAutoencoder(width, n_blocks=1)
    mean = copy.deepcopy(model)
    options = poptorch.Options().outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(N_ACCUMULATED)
    optimizer = poptorch.optim.AdamW(model.parameters(), lr=5e-3, bias_correction=True)
    training = poptorch.trainingModel(model, options, optimizer)
    per_call = N_BATCH * N_ACCUMULATED
    settings.show(f"{N_SHOWN} of {N_PATCHES} patches are shown, {per_call} digits an update")
    losses = []
    for epoch in range(n_epochs):
        order = torch.randperm(len(known))[: len(known) // per_call * per_call]
        for rows in order.split(per_call):
            error = training(patches[rows], *shuffled(per_call))
            losses.append(float(error.mean()))
        training.copyWeightsToHost()
        follow(mean, model, share=KEPT if epoch else 0.0)
        settings.show(f"  epoch {epoch + 1}: error of hidden patches {losses[-1]:.3f}")
    error, picture = drawn(mean.eval(), test, patches.mean(0))
    accuracy = nearest_digit(mean, known, test)
    settings.show(f"error over the mean picture's {error:.2f}; nearest digit right {accuracy:.1%}")
    return Findings(
        results={"error_over_mean_picture": error, "accuracy_of_nearest_digit": accuracy},
        modelled=modelled_poptorch(training, settings, n_items=per_call, unit="images/s"),
        curves={"error": losses},
        picture=picture,
    )


def shuffled(n: int) -> tuple[Tensor, Tensor]:
    """An order of patches for each image, and the one that undoes it."""
    order = torch.rand(n, N_PATCHES).argsort(1)
    return order.int(), order.argsort(1).int()


@torch.no_grad()
def follow(mean: MaskedAutoencoder, model: MaskedAutoencoder, share: float) -> None:
    """Move the mean of the weights towards those of now."""
    for old, new in zip(mean.parameters(), model.parameters(), strict=True):
        old.mul_(share).add_(new, alpha=1 - share)


@torch.no_grad()
def drawn(model: MaskedAutoencoder, test: Mnist, mean: Tensor) -> tuple[float, np.ndarray]:
    """Error of hidden patches over that of the mean digit; some digits, masked and drawn."""
    patches, (order, back) = patches_of(test.images), shuffled(len(test))
    result = model.drawn(patches, order, back)
    is_hidden = (back >= N_SHOWN).unsqueeze(2)
    error = (((result - patches) ** 2) * is_hidden).sum() / (
        ((mean - patches) ** 2) * is_hidden
    ).sum()
    shown = torch.where(is_hidden, patches.min(), patches)
    filled = torch.where(is_hidden, result, patches)
    rows = [torch.cat(list(images_of(part[:8]).squeeze(1)), 1) for part in (shown, filled, patches)]
    return float(error), torch.cat(rows).numpy()


@torch.no_grad()
def nearest_digit(model: MaskedAutoencoder, known: Mnist, test: Mnist) -> float:
    """Each test image gets the label of the known one that the encoder sees most alike."""
    all_of = torch.arange(N_PATCHES)

    def seen(data: Mnist) -> Tensor:
        patches = patches_of(data.images[:2000])
        result = model.seen(patches, all_of.expand(len(patches), -1), N_PATCHES).flatten(1)
        return result / result.norm(dim=1, keepdim=True)

    nearest = (seen(test) @ seen(known).t()).argmax(1)
    return float((known.labels[nearest] == test.labels).float().mean())
