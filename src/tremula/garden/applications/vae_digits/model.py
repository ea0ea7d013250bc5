"""A variational autoencoder of black and white pictures, and its bound in bits."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch


class Autoencoder(nn.Module):
    """Pictures `float32[n, n_pixels]` of 0 and 1 → their bound, `bits[n]`, and the loss."""

    def __init__(self, n_pixels: int, width: int, n_latent: int):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(n_pixels, width), nn.ReLU(), nn.Linear(width, 2 * n_latent)
        )
        self.decoder = nn.Sequential(
            nn.Linear(n_latent, width), nn.ReLU(), nn.Linear(width, n_pixels)
        )

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        middle, log_variance = self.encoder(pictures).chunk(2, 1)
        noise = torch.randn_like(middle)  # new in every step, drawn by the tiles
        drawn = self.decoder(middle + noise * (0.5 * log_variance).exp())
        errors = functional.binary_cross_entropy_with_logits(drawn, pictures, reduction="none")
        sent = 0.5 * (middle**2 + log_variance.exp() - 1 - log_variance)
        bits = (errors.sum(1) + sent.sum(1)) / math.log(2)
        return bits, poptorch.identity_loss(bits.mean(), reduction="none")


def bits_of_independent_pixels(known: Tensor, new: Tensor) -> float:
    """Bits of a new picture for a model that knows each pixel's frequency, and nothing else."""
    share = (known.sum(0) + 1) / (len(known) + 2)
    errors = functional.binary_cross_entropy(share.expand_as(new), new, reduction="none")
    return float(errors.sum(1).mean() / math.log(2))
