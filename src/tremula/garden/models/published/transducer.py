"""A transducer for speech: a transformer over sound, LSTMs over text, joined at every pair."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import poptorch
from tremula.garden.models.published.encoder import EncoderLayer, EncoderSize


@dataclass(frozen=True, slots=True, kw_only=True)
class TransducerSize:
    """What the transducer is made of."""

    n_features: int = 240
    n_frames: int = 557
    n_text: int = 125
    n_symbols: int = 1024
    width: int = 768
    n_heads: int = 8
    n_inner: int = 3072
    predictor_width: int = 512
    n_slice: int = 15  # frames that are joined with all of the text at a time


class Transducer(nn.Module):
    """One encoder block on a chip between the ends; the joint network and its loss on the last.

    The loss needs of each pair of frame and word only the chances of the next symbol and of none.
    """

    def __init__(self, size: TransducerSize):
        super().__init__()
        self.size = size
        self.subsample = nn.Conv1d(size.n_features, size.width, 16, 2, 7)
        encoder = EncoderSize(
            n_layers=1, width=size.width, n_heads=size.n_heads, n_inner=size.n_inner, dropout=0.1,
            norms_first=True,
        )  # fmt: skip
        self.layers = nn.ModuleList([EncoderLayer(encoder)])
        self.words = nn.Embedding(size.n_symbols - 1, size.predictor_width)
        self.predictor = nn.LSTM(size.predictor_width, size.predictor_width, 2, batch_first=True)
        self.from_sound = nn.Linear(size.width, size.predictor_width)
        self.from_text = nn.Linear(size.predictor_width, size.predictor_width)
        self.dropout = nn.Dropout(0.3)
        self.out = nn.Linear(size.predictor_width, size.n_symbols)

    def forward(self, sound: Tensor, text: Tensor) -> Tensor:
        """`sound` [batch, features, frames], `text` [batch, symbols]."""
        with poptorch.Block("ends", ipu_id=0):
            x = torch.relu(self.subsample(sound)).transpose(1, 2)
            said = self.predictor(self.words(text))[0]
        with poptorch.Block("layer", ipu_id=1):
            x = poptorch.recomputationCheckpoint(self.layers[0](x))
        with poptorch.Block("joint", ipu_id=2):
            loss = self._joint(self.from_sound(x), self.from_text(said), text)
            return poptorch.identity_loss(loss, "none")

    def _joint(self, sound: Tensor, said: Tensor, text: Tensor) -> Tensor:
        """Slice by slice over time: the sum of what is needed of each pair.

        The gradient of a slice computes its pairs and symbols again, from the same dropout mask, as
        that of the measured operation does (GetCompactLogProbsGradOpx of the public sources).
        """
        total = []
        for part in sound.split(self.size.n_slice, dim=1):
            mask = self.dropout(sound.new_ones(*part.shape[:2], *said.shape[1:]))
            total.append(checkpoint(self._slice, part, said, mask, text, use_reentrant=False))
        return torch.stack(total).sum()

    def _slice(self, part: Tensor, said: Tensor, mask: Tensor, text: Tensor) -> Tensor:
        pairs = torch.relu(part[:, :, None] + said[:, None]) * mask
        chances = functional.log_softmax(self.out(pairs).float(), dim=-1)
        labels = text[:, None, :, None].expand(-1, part.shape[1], -1, -1)
        following = torch.gather(chances, 3, labels.long())[..., 0]
        return -(following + chances[..., 0]).sum()
