"""Trains a unit-scaled character model in 8-bit floats, and the same one in single precision."""

import math

import torch
from torch import Tensor, nn

import poptorch
from tremula.frontends.poptorch.ops.float8 import Float8Formats
from tremula.frontends.scaling.layers import CharacterModel
from tremula.garden.application import Findings, Settings, modelled_poptorch
from tremula.garden.models.datasets.text import characters
from tremula.ir.settings import configured

N_BATCH, LENGTH = 16, 16


class Letters(nn.Module):
    """The loss of guessing each letter from those before it."""

    def __init__(self, n_letters: int, width: int, formats: Float8Formats | None):
        super().__init__()
        self.model = CharacterModel(n_letters, width, 1, 4, LENGTH, formats)

    def forward(self, ids: Tensor) -> Tensor:
        _, loss = self.model(ids[:, :-1], ids[:, 1:])
        return poptorch.identity_loss(loss, reduction="none")


def run(settings: Settings) -> Findings:
    n_steps, width = (60, 32) if settings.tiny else (2000, 128)
    rows, alphabet = characters(LENGTH + 1)
    settings.show(f"{len(alphabet)} letters: {math.log2(len(alphabet)):.2f} bits each are guessing")
    curves, modelled = {}, None
    with configured(chip="c600"):
        for name, formats in (("8-bit floats", Float8Formats()), ("float32", None)):
            torch.manual_seed(0)
            model = Letters(len(alphabet), width, formats)
            optimizer = poptorch.optim.Adam(model.parameters(), lr=1e-2)
            training = poptorch.trainingModel(model, poptorch.Options(), optimizer)
            curves[name] = [
                float(training(rows[torch.randint(len(rows), (N_BATCH,))])) / math.log(2)
                for _ in range(n_steps)
            ]
            settings.show(f"  {name}: {mean_of_end(curves[name]):.2f} bits per letter")
            if formats is not None:
                modelled = modelled_poptorch(
                    training, settings, n_items=N_BATCH * LENGTH, unit="letters/s"
                )
    small, plain = (mean_of_end(curve) for curve in curves.values())
    return Findings(
        results={"bits_per_letter": small, "bits_more_than_float": small - plain},
        modelled=modelled,
        curves=curves,
    )


def mean_of_end(curve: list[float]) -> float:
    """Of the last tenth."""
    end = curve[-max(1, len(curve) // 10) :]
    return sum(end) / len(end)
