"""A UNet that guesses the noise in a picture, given its level and a name; a painter with it."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch

N_LEVELS = 64  # of noise, from almost none to almost nothing else


def signal_share() -> Tensor:
    """How much of a picture is left at each level: cosine schedule, `float32[64]`."""
    at = (torch.arange(N_LEVELS) + 1) / (N_LEVELS + 1)
    return torch.cos(at * math.pi / 2) ** 2


class ConditionedBlock(nn.Module):
    """Two convolutions with a shortcut; the condition shifts the channels."""

    def __init__(self, n_in: int, n_out: int, n_told: int):
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, padding=1)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1)
        self.shift = nn.Linear(n_told, n_out)
        self.around = nn.Conv2d(n_in, n_out, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        hidden = functional.silu(self.first(x)) + self.shift(condition)[:, :, None, None]
        return functional.silu(self.second(hidden)) + self.around(x)


class TinyUNet(nn.Module):
    """Pictures [n, 1, 16, 16], levels and names [n] in; the noise in them out."""

    def __init__(self, n_names: int, width: int):
        super().__init__()
        self.levels = nn.Embedding(N_LEVELS, width)
        self.names = nn.Embedding(n_names, width)
        self.down = ConditionedBlock(1, width, width)
        self.middle = ConditionedBlock(width, 2 * width, width)
        self.up = ConditionedBlock(3 * width, width, width)
        self.out = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, x: Tensor, level: Tensor, name: Tensor) -> Tensor:
        condition = self.levels(level) + self.names(name)
        wide = self.down(x, condition)
        deep = self.middle(functional.avg_pool2d(wide, 2), condition)
        back = functional.interpolate(deep, scale_factor=2.0, mode="nearest")
        return self.out(self.up(torch.cat([wide, back], 1), condition))


class NoiseLoss(nn.Module):
    """Noise is added on the device; the loss is how wrongly it is guessed."""

    signal_share: Tensor

    def __init__(self, unet: TinyUNet):
        super().__init__()
        self.unet = unet
        self.register_buffer("signal_share", signal_share())

    def forward(self, pictures: Tensor, level: Tensor, name: Tensor) -> Tensor:
        noise = torch.randn_like(pictures)
        signal = self.signal_share[level][:, None, None, None]
        seen = signal.sqrt() * pictures + (1 - signal).sqrt() * noise
        loss = functional.mse_loss(self.unet(seen, level, name), noise)
        return poptorch.identity_loss(loss, reduction="none")


class Painter(nn.Module):
    """From noise to pictures by names: a loop of guesses (DDIM), each a little less noisy."""

    signal_share: Tensor

    def __init__(self, unet: TinyUNet, n_steps: int):
        super().__init__()
        self.unet, self.n_steps = unet, n_steps
        self.register_buffer("signal_share", torch.cat([torch.ones(1), signal_share()]))

    def forward(self, noise: Tensor, name: Tensor) -> Tensor:
        stride = N_LEVELS // self.n_steps

        def body(x: Tensor, level: Tensor, name: Tensor) -> list[Tensor]:
            """`level` counts down; row 0 of `signal_share` is a picture without noise."""
            now = self.signal_share.index_select(0, level)
            then = self.signal_share.index_select(0, level - stride)
            guess = self.unet(x, (level - 1).expand(x.shape[0]), name)
            picture = (x - (1 - now).sqrt() * guess) / now.sqrt()
            picture = picture.clamp(-1.5, 1.5)
            return [then.sqrt() * picture + (1 - then).sqrt() * guess, level - stride, name]

        top = torch.full((1,), N_LEVELS, dtype=torch.int32)
        return poptorch.for_loop(self.n_steps, body, [noise, top, name])[0]
