"""The parts that the measured transformers share: attention, dense layers, embeddings, blocks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderSize:
    """What a transformer is made of."""

    n_layers: int
    width: int
    n_heads: int
    n_inner: int
    n_words: int = 0
    n_positions: int = 512
    n_kinds: int = 2
    dropout: float = 0.0
    attention_dropout: float = 0.0
    has_attention_bias: bool = True
    norms_first: bool = False
    keeps_middle: bool = False  # a checkpoint between attention and dense layers
    splits_qkv: bool = False  # queries, keys and values by three products
    drops_inner: bool = False  # dropout between the dense layers, too
    epsilon: float = 1e-3
    uses_float8: bool = False  # in products with weights
    gelu: str = "tanh"  # its form; PyTorch's default is "none", by the error function


def _dense_class(size: EncoderSize) -> type[nn.Linear]:
    if not size.uses_float8:
        return nn.Linear
    from poptorch.float8 import Linear

    return Linear


class Patches(nn.Conv2d):
    """Square patches of images as rows of a sequence, by a convolution that steps over them."""

    def __init__(self, width: int, patch: int, *, bias: bool = True):
        super().__init__(3, width, kernel_size=patch, stride=patch, bias=bias)

    def forward(self, images: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride] - by position
        return super().forward(images).flatten(2).transpose(1, 2)


def by_head(x: Tensor, n_heads: int) -> Tensor:
    """[batch, places, width] → [batch, heads, places, size of a head]."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


class Attention(nn.Module):
    """Self-attention; `mask` is added to scores."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.n_heads, self.dropout = size.n_heads, nn.Dropout(size.attention_dropout)
        dense, bias = _dense_class(size), size.has_attention_bias
        n_products = 3 if size.splits_qkv else 1
        widths = [3 * size.width // n_products] * n_products
        parts = [dense(size.width, width, bias=bias) for width in widths]
        self.qkv = nn.ModuleList(parts) if size.splits_qkv else parts[0]
        self.out = dense(size.width, size.width, bias=bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (by_head(part, self.n_heads) for part in self._projected(x))
        scores = q @ k.transpose(-1, -2) * (1 / math.sqrt(q.shape[-1]))
        if mask is not None:
            scores = scores + mask
        weights = self.dropout(functional.softmax(scores, dim=-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def _projected(self, x: Tensor) -> Sequence[Tensor]:
        if isinstance(self.qkv, nn.ModuleList):
            return [part(x) for part in self.qkv]
        return self.qkv(x).chunk(3, dim=-1)


class EncoderLayer(nn.Module):
    """Attention and two dense layers; norms come before them or behind them."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.norms_first, self.keeps_middle = size.norms_first, size.keeps_middle
        self.gelu, self.drops_inner = size.gelu, size.drops_inner
        self.dropout, self.attention = nn.Dropout(size.dropout), Attention(size)
        norms = [nn.LayerNorm(size.width, eps=size.epsilon) for _ in range(2)]
        self.norms = nn.ModuleList(norms)
        dense = _dense_class(size)
        self.up = dense(size.width, size.n_inner)
        self.down = dense(size.n_inner, size.width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        first, second = self.norms
        if self.norms_first:
            x = self._middle(x + self.dropout(self.attention(first(x), mask)))
            return x + self.dropout(self._dense(second(x)))
        x = self._middle(first(x + self.dropout(self.attention(x, mask))))
        return second(x + self.dropout(self._dense(x)))

    def _middle(self, x: Tensor) -> Tensor:
        return poptorch.recomputationCheckpoint(x) if self.keeps_middle else x

    def _dense(self, x: Tensor) -> Tensor:
        inner = functional.gelu(self.up(x), approximate=self.gelu)
        return self.down(self.dropout(inner) if self.drops_inner else inner)


class WordEmbedding(nn.Module):
    """Words, positions and kinds of segments, summed, with norm and dropout."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.words = nn.Embedding(size.n_words, size.width)
        self.positions = nn.Embedding(size.n_positions, size.width)
        self.kinds = nn.Embedding(size.n_kinds, size.width) if size.n_kinds else None
        self.norm = nn.LayerNorm(size.width, eps=size.epsilon)
        self.dropout = nn.Dropout(size.dropout)

    def forward(self, ids: Tensor, positions: Tensor, kinds: Tensor | None = None) -> Tensor:
        x = self.words(ids) + self.positions(positions)
        if self.kinds is not None and kinds is not None:
            x = x + self.kinds(kinds)
        return self.dropout(self.norm(x))


def place_layers(
    layers: Sequence[nn.Module] | nn.ModuleList, layers_per_chip: Sequence[int]
) -> None:
    """Begin a stage at the first layer of each chip; those of chip 0 follow the embedding there."""
    first = 0
    for chip, n_layers in enumerate(layers_per_chip):
        if n_layers and chip:
            poptorch.BeginBlock(layers[first], f"chip{chip}", ipu_id=chip)
        first += n_layers


def segment_mask(sequence: Tensor, dtype: torch.dtype) -> Tensor:
    """[batch, words] of sequence numbers → what is added to scores: words of others are hidden."""
    same = sequence[:, None, :, None] == sequence[:, None, None, :]
    return (1 - same.to(dtype)) * -10000.0


def padding_mask(is_word: Tensor, dtype: torch.dtype) -> Tensor:
    """[batch, words] of ones and zeros → what is added to scores: padding is hidden."""
    return (1 - is_word[:, None, None, :].to(dtype)) * -10000.0
