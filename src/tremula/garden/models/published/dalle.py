"""Mini DALL-E: images become tokens on the chip; a transformer learns them after their text."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.models.published.encoder import by_head

N_TEXT, GRID, N_CODES = 80, 16, 1024
KINDS = ("row", "column", "full")


class ResidualConvs(nn.Module):
    """Two convolutions with group norms, and a shortcut."""

    def __init__(self, n_in: int, n_out: int):
        super().__init__()
        self.norms = nn.ModuleList([nn.GroupNorm(32, n) for n in (n_in, n_out)])
        self.convs = nn.ModuleList([nn.Conv2d(n, n_out, 3, padding=1) for n in (n_in, n_out)])
        self.shortcut = nn.Conv2d(n_in, n_out, 1) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for norm, conv in zip(self.norms, self.convs, strict=True):
            y = conv(functional.silu(norm(y)))
        return self.shortcut(x) + y


class ImageEncoder(nn.Module):
    """VQGAN's encoder, 16 times smaller, and the nearest of its codes. Its weights are frozen."""

    def __init__(self, width: int = 128, factors: Sequence[int] = (1, 1, 2, 2, 4)):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        levels, n_in = [], width
        for number, factor in enumerate(factors):
            blocks: list[nn.Module] = [
                ResidualConvs(n_in if first else width * factor, width * factor)
                for first in (True, False)
            ]
            n_in = width * factor
            if number < len(factors) - 1:
                blocks.append(nn.Conv2d(n_in, n_in, 3, 2, 1))
            levels.append(nn.Sequential(*blocks))
        self.levels = nn.Sequential(*levels)
        self.norm, self.last = nn.GroupNorm(32, n_in), nn.Conv2d(n_in, 256, 3, padding=1)
        self.codes = nn.Embedding(N_CODES, 256)
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        x = (images.to(self.first.weight.dtype) - 127.5) * (1 / 127.5)
        x = self.last(functional.silu(self.norm(self.levels(self.first(x)))))
        flat = x.flatten(2).transpose(1, 2)
        table = self.codes.weight
        distance = (table * table).sum(1) - 2 * (flat @ table.t())
        return distance.argmin(-1)


class AxialAttention(nn.Module):
    """Causal attention of all words to the text, and of image tokens along a row or a column."""

    def __init__(self, width: int, n_heads: int, size: int, kind: str):
        super().__init__()
        self.kind, self.n_heads = kind, n_heads
        self.qkv = nn.Linear(width, 3 * n_heads * size, bias=False)
        self.out = nn.Linear(n_heads * size, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (by_head(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        if self.kind == "full":
            return self._joined(_attended(q, k, v))
        text = _attended(q[:, :, :N_TEXT], k[:, :, :N_TEXT], v[:, :, :N_TEXT])
        of_image = [t[:, :, N_TEXT:] for t in (q, k, v)]
        image = self._along_axis(of_image[0], of_image[1], of_image[2], k, v)
        return self._joined(torch.cat([text, image], dim=2))

    def _along_axis(self, q: Tensor, k: Tensor, v: Tensor, ks: Tensor, vs: Tensor) -> Tensor:
        """Scores with the text and with the tokens of a row or column, one softmax for both."""
        n, heads, places, size = q.shape
        side = int(places**0.5)
        grids = [t.reshape(n, heads, side, side, size) for t in (q, k, v)]
        if self.kind == "column":
            grids = [t.transpose(2, 3) for t in grids]
        q, k, v = grids
        text_k, text_v = ks[:, :, None, :N_TEXT], vs[:, :, None, :N_TEXT]
        scores = [q @ text_k.transpose(-1, -2), q @ k.transpose(-1, -2)]
        weights = functional.softmax(torch.cat(scores, dim=-1) * size**-0.5, dim=-1)
        y = weights[..., :N_TEXT] @ text_v + weights[..., N_TEXT:] @ v
        if self.kind == "column":
            y = y.transpose(2, 3)
        return y.reshape(n, heads, places, size)

    def _joined(self, x: Tensor) -> Tensor:
        return self.out(x.transpose(1, 2).flatten(2))


def _attended(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n = q.shape[2]
    mask = torch.triu(torch.full((n, n), -10000.0, dtype=q.dtype), 1)
    return functional.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + mask, dim=-1) @ v


class DalleLayer(nn.Module):
    """Attention and a gated dense part, norms first, results scaled."""

    def __init__(self, width: int, n_heads: int, kind: str):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2)])
        self.attention = AxialAttention(width, n_heads, 64, kind)
        self.up, self.down = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)
        self.scales = nn.ParameterList([torch.full((width,), 0.1) for _ in range(2)])

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x)) * self.scales[0]
        value, gate = self.up(self.norms[1](x)).chunk(2, dim=-1)
        return x + self.down(value * functional.gelu(gate)) * self.scales[1]


class MiniDalle(nn.Module):
    """One layer of each kind of attention, each on a chip; the ends on the first and the last."""

    def __init__(self, n_text_words: int, width: int = 512, n_heads: int = 16):
        super().__init__()
        self.images = ImageEncoder()
        self.words = nn.Embedding(n_text_words + N_TEXT, width)
        self.codes = nn.Embedding(N_CODES, width)
        self.positions = nn.Parameter(torch.zeros(1, N_TEXT + GRID * GRID, width))
        self.layers = nn.ModuleList([DalleLayer(width, n_heads, kind) for kind in KINDS])
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, n_text_words + N_TEXT + N_CODES)

    def forward(self, text: Tensor, images: Tensor) -> Tensor:
        with poptorch.Block("ends", ipu_id=0):
            codes = self.images(images)
            x = torch.cat([self.words(text), self.codes(codes)], dim=1) + self.positions
        for chip, layer in enumerate(self.layers, start=1):
            with poptorch.Block(f"layer{chip}", ipu_id=chip):
                x = poptorch.recomputationCheckpoint(layer(x))
        with poptorch.Block("out", ipu_id=len(self.layers) + 1):
            scores = self.out(self.norm(x)).float()
            labels = torch.cat([text, codes.to(text.dtype)], dim=1)
            loss = functional.cross_entropy(scores.flatten(0, 1), labels.flatten())
            return poptorch.identity_loss(loss, "none")
