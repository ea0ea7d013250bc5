"""Trains a variational autoencoder on digits, tests its bound on others, and lets it draw."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.vae_digits.model import Autoencoder, bits_of_independent_pixels
from tremula.garden.models.datasets.mnist import load_mnist

SIDE = 14  # pixels: half of the original's
N_BATCH, N_ITERATIONS, N_LATENT = 50, 20, 8


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    known, new = (digits(train, settings.tiny) for train in (True, False))
    n_epochs, width = (14, 128) if settings.tiny else (20, 400)
    settings.show(f"{len(known):,} digits of {SIDE} × {SIDE} pixels, {N_LATENT} numbers for each")
    model = Autoencoder(SIDE**2, width, N_LATENT)
    options = poptorch.Options().deviceIterations(N_ITERATIONS).randomSeed(1)
    optimizer = poptorch.optim.Adam(model.parameters(), lr=4e-3)
    training = poptorch.trainingModel(model, options, optimizer)
    losses = []
    for epoch in range(n_epochs):
        calls = known[torch.randperm(len(known))].split(N_BATCH * N_ITERATIONS)
        losses += [float(training(pictures)[1].mean()) for pictures in calls]
        if epoch % 4 == 3:
            settings.show(f"  epoch {epoch + 1}: {losses[-1]:.1f} bits")
    training.detachFromDevice()
    testing = poptorch.inferenceModel(model.eval(), poptorch.Options().randomSeed(2))
    bits = float(torch.cat([testing(part)[0] for part in new.split(N_BATCH)]).mean())
    plain = bits_of_independent_pixels(known, new)
    settings.show(f"a new digit takes {bits:.1f} bits; independent pixels take {plain:.1f}")
    return Findings(
        results={"bits_of_a_digit": bits, "of_independent_pixels": bits / plain},
        modelled=modelled_poptorch(
            training, settings, n_items=N_BATCH, unit="pictures/s", n_steps=N_ITERATIONS
        ),
        curves={"bits": losses},
        picture=drawn(model),
    )


def digits(train: bool, subset: bool) -> Tensor:
    """Digits at half their size in black and white, `float32[n, 196]`."""
    images, _ = load_mnist(train, subset)
    grey = torch.from_numpy(images.astype(np.float32) / 255).unsqueeze(1)
    return (functional.avg_pool2d(grey, 2) > 0.4).float().flatten(1)


@torch.no_grad()
def drawn(model: Autoencoder) -> np.ndarray:
    """What it makes of noise: 4 × 8 pictures."""
    noise = torch.randn(32, N_LATENT, generator=torch.Generator().manual_seed(3))
    made = model.decoder(noise).sigmoid().reshape(4, 8, SIDE, SIDE)
    return made.permute(0, 2, 1, 3).reshape(4 * SIDE, 8 * SIDE).numpy()
