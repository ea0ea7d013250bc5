"""A masked autoencoder: an encoder of the patches that are shown, a decoder that draws all."""

import torch
from torch import Tensor, nn

import poptorch
from tremula.garden.models.vision_zoo import PatchAttention, TransformerBlock

SIDE, PATCH = 28, 7
N_PATCHES = (SIDE // PATCH) ** 2
N_SHOWN = 6


def patches_of(images: Tensor) -> Tensor:
    """[n, 16, 49]: patches of images [n, 1, 28, 28], row by row."""
    n = images.shape[0]
    cut = images.reshape(n, SIDE // PATCH, PATCH, SIDE // PATCH, PATCH)
    return cut.transpose(2, 3).reshape(n, N_PATCHES, PATCH * PATCH)


def images_of(patches: Tensor) -> Tensor:
    n = patches.shape[0]
    cut = patches.reshape(n, SIDE // PATCH, SIDE // PATCH, PATCH, PATCH)
    return cut.transpose(2, 3).reshape(n, 1, SIDE, SIDE)


class MaskedAutoencoder(nn.Module):
    """Which patches are shown comes from the host: `order` [n, 16] has them first."""

    def __init__(self, width: int, n_blocks: int):
        super().__init__()
        self.into = nn.Linear(PATCH * PATCH, width)
        self.places = nn.Parameter(0.1 * torch.randn(N_PATCHES, width))
        self.encoder = _blocks(width, n_blocks)
        self.hidden = nn.Parameter(torch.zeros(width))
        self.decoder_places = nn.Parameter(0.1 * torch.randn(N_PATCHES, width))
        self.decoder = _blocks(width, 1)
        self.out = nn.Linear(width, PATCH * PATCH)
        poptorch.BeginBlock(self.into, "encoder", ipu_id=0)
        poptorch.BeginBlock(self.decoder, "decoder", ipu_id=1)

    def seen(self, patches: Tensor, order: Tensor, n_shown: int = N_SHOWN) -> Tensor:
        """What the encoder makes of the shown patches: [n, n_shown, width]."""
        tokens = self.into(patches) + self.places
        return self.encoder(_picked(tokens, order[:, :n_shown]))

    def drawn(self, patches: Tensor, order: Tensor, back: Tensor) -> Tensor:
        """All patches, from those that are shown; `back` undoes `order`."""
        seen = self.seen(patches, order)
        n, _, width = seen.shape
        hidden = self.hidden.expand(n, N_PATCHES - N_SHOWN, width)
        tokens = _picked(torch.cat([seen, hidden], 1), back)
        return self.out(self.decoder(tokens + self.decoder_places))

    def forward(self, patches: Tensor, order: Tensor, back: Tensor) -> Tensor:
        """The mean square error of the hidden patches."""
        is_hidden = (back >= N_SHOWN).unsqueeze(2)
        error = ((self.drawn(patches, order, back) - patches) ** 2 * is_hidden).sum()
        n_hidden = (N_PATCHES - N_SHOWN) * patches.shape[0] * PATCH**2
        return poptorch.identity_loss(error / n_hidden, reduction="none")


def _picked(tokens: Tensor, places: Tensor) -> Tensor:
    return tokens.gather(1, places.long().unsqueeze(2).expand(-1, -1, tokens.shape[2]))


def _blocks(width: int, n: int) -> nn.Sequential:
    return nn.Sequential(*(TransformerBlock(width, PatchAttention(width, 2)) for _ in range(n)))
