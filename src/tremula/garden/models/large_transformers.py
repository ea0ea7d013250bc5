"""BERT for questions and GPT with its loss, written out operator by operator, for pipelines.

As Graphcore's public examples have them: attention as two products and a softmax, a mask that is
added, checkpoints behind every layer. Their output layer and loss are cut into slices, which saves
memory; these are not. Sizes are arguments.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.models.published.encoder import by_head


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a transformer is made of."""

    n_layers: int
    width: int
    n_heads: int
    n_words: int
    n_positions: int
    dropout: float = 0.0


BERT_LARGE = Size(n_layers=24, width=1024, n_heads=16, n_words=30522, n_positions=512)
# 50,257 words, padded by the measured program.
GPT_117M = Size(
    n_layers=12, width=768, n_heads=12, n_words=50272, n_positions=1024, dropout=0.1
)  # fmt: skip


class SelfAttention(nn.Module):
    """Self-attention; `mask` is added to the scores."""

    def __init__(self, size: Size):
        super().__init__()
        self.n_heads, self.dropout = size.n_heads, nn.Dropout(size.dropout)
        self.qkv = nn.Linear(size.width, 3 * size.width)
        self.out = nn.Linear(size.width, size.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (by_head(part, self.n_heads) for part in self.qkv(x).chunk(3, dim=-1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + mask
        weights = self.dropout(functional.softmax(scores, dim=-1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class TransformerLayer(nn.Module):
    """Attention and two dense layers; norms come before them (GPT) or behind them (BERT)."""

    def __init__(self, size: Size, *, norms_first: bool):
        super().__init__()
        self.norms_first, self.dropout = norms_first, nn.Dropout(size.dropout)
        self.attention = SelfAttention(size)
        self.norms = nn.ModuleList([nn.LayerNorm(size.width) for _ in range(2)])
        self.up = nn.Linear(size.width, 4 * size.width)
        self.down = nn.Linear(4 * size.width, size.width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        first, second = self.norms
        if self.norms_first:
            x = x + self.dropout(self.attention(first(x), mask))
            return x + self.dropout(self._dense(second(x)))
        x = first(x + self.dropout(self.attention(x, mask)))
        return second(x + self.dropout(self._dense(x)))

    def _dense(self, x: Tensor) -> Tensor:
        return self.down(functional.gelu(self.up(x)))


class BertForQuestions(nn.Module):
    """Where answers begin and end: two scores for each word."""

    def __init__(self, size: Size = BERT_LARGE):
        super().__init__()
        self.words = nn.Embedding(size.n_words, size.width)
        self.positions = nn.Embedding(size.n_positions, size.width)
        self.kinds = nn.Embedding(2, size.width)
        self.norm = nn.LayerNorm(size.width)
        layers = [TransformerLayer(size, norms_first=False) for _ in range(size.n_layers)]
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(size.width, 2)

    def forward(self, ids: Tensor, is_word: Tensor, kinds: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], dtype=torch.int32)
        x = self.norm(self.words(ids) + self.kinds(kinds) + self.positions(places))
        mask = (1 - is_word[:, None, None, :].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = poptorch.recomputationCheckpoint(layer(x, mask))
        begin, end = self.out(x).unbind(-1)
        return begin, end


class GptWithLoss(nn.Module):
    """A language model whose output layer has the embedding's weights; loss and accuracy."""

    def __init__(self, size: Size = GPT_117M):
        super().__init__()
        self.words = nn.Embedding(size.n_words, size.width)
        self.positions = nn.Embedding(size.n_positions, size.width)
        self.dropout = nn.Dropout(size.dropout)
        layers = [TransformerLayer(size, norms_first=True) for _ in range(size.n_layers)]
        self.layers = nn.ModuleList(layers)
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, size.n_words, bias=False)
        self.head.weight = self.words.weight
        causal = torch.triu(torch.full((size.n_positions, size.n_positions), -10000.0), 1)
        self.register_buffer("mask", causal)

    def forward(self, ids: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        places = torch.arange(ids.shape[1], dtype=torch.int32)
        x = self.words(ids)
        x = self.dropout(x + self.positions(places))
        for layer in self.layers:
            x = poptorch.recomputationCheckpoint(layer(x, self.mask))
        scores, labels = self.head(self.norm(x)).flatten(0, 1), labels.flatten()
        loss = functional.cross_entropy(scores, labels).float()
        hits = (scores.argmax(-1) == labels).float().mean().detach()
        return poptorch.identity_loss(loss, "none"), hits


def place(model: BertForQuestions | GptWithLoss, layers_per_chip: Sequence[int]) -> None:
    """Begin a chip's stage at its first layer; GPT's embedding and output layer are on chip 0."""
    poptorch.BeginBlock(model.words, "words", ipu_id=0)
    first = 0
    for chip, n_layers in enumerate(layers_per_chip):
        if n_layers and chip:
            begin = model.layers[first] if first else model.positions
            poptorch.BeginBlock(begin, f"chip{chip}", ipu_id=chip)
        first += n_layers
    if isinstance(model, GptWithLoss):
        poptorch.BeginBlock(model.head, "head", ipu_id=0)
