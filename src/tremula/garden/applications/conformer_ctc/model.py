"""A Conformer: half a dense block, attention, convolution, half a dense block; and CTC's loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.applications.conformer_ctc.tones import BLANK, N_BINS, N_FRAMES, N_LETTERS
from tremula.garden.models.vision_zoo import PatchAttention


class Convolution(nn.Module):
    """A gate, a convolution of each channel over time, and a mixture of channels."""

    def __init__(self, width: int, size: int = 5):
        super().__init__()
        self.open = nn.Linear(width, 2 * width)
        self.over_time = nn.Conv1d(width, width, size, padding=size // 2, groups=width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.glu(self.open(x), -1)
        x = self.over_time(x.transpose(1, 2)).transpose(1, 2)
        return self.out(functional.silu(self.norm(x)))


class ConformerBlock(nn.Module):
    def __init__(self, width: int, n_heads: int = 2):
        super().__init__()
        parts = [_dense(width), PatchAttention(width, n_heads), Convolution(width), _dense(width)]
        self.parts = nn.ModuleList(parts)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        for part, norm, share in zip(self.parts, self.norms, (0.5, 1.0, 1.0, 0.5), strict=False):
            x = x + share * part(norm(x))
        return self.norms[-1](x)


def _dense(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))


class Recogniser(nn.Module):
    """Spectrograms in, log probabilities of letters [frames, n, letters and blank] or loss out."""

    def __init__(self, width: int, n_blocks: int):
        super().__init__()
        self.into = nn.Linear(N_BINS, width)
        self.places = nn.Parameter(0.1 * torch.randn(N_FRAMES, width))
        self.blocks = nn.Sequential(*(ConformerBlock(width) for _ in range(n_blocks)))
        self.out = nn.Linear(width, 1 + N_LETTERS)
        poptorch.BeginBlock(self.into, "first", ipu_id=0)
        poptorch.BeginBlock(self.blocks[n_blocks // 2], "second", ipu_id=1)

    def chances(self, sounds: Tensor) -> Tensor:
        x = self.blocks(self.into(sounds) + self.places)
        return self.out(x).log_softmax(-1).transpose(0, 1)

    def forward(self, sounds: Tensor, letters: Tensor, lengths: Tensor) -> Tensor:
        all_frames = torch.full_like(lengths, N_FRAMES)
        return functional.ctc_loss(
            self.chances(sounds), letters, all_frames, lengths, BLANK, zero_infinity=True
        )


class LetterDecoder(nn.Module):
    """The likeliest letters [n, frames] and how many they are, found on the device."""

    def __init__(self, recogniser: Recogniser, beam_width: int = 4):
        super().__init__()
        self.recogniser, self.beam_width = recogniser, beam_width

    def forward(self, sounds: Tensor) -> tuple[Tensor, Tensor]:
        chances = self.recogniser.chances(sounds)
        n_frames = torch.full((sounds.shape[0],), N_FRAMES, dtype=torch.int32)
        _, lengths, letters = poptorch.ctc_beam_search_decoder(
            chances, n_frames, BLANK, self.beam_width
        )
        return letters[:, 0], lengths[:, 0]
