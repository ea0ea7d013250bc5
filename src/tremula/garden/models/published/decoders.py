"""Decoders that generate a word at a time, layer by layer, with keys and values of earlier words.

The layers are those of PopTransformer, with its custom operations (`decoder_ops`): attention always
reads the whole cache, a mask hides what is not written yet. The cache moves on by one word, and the
new keys and values come first.
ChatGLM's layer computes cosines and sines of positions itself, and scales residuals and scores.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tremula.garden.models.published.decoder_ops import moved_cache, row_norm, row_softmax
from tremula.garden.models.published.encoder import by_head


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSize:
    """What a decoder is made of."""

    width: int
    n_heads: int
    n_inner: int
    n_words: int
    n_positions: int = 0  # of a table of positions; 0: positions rotate queries and keys
    residual_scale: float | None = None
    has_cache_operation: bool = False  # the cache is kept by an operation, not by a loop


class DecoderLayer(nn.Module):
    """One layer for new words `x` [batch, n, width]; `past` is [2, batch, heads, length, size].

    `places` [2, n] are the positions of words in the text and in their block.
    """

    def __init__(self, size: DecoderSize):
        super().__init__()
        self.size = size
        self.norms = nn.ModuleList([nn.LayerNorm(size.width) for _ in range(2)])
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up = nn.Linear(size.width, size.n_inner)
        self.down = nn.Linear(size.n_inner, size.width)
        n = size.width // size.n_heads // 2
        self.rates: Tensor
        self.register_buffer("rates", 10000.0 ** -(torch.arange(0, n, 2) / n))

    def forward(self, x: Tensor, past: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        first, second = self.norms
        normed = _normed(first, x)
        x = self._added(x, normed, self._attention(normed, past, mask, places))
        normed = _normed(second, x)
        inner = functional.gelu(self.up(normed), approximate="tanh")
        return self._added(x, normed, self.down(inner))

    def _added(self, x: Tensor, normed: Tensor, result: Tensor) -> Tensor:
        """GLM adds to what its norm gave, scaled; GPT-2 to what came in."""
        scale = self.size.residual_scale
        return x + result if scale is None else normed * scale + result

    def _attention(self, x: Tensor, past: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        q, k, v = (by_head(part, self.size.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        if not self.size.n_positions:
            q, k = self._rotated(q, k, places)
            q = q * 0.1
        if x.shape[1] < past.shape[3]:
            new, is_operation = torch.stack([k, v]), self.size.has_cache_operation
            k, v = moved_cache(past, new, is_operation=is_operation).unbind(0)
        scores = q @ k.transpose(-1, -2)
        if not self.size.n_positions:
            scores = scores * 10.0
        weights = row_softmax(scores + mask, is_stable=x.shape[1] > 1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def _rotated(self, q: Tensor, k: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Both halves of queries and keys turned by positions: in the text, and in the block."""
        parts = zip(q.chunk(2, dim=-1), k.chunk(2, dim=-1), places, strict=True)
        turned = [self._turned(*part) for part in parts]
        return torch.cat([one[0] for one in turned], -1), torch.cat([one[1] for one in turned], -1)

    def _turned(self, q: Tensor, k: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        angles = places[:, None] @ self.rates[None]
        angles = torch.cat([angles, angles], dim=-1)
        cosine, sine = torch.cos(angles), torch.sin(angles)
        return q * cosine + _half_turn(q) * sine, k * cosine + _half_turn(k) * sine


def _normed(norm: nn.Module, x: Tensor) -> Tensor:
    assert isinstance(norm, nn.LayerNorm), "a decoder's norms have a scale and a bias"
    return row_norm(x, norm.weight, norm.bias)


def _half_turn(x: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat([-high, low], dim=-1)


class DecoderEnds(nn.Module):
    """Embedding of words, and from the last layer's result the next word."""

    def __init__(self, size: DecoderSize, n_words: int):
        super().__init__()
        self.words = nn.Embedding(n_words, size.width)
        self.positions = nn.Embedding(size.n_positions, size.width) if size.n_positions else None
        self.norm = nn.LayerNorm(size.width)

    def forward(self, ids: Tensor, places: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        first = self.words(ids)
        if self.positions is not None:
            first = first + self.positions(places)
        scores = _normed(self.norm, x[:, -1]) @ self.words.weight.t()
        return first, torch.topk(scores, 1).indices
