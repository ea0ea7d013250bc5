"""BERT with its losses, as it was pre-trained and fine-tuned on machines of the IPU class.

The word table is also the output layer of the masked words, and both are on chip 0: the last stage
of a pipeline returns there. Masked words are first in a sequence, where the host has put them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

import poptorch
from tremula.garden.models.published.encoder import (
    EncoderLayer,
    EncoderSize,
    WordEmbedding,
    padding_mask,
    place_layers,
    segment_mask,
)

N_NEXT_KINDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PreTraining:
    """What differs between the public programs that pre-train BERT."""

    n_masks: int  # words to guess in a row of the batch
    n_packed: int = 0  # sequences in a row at most; 0: one, not packed
    n_serial: int = 1  # parts of the product with the word table
    has_transform: bool = True  # a dense layer before the word table
    has_next_sentence: bool = True
    keeps_last_of_chip: bool = True  # a checkpoint also behind the last layer of a chip


class BertForPreTraining(nn.Module):
    """Losses and accuracies of the masked words and of the next sentence."""

    def __init__(self, size: EncoderSize, task: PreTraining):
        super().__init__()
        self.task = task
        self.embedding = WordEmbedding(size)
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(size.n_layers)])
        self.last_of_chip: frozenset[int] = frozenset()
        self.heads = PreTrainingHeads(size, task)
        self.heads.table = self.embedding.words.weight

    def forward(
        self, ids: Tensor, positions: Tensor, kinds: Tensor, rows: Tensor, labels: Tensor,
        next_labels: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """`rows` are numbers of packed sequences, or ones where there are words."""
        x = self.embedding(ids, positions, kinds)
        mask = (segment_mask if self.task.n_packed else padding_mask)(rows, x.dtype)
        for number, layer in enumerate(self.layers):
            x = layer(x, mask)
            if self.task.keeps_last_of_chip or number not in self.last_of_chip:
                x = poptorch.recomputationCheckpoint(x)
        return self.heads(x, labels, next_labels)

    def place(self, layers_per_chip: Sequence[int]) -> None:
        ends = torch.tensor(layers_per_chip).cumsum(0) - 1
        self.last_of_chip = frozenset(ends.tolist())
        poptorch.BeginBlock(self.embedding, "embedding", ipu_id=0)
        place_layers(self.layers, layers_per_chip)
        poptorch.BeginBlock(self.heads, "heads", ipu_id=0)


class PreTrainingHeads(nn.Module):
    """Guesses masked words by the word table, and whether sentences follow each other."""

    table: Tensor

    def __init__(self, size: EncoderSize, task: PreTraining):
        super().__init__()
        self.task = task
        self.pooler = nn.Linear(size.width, size.width)
        self.next = nn.Linear(size.width, N_NEXT_KINDS)
        if task.has_transform:
            self.transform = nn.Linear(size.width, size.width)
            self.norm = nn.LayerNorm(size.width, eps=size.epsilon)
        self.n_words, self.gelu = size.n_words, size.gelu

    def forward(self, x: Tensor, labels: Tensor, next_labels: Tensor) -> tuple[Tensor, ...]:
        loss, hits = self._words(x[:, : self.task.n_masks], labels)
        if self.task.has_next_sentence:
            more, n_right = self._next(x, next_labels)
            loss, hits = loss + more, torch.stack([hits, n_right])
        return poptorch.identity_loss(loss, "none"), hits

    def _words(self, masked: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if self.task.has_transform:
            masked = self.norm(functional.gelu(self.transform(masked), approximate=self.gelu))
        flat = masked.flatten(0, 1)
        mode = poptorch.MatMulSerializationMode.OutputChannels
        factor = self.task.n_serial
        scores = poptorch.serializedMatMul(flat, self.table.t(), mode, factor, keep_precision=True)
        return _loss(scores, labels.flatten())

    def _next(self, x: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        n_packed = self.task.n_packed
        firsts = x[:, -n_packed:].flatten(0, 1) if n_packed else x[:, self.task.n_masks]
        scores = self.next(torch.tanh(self.pooler(firsts)))
        return _loss(scores, labels.flatten())


def _loss(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss = functional.cross_entropy(scores.float(), labels)
    return loss, (scores.argmax(-1) == labels).float().mean().detach()


class BertForAnswers(nn.Module):
    """Where answers begin and end, with the loss of both: SQuAD."""

    def __init__(self, size: EncoderSize):
        super().__init__()
        self.embedding = WordEmbedding(size)
        self.layers = nn.ModuleList([EncoderLayer(size) for _ in range(size.n_layers)])
        self.out = nn.Linear(size.width, 2)

    def forward(
        self, ids: Tensor, positions: Tensor, kinds: Tensor, is_word: Tensor, begin: Tensor,
        end: Tensor,
    ) -> Tensor:  # fmt: skip
        x = self.embedding(ids, positions, kinds)
        mask = padding_mask(is_word, x.dtype)
        for layer in self.layers:
            x = poptorch.recomputationCheckpoint(layer(x, mask))
        scores = self.out(x).float()
        first, last = scores.unbind(-1)
        loss = functional.cross_entropy(first, begin) + functional.cross_entropy(last, end)
        return poptorch.identity_loss(loss / 2, "none")

    def place(self, layers_per_chip: Sequence[int]) -> None:
        poptorch.BeginBlock(self.embedding, "embedding", ipu_id=0)
        place_layers(self.layers, layers_per_chip)
        if not layers_per_chip[-1]:
            poptorch.BeginBlock(self.out, "out", ipu_id=len(layers_per_chip) - 1)
