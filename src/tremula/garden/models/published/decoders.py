"""Decoders that generate a word at a time, layer by layer, with keys and values of earlier words.

The layers are those of PopTransformer: attention always reads the whole cache, a mask hides what is
not written yet. GPT-2 writes keys and values at a place of the cache; ChatGLM moves the cache on by
one word and appends.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderSize:
    """What a decoder is made of."""

    width: int
    n_heads: int
    n_inner: int
    n_words: int
    n_positions: int = 0  # of a table of positions; 0: positions rotate queries and keys
    moves_cache: bool = False


class DecoderLayer(nn.Module):
    """One layer for new words `x` [batch, n, width]; `past` is [2, batch, heads, length, size]."""

    def __init__(self, size: DecoderSize):
        super().__init__()
        self.size = size
        self.norms = nn.ModuleList([nn.LayerNorm(size.width) for _ in range(2)])
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)
        self.up = nn.Linear(size.width, size.n_inner)
        self.down = nn.Linear(size.n_inner, size.width)

    def forward(self, x: Tensor, past: Tensor, mask: Tensor, at: Tensor, turn: Tensor) -> Tensor:
        first, second = self.norms
        x = x + self._attention(first(x), past, mask, at, turn)
        return x + self.down(functional.gelu(self.up(second(x)), approximate="tanh"))

    def _attention(self, x: Tensor, past: Tensor, mask: Tensor, at: Tensor, turn: Tensor) -> Tensor:
        q, k, v = (self._by_head(part) for part in self.qkv(x).chunk(3, dim=-1))
        if not self.size.n_positions:
            q, k = _rotated(q, turn), _rotated(k, turn)
        if x.shape[1] < past.shape[3]:
            new = torch.stack([k, v])
            past = self._moved(past, new) if self.size.moves_cache else _written(past, new, at)
            k, v = past.unbind(0)
        weights = functional.softmax(q @ k.transpose(-1, -2) + mask, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def _moved(self, past: Tensor, new: Tensor) -> Tensor:
        return torch.cat([past[:, :, :, new.shape[3] :], new], dim=3)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.size.n_heads, -1).transpose(1, 2)


def _written(past: Tensor, new: Tensor, at: Tensor) -> Tensor:
    """The cache with new keys and values at one place."""
    return past.index_copy(3, at, new)


def _rotated(x: Tensor, turn: Tensor) -> Tensor:
    """`turn` holds cosines and sines of positions: [2, 1, 1, n, size]."""
    low, high = x.chunk(2, dim=-1)
    return x * turn[0] + torch.cat([-high, low], dim=-1) * turn[1]


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
        scores = self.norm(x[:, -1]) @ self.words.weight.t()
        return first, torch.topk(scores, 1).indices
