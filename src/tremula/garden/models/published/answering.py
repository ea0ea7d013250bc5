"""Encoders that were measured in inference: ALBERT, BERT, RoBERTa, DeBERTa, RoFormer, CLIP's text.

All are layers of one kind between an embedding and a small head, so a model may be built with fewer
layers than it has.
"""

import math
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from tremula.garden.models.published.encoder import (
    EncoderLayer,
    EncoderSize,
    Patches,
    WordEmbedding,
    by_head,
    padding_mask,
    segment_mask,
)


class AnswerFinder(nn.Module):
    """Scores of where an answer begins and ends: BERT, RoBERTa, ALBERT.

    `rows` are numbers of packed sequences. ALBERT has a narrow embedding, and one layer's weights
    for all layers.
    """

    def __init__(self, size: EncoderSize, embedding_width: int = 0, *, shares_layer: bool = False):
        super().__init__()
        self.size = size
        narrow = replace(size, width=embedding_width or size.width)
        self.embedding = WordEmbedding(narrow)
        has_projection = embedding_width not in (0, size.width)
        self.project = nn.Linear(embedding_width, size.width) if has_projection else nn.Identity()
        n_layers = 1 if shares_layer else size.n_layers
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(n_layers)])
        self.out = nn.Linear(size.width, 2)

    def forward(self, ids: Tensor, positions: Tensor, kinds: Tensor, rows: Tensor) -> Tensor:
        x = self.project(self.embedding(ids, positions, kinds))
        mask = segment_mask(rows, x.dtype)
        for number in range(self.size.n_layers):
            x = self.layers[number % len(self.layers)](x, mask)
        return self.out(x)


class DisentangledAttention(nn.Module):
    """Scores of content to content, content to position and position to content."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.n_heads = size.n_heads
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.position_k = nn.Linear(size.width, size.width, bias=False)
        self.position_q = nn.Linear(size.width, size.width)
        self.out = nn.Linear(size.width, size.width)

    def forward(self, x: Tensor, mask: Tensor, table: Tensor) -> Tensor:
        """`table` [2 n, width] has a row for each distance between n words."""
        q, k, v = (by_head(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        scale = 1 / math.sqrt(3 * q.shape[-1])
        key, query = (
            by_head(f(table)[None], self.n_heads) for f in (self.position_k, self.position_q)
        )
        to_position = _by_distance(q @ key.transpose(-1, -2))
        of_position = _by_distance(k @ query.transpose(-1, -2)).transpose(-1, -2)
        scores = (q @ k.transpose(-1, -2) + to_position + of_position) * scale + mask
        weights = functional.softmax(scores, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def _by_distance(scores: Tensor) -> Tensor:
    """[…, n, 2 n] of words and distances → […, n, n] of words and words, each row moved by one."""
    *outer, n, n_distances = scores.shape
    flat = functional.pad(scores, (0, 1)).flatten(-2)[..., : n * n_distances]
    return flat.view(*outer, n, n_distances)[..., :n]


class LayerWithPositions(nn.Module):
    """Attention that knows positions, and two dense layers, with norms after each."""

    def __init__(self, size: EncoderSize, attention: nn.Module):
        super().__init__()
        self.attention = attention
        self.norms = nn.ModuleList([nn.LayerNorm(size.width) for _ in range(2)])
        self.up = nn.Linear(size.width, size.n_inner)
        self.down = nn.Linear(size.n_inner, size.width)

    def forward(self, x: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        first, second = self.norms
        x = first(x + self.attention(x, mask, positions))
        return second(x + self.down(functional.gelu(self.up(x), approximate="tanh")))


class DeBertaForAnswers(nn.Module):
    """DeBERTa with the head of SQuAD."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.embedding = WordEmbedding(size)
        self.distances = nn.Embedding(2 * size.n_positions, size.width)
        layers = [
            LayerWithPositions(size, DisentangledAttention(size)) for _ in range(size.n_layers)
        ]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(size.width, 2)

    def forward(self, ids: Tensor, positions: Tensor, rows: Tensor) -> Tensor:
        x = self.embedding(ids, positions)
        mask = segment_mask(rows, x.dtype)
        table = self.distances.weight[: 2 * ids.shape[1]]
        for layer in self.layers:
            x = layer(x, mask, table)
        return self.out(x)


class RotaryAttention(nn.Module):
    """Queries and keys turned by their position."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.n_heads = size.n_heads
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)

    def forward(self, x: Tensor, mask: Tensor, turn: Tensor) -> Tensor:
        q, k, v = (by_head(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        q, k = _turned(q, turn), _turned(k, turn)
        weights = functional.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask, -1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


def _turned(x: Tensor, turn: Tensor) -> Tensor:
    even, odd = x[..., ::2], x[..., 1::2]
    other = torch.stack([-odd, even], dim=-1).flatten(-2)
    return x * turn[0] + other * turn[1]


class RoFormerForClasses(nn.Module):
    """RoFormer whose first word's result is classified."""

    def __init__(self, size: EncoderSize, n_classes: int = 2):
        super().__init__()
        self.words = nn.Embedding(size.n_words, size.width)
        self.kinds = nn.Embedding(size.n_kinds, size.width)
        self.norm = nn.LayerNorm(size.width)
        layers = [LayerWithPositions(size, RotaryAttention(size)) for _ in range(size.n_layers)]
        self.layers = nn.ModuleList(layers)
        self.pooler, self.out = nn.Linear(size.width, size.width), nn.Linear(size.width, n_classes)
        angles = torch.zeros(2, 1, 1, size.n_positions, size.width // size.n_heads)
        self.turn: Tensor
        self.register_buffer("turn", angles)

    def forward(self, ids: Tensor, kinds: Tensor) -> Tensor:
        """Both come as floats, as the measured graph has them."""
        words = ids.to(torch.int32)
        x = self.norm(self.words(words) + self.kinds(kinds.to(torch.int32)))
        mask = padding_mask((words != 0).to(torch.int32), x.dtype)
        for layer in self.layers:
            x = layer(x, mask, self.turn[..., : ids.shape[1], :])
        return self.out(torch.tanh(self.pooler(x[:, 0])))


class TextTower(nn.Module):
    """CLIP's text encoder: causal, norms first; all hidden states and the pooled one."""

    def __init__(self, size: EncoderSize, n_out: int = 0):
        super().__init__()
        self.words = nn.Embedding(size.n_words, size.width)
        self.positions = nn.Parameter(torch.zeros(size.n_positions, size.width))
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(size.n_layers)])
        self.norm = nn.LayerNorm(size.width)
        self.out = nn.Linear(size.width, n_out, bias=False) if n_out else None
        causal = torch.triu(torch.full((size.n_positions, size.n_positions), -10000.0), 1)
        self.register_buffer("mask", causal)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.words(ids) + self.positions
        for layer in self.layers:
            x = layer(x, self.mask)
        x = self.norm(x)
        ends = ids.argmax(-1)
        picked = functional.one_hot(ends.long(), ids.shape[1]).to(x.dtype)
        pooled = (picked[:, None] @ x)[:, 0]
        return x, pooled if self.out is None else self.out(pooled)


class ImageTower(nn.Module):
    """A vision transformer: patches, layers, a norm of the first place."""

    def __init__(self, size: EncoderSize, patch: int, n_out: int):
        super().__init__()
        self.patches = Patches(size.width, patch, bias=False)
        self.first = nn.Parameter(torch.zeros(1, 1, size.width))
        self.positions = nn.Parameter(torch.zeros(size.n_positions, size.width))
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(size.n_layers)])
        self.norms = nn.ModuleList([nn.LayerNorm(size.width) for _ in range(2)])
        self.out = nn.Linear(size.width, n_out, bias=False)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images)
        x = torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.positions
        x = self.norms[0](x)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norms[1](x[:, 0]))


class ImageTextScores(nn.Module):
    """How well each text fits each image: the two towers of CLIP."""

    def __init__(self, image: ImageTower, text: TextTower):
        super().__init__()
        self.image, self.text = image, text

    def forward(self, images: Tensor, ids: Tensor) -> Tensor:
        a, b = self.image(images), self.text(ids)[1]
        a, b = (x / x.norm(dim=-1, keepdim=True) for x in (a, b))
        return a @ b.t() * 100.0


class WideAndDeep(nn.Module):
    """Clicks from numbers and categories: a dense network beside a hashed linear part."""

    def __init__(self, n_rows: int = 10_000, width: int = 32, n_fields: int = 26):
        super().__init__()
        self.n_fields, self.table = n_fields, nn.Embedding(n_rows, width)
        self.wide = nn.Embedding(n_rows, 1)
        sizes = (n_fields * width + 13, 1024, 512, 256)
        self.dense = nn.ModuleList([nn.Linear(a, b) for a, b in pairwise(sizes)])
        self.out = nn.Linear(256, 1)

    def forward(self, ids: Tensor, numbers: Tensor) -> Tensor:
        """`ids` [n, 26, 2] (field and category, as in the measured graph), `numbers` [n, 13]."""
        rows = ids[..., 1]
        x = torch.cat([self.table(rows).flatten(1), numbers], dim=1)
        for layer in self.dense:
            x = torch.relu(layer(x))
        return torch.sigmoid(self.out(x) + self.wide(rows).sum(1))
