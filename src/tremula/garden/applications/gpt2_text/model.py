"""GPT-2 of transformers in blocks over several IPUs, with an output layer in slices."""

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import poptorch
from tremula.garden.models.serialised import SlicedLinear


class Checkpointed(nn.Module):
    """A layer whose result is kept for the backward pass."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, *args, **kwargs) -> Tensor:
        result = self.layer(*args, **kwargs)
        return poptorch.recomputationCheckpoint(result)


class PipelinedGPT2(nn.Module):
    """GPT-2 with its loss; embeddings and output layer on IPU 0, the layers on the others."""

    def __init__(self, config: GPT2Config, n_slices: int, layers_per_ipu: int):
        super().__init__()
        self.model = GPT2LMHeadModel(config)
        if n_slices > 1:
            mode = poptorch.MatMulSerializationMode.OutputChannels
            head = SlicedLinear(config.n_embd, config.vocab_size, n_slices, mode)
            head.load_state_dict(self.model.lm_head.state_dict())
            self.model.lm_head = head
            self.model.tie_weights()
        parts = self.model.transformer
        parts.wte = poptorch.BeginBlock(parts.wte, "embedding", ipu_id=0)
        for number, layer in enumerate(parts.h):
            ipu, place = divmod(number, layers_per_ipu)
            parts.h[number] = Checkpointed(layer)
            if place == 0:
                poptorch.BeginBlock(parts.h[number], f"layer{number}", ipu_id=1 + ipu)
        self.model.lm_head = poptorch.BeginBlock(self.model.lm_head, "head", ipu_id=0)
        self.loss = nn.CrossEntropyLoss()

    def forward(self, ids: Tensor) -> Tensor:
        hidden = self.model.transformer(input_ids=ids[:, :-1], use_cache=False)[0]
        scores = self.model.lm_head(hidden)
        return self.loss(scores.flatten(0, 1), ids[:, 1:].flatten())
