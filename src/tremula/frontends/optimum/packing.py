"""Several short sentences in one row: BERT wastes little on padding, and sees each by itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers.modeling_outputs import SequenceClassifierOutput

from tremula.frontends.optimum.errors import IncompatibleIPUConfigError, NotPipelinable

IGNORED = -100  # labels of places that hold no sentence


@dataclass(frozen=True)
class Packing:
    """Which sentences share a row: `members[i]` are those of row i."""

    members: tuple[tuple[int, ...], ...]
    max_length: int
    max_sequences: int
    n_words: int

    @property
    def efficiency(self) -> float:
        """The share of places that hold words."""
        return self.n_words / (len(self.members) * self.max_length)

    @property
    def sequences_per_row(self) -> float:
        """Sentences per row, on average: how many times fewer rows there are."""
        return sum(map(len, self.members)) / len(self.members)


def pack_lengths(lengths: Sequence[int], max_length: int, max_sequences: int = 6) -> Packing:
    """Share rows out between sentences: the longest first, each into the fullest row it fits.

    Rows are kept by the room they have left, so this takes the same time for any number of them.
    """
    result = np.asarray(lengths, dtype=np.int64)
    if len(result) == 0 or result.min() < 1:
        raise IncompatibleIPUConfigError("packing needs sentences of at least one word each")
    if result.max() > max_length:
        at = int(result.argmax())
        raise IncompatibleIPUConfigError(
            f"sentence {at} has {result[at]} words, but a row has {max_length}",
            hint="truncate it, or raise max_length",
        )
    rows: list[list[int]] = []
    by_room: list[list[int]] = [[] for _ in range(max_length + 1)]
    for index in np.argsort(-result, kind="stable"):
        length = int(result[index])
        room = next((r for r in range(length, max_length + 1) if by_room[r]), None)
        if room is None:
            rows.append([int(index)])
            row, room = len(rows) - 1, max_length
        else:
            row = by_room[room].pop()
            rows[row].append(int(index))
        if len(rows[row]) < max_sequences:
            by_room[room - length].append(row)
    members = tuple(tuple(row) for row in rows)
    return Packing(members, max_length, max_sequences, int(result.sum()))


class PackedDataset(Dataset):
    """Rows of several sentences each, from a data set of sentences with input_ids and labels."""

    def __init__(
        self,
        sentences: Sequence[Mapping[str, Any]],
        max_length: int,
        max_sequences: int = 6,
        pad_token_id: int = 0,
    ):
        self.sentences, self.pad_token_id = sentences, pad_token_id
        self.words = [_words_of(sentence) for sentence in sentences]
        lengths = [len(words) for words in self.words]
        self.packing = pack_lengths(lengths, max_length, max_sequences)

    def __len__(self) -> int:
        return len(self.packing.members)

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        size, n_places = self.packing.max_length, self.packing.max_sequences
        ids = torch.full((size,), self.pad_token_id)
        owner, positions = torch.zeros(size).long(), torch.zeros(size).long()
        starts, labels = torch.zeros(n_places).long(), torch.full((n_places,), IGNORED)
        begin = 0
        for index, member in enumerate(self.packing.members[row]):
            words = self.words[member]
            end = begin + len(words)
            ids[begin:end], owner[begin:end] = words, index + 1
            positions[begin:end] = torch.arange(len(words))
            starts[index] = begin
            labels[index] = int(self.sentences[member]["labels"])
            begin = end
        return {
            "input_ids": ids,
            "attention_mask": owner,
            "position_ids": positions,
            "sentence_starts": starts,
            "labels": labels,
        }

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        return (self[row] for row in range(len(self)))


def _words_of(sentence: Mapping[str, Any]) -> Tensor:
    words = torch.as_tensor(sentence["input_ids"]).long()
    mask = sentence.get("attention_mask")
    return words if mask is None else words[torch.as_tensor(mask).bool()]


class PackedBertForSequenceClassification(nn.Module):
    """BERT's classifier over packed rows: scores for every place of every row.

    It shares its weights with the model it is made from. Words attend only within
    their sentence; places without one have the label -100 and do not count.
    """

    def __init__(self, model: nn.Module):
        super().__init__()
        if not hasattr(model, "bert") or not hasattr(model, "classifier"):
            raise NotPipelinable(
                f"{type(model).__name__} cannot be packed",
                hint="packing takes a BertForSequenceClassification",
            )
        self.model = model
        self.config = model.config

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        sentence_starts: Tensor,
        labels: Tensor | None = None,
    ) -> SequenceClassifierOutput:
        model: Any = self.model
        is_same = attention_mask.unsqueeze(1) == attention_mask.unsqueeze(2)
        sees = (is_same & (attention_mask > 0).unsqueeze(1)).unsqueeze(1)
        # Padding sees itself, so that no row of the softmax is empty.
        sees = sees | torch.eye(sees.shape[-1], dtype=torch.bool, device=sees.device)
        hidden = model.bert(input_ids, attention_mask=sees, position_ids=position_ids)[0]
        width = hidden.shape[-1]
        heads = hidden.gather(1, sentence_starts.long().unsqueeze(-1).expand(-1, -1, width))
        pooler = model.bert.pooler
        pooled = pooler.activation(pooler.dense(heads))
        logits = model.classifier(model.dropout(pooled))
        loss = None
        if labels is not None:
            flat = logits.flatten(0, 1).float()
            loss = nn.functional.cross_entropy(flat, labels.flatten(), ignore_index=IGNORED)
        return SequenceClassifierOutput(loss=loss, logits=logits)  # pyright: ignore[reportArgumentType]
