"""Trains a tiny diffusion model on named shapes, and lets it draw each of them on the chip."""

import numpy as np
import torch
from torch import Tensor

import poptorch
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.applications.diffusion_shapes.model import (
    N_LEVELS,
    NoiseLoss,
    Painter,
    TinyUNet,
)
from tremula.garden.models.datasets.shapes import is_inside

SIZE, NAMES = 16, ("disc", "cross", "rows", "columns")
N_BATCH, N_DRAWN = 32, 8  # pictures of a step, of each name


def run(settings: Settings) -> Findings:
    torch.manual_seed(0)
    n_steps, width, n_guesses = (400, 8, 8) if settings.tiny else (5000, 32, 32)
    pictures, names = shapes(2048, seed=1)
    unet = TinyUNet(len(NAMES), width)
    options = poptorch.Options().deviceIterations(10).outputMode(poptorch.OutputMode.All)
    optimizer = poptorch.optim.Adam(unet.parameters(), lr=5e-3)
    training = poptorch.trainingModel(NoiseLoss(unet), options, optimizer)
    draw, losses = torch.Generator().manual_seed(0), []
    for call in range(n_steps // 10):
        rows = torch.randint(len(pictures), (10 * N_BATCH,), generator=draw)
        levels = torch.randint(N_LEVELS, rows.shape, generator=draw).int()
        losses.append(float(training(pictures[rows], levels, names[rows]).mean()))
        if call % 10 == 9:
            settings.show(f"  step {10 * (call + 1)}: error of the noise {losses[-1]:.3f}")
    training.detachFromDevice()
    painter = poptorch.inferenceModel(Painter(unet.eval(), n_guesses))
    wanted = torch.arange(len(NAMES)).repeat_interleave(N_DRAWN).int()
    noise = torch.randn(len(wanted), 1, SIZE, SIZE, generator=draw)
    drawn = painter(noise, wanted)
    share = float((nearest_shape(drawn) == wanted).float().mean())
    settings.show(f"{share:.0%} of {len(wanted)} drawings show what was asked for")
    return Findings(
        results={"drawn_as_told": share},
        modelled=modelled_poptorch(painter, settings, n_items=len(wanted), unit="pictures/s"),
        curves={"error_of_noise": losses},
        picture=gallery(drawn),
    )


def shapes(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures of -1 and 1 `float32[n, 1, 16, 16]`, a little off the middle, and names."""
    random = np.random.default_rng(seed)
    names = random.integers(len(NAMES), size=n).astype(np.int32)
    places = random.uniform(-0.15, 0.15, (n, 2, 1, 1))
    grid = np.mgrid[-1 : 1 : SIZE * 1j, -1 : 1 : SIZE * 1j]
    inside = [
        is_inside(NAMES[name], *(grid - place)[::-1])
        for name, place in zip(names, places, strict=True)
    ]
    pictures = 2 * np.stack(inside)[:, None].astype(np.float32) - 1
    return torch.from_numpy(pictures), torch.from_numpy(names)


def nearest_shape(pictures: Tensor) -> Tensor:
    """The name of the known picture that each one is most alike."""
    known, names = shapes(256, seed=2)
    distance = torch.cdist(pictures.flatten(1), known.flatten(1))
    return names[distance.argmin(1)]


def gallery(drawn: Tensor) -> np.ndarray:
    """A row for each name, between 0 and 1."""
    rows = drawn.view(len(NAMES), N_DRAWN, SIZE, SIZE)[:, :6]
    return (
        rows.permute(0, 2, 1, 3).reshape(len(NAMES) * SIZE, 6 * SIZE).clamp(-1, 1) / 2 + 0.5
    ).numpy()
