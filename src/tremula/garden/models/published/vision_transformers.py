"""ViT, DINO and Swin with their losses, as they were trained on machines of the IPU class."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.models.published.encoder import (
    EncoderLayer,
    EncoderSize,
    Patches,
    by_head,
    place_layers,
)


class VisionTransformer(nn.Module):
    """Patches, layers, and classes from the first place; `n_hidden`: a dense layer before them."""

    def __init__(self, size: EncoderSize, patch: int, n_classes: int, *, has_hidden: bool):
        super().__init__()
        self.patches = Patches(size.width, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, size.width))
        self.positions = nn.Parameter(torch.zeros(1, size.n_positions, size.width))
        self.dropout = nn.Dropout(size.dropout)
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(size.n_layers)])
        self.out = ClassesHead(size.width, n_classes, has_hidden=has_hidden)

    def forward(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        x = embedded_patches(self, images)
        for layer in self.layers:
            x = poptorch.recomputationCheckpoint(layer(x))
        scores = self.out(x)
        loss = functional.cross_entropy(scores.float(), labels)
        return poptorch.identity_loss(loss, "none"), scores.detach()

    def place(self, layers_per_chip: Sequence[int]) -> None:
        poptorch.BeginBlock(self.patches, "patches", ipu_id=0)
        place_layers(self.layers, layers_per_chip)
        if not layers_per_chip[-1]:
            poptorch.BeginBlock(self.out, "out", ipu_id=len(layers_per_chip) - 1)


def embedded_patches(model: VisionTransformer, images: Tensor) -> Tensor:
    """Bytes are cast and normalised on the chip."""
    if images.dtype == torch.uint8:
        images = (images.to(model.first.dtype) - 127.5) * (1 / 127.5)
    x = model.patches(images)
    first = model.first.expand(len(x), -1, -1)
    return model.dropout(torch.cat([first, x], dim=1) + model.positions)


class ClassesHead(nn.Module):
    """A norm, the first place, maybe a dense layer, then classes."""

    def __init__(self, width: int, n_classes: int, *, has_hidden: bool):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.hidden = nn.Linear(width, width) if has_hidden else None
        self.out = nn.Linear(width, n_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)[:, 0]
        return self.out(x if self.hidden is None else torch.tanh(self.hidden(x)))


# -- Swin ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SwinSize:
    """What a Swin transformer is made of."""

    width: int
    depths: tuple[int, ...]
    n_heads: tuple[int, ...]
    window: int = 7
    n_pixels: int = 224
    patch: int = 4
    n_classes: int = 1000


class WindowAttention(nn.Module):
    """Attention within windows of a grid, with a bias for each distance."""

    def __init__(self, width: int, n_heads: int, window: int):
        super().__init__()
        self.n_heads = n_heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(1, n_heads, window**2, window**2))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """[windows, places, width]"""
        q, k, v = (by_head(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2) + self.bias
        if mask is not None:
            n_windows = mask.shape[0]
            by_image = scores.view(-1, n_windows, *scores.shape[1:]) + mask[None, :, None]
            scores = by_image.view(scores.shape)
        weights = functional.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class SwinBlock(nn.Module):
    """Attention in windows, every second block in windows that are shifted by half."""

    def __init__(self, width: int, n_heads: int, window: int, side: int, *, is_shifted: bool):
        super().__init__()
        self.window, self.side = min(window, side), side
        self.shift = window // 2 if is_shifted and side > window else 0
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.attention = WindowAttention(width, n_heads, self.window)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        mask = torch.zeros((side // self.window) ** 2, self.window**2, self.window**2)
        self.register_buffer("mask", mask if self.shift else None)

    def forward(self, x: Tensor) -> Tensor:
        """[images, places, width]"""
        x = x + self._attention(self.norms[0](x))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))

    def _attention(self, x: Tensor) -> Tensor:
        n, places, width = x.shape
        grid = x.view(n, self.side, self.side, width)
        if self.shift:
            grid = torch.roll(grid, (-self.shift, -self.shift), (1, 2))
        n_cuts, w = self.side // self.window, self.window
        windows = grid.view(n, n_cuts, w, n_cuts, w, width).transpose(2, 3)
        y = self.attention(windows.reshape(-1, w * w, width), self.mask)
        grid = y.view(n, n_cuts, n_cuts, w, w, width).transpose(2, 3)
        grid = grid.reshape(n, self.side, self.side, width)
        if self.shift:
            grid = torch.roll(grid, (self.shift, self.shift), (1, 2))
        return grid.reshape(n, places, width)


class PatchMerging(nn.Module):
    """Four neighbours become one place, twice as wide."""

    def __init__(self, width: int, side: int):
        super().__init__()
        self.side, self.norm = side, nn.LayerNorm(4 * width)
        self.out = nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        n, _, width = x.shape
        half = self.side // 2
        grid = x.view(n, half, 2, half, 2, width).permute(0, 1, 3, 4, 2, 5)
        return self.out(self.norm(grid.reshape(n, half * half, 4 * width)))


class Swin(nn.Module):
    """Blocks in four groups, each on a coarser grid; classes from the mean of all places."""

    def __init__(self, size: SwinSize):
        super().__init__()
        self.patches = Patches(size.width, size.patch)
        self.norm = nn.LayerNorm(size.width)
        blocks, self.merges = [], nn.ModuleDict()
        width, side = size.width, size.n_pixels // size.patch
        for group, (depth, n_heads) in enumerate(zip(size.depths, size.n_heads, strict=True)):
            if group:
                self.merges[str(len(blocks))] = PatchMerging(width, side)
                width, side = 2 * width, side // 2
            blocks += [
                SwinBlock(width, n_heads, size.window, side, is_shifted=n % 2 == 1)
                for n in range(depth)
            ]
        self.layers = nn.ModuleList(blocks)
        self.last, self.out = nn.LayerNorm(width), nn.Linear(width, size.n_classes)

    def scores(self, images: Tensor) -> Tensor:
        x = self.norm(self.patches(images))
        for number, block in enumerate(self.layers):
            if str(number) in self.merges:
                x = self.merges[str(number)](x)
            x = block(x)
        return self.out(self.last(x).mean(1))

    def forward(self, images: Tensor, labels: Tensor | None = None) -> Tensor:
        scores = self.scores(images)
        if labels is None:
            return scores
        loss = functional.cross_entropy(scores.float(), labels)
        return poptorch.identity_loss(loss, "none")

    def place(self, layers_per_chip: Sequence[int]) -> None:
        """A merge belongs to the block behind it."""
        poptorch.BeginBlock(self.patches, "patches", ipu_id=0)
        first = 0
        for chip, n_layers in enumerate(layers_per_chip):
            if n_layers and chip:
                key = str(first)
                begin = self.merges[key] if key in self.merges else self.layers[first]
                poptorch.BeginBlock(begin, f"chip{chip}", ipu_id=chip)
            first += n_layers
