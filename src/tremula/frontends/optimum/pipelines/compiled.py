"""A model whose forward is compiled for batches of one size; shorter ones are filled up."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers.utils.generic import ModelOutput

import poptorch

_WORDS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "decoder_input_ids")


class CompiledForward:
    """The forward of a model, compiled once for each form of its inputs.

    Rows of words are filled up to `max_length` (longer ones to its next multiple) and batches to
    `batch_size`, so that there are few forms; results are cut back.
    """

    def __init__(
        self,
        model: nn.Module,
        options: Callable[[], poptorch.Options],
        *,
        max_length: int,
        pad_token_id: int = 0,
    ):
        self._model, self._options = copy.copy(model), options
        self._max_length, self._pad = max_length, pad_token_id
        self._compiled: dict[tuple, poptorch.PoplarExecutor] = {}

    def __call__(self, **inputs: object) -> object:
        """The model's outputs for these inputs."""
        values = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        n_words = values["input_ids"].shape[1] if "input_ids" in values else None
        batch = values if n_words is None else self._filled(values, n_words)
        form = tuple((name, value.shape, value.dtype) for name, value in batch.items())
        if form not in self._compiled:
            self._compiled[form] = poptorch.inferenceModel(self._model, self._options())
        with torch.no_grad():
            outputs = self._compiled[form](**batch)
        return outputs if n_words is None else _cut(outputs, batch["input_ids"].shape[1], n_words)

    def _filled(self, values: dict[str, Tensor], n_words: int) -> dict[str, Tensor]:
        n_wanted = -(-n_words // self._max_length) * self._max_length
        result = dict(values)
        result.setdefault("attention_mask", torch.ones_like(values["input_ids"]))
        for name in _WORDS:
            tensor = result.get(name)
            if tensor is not None and tensor.shape[1] == n_words:
                value = self._pad if name.endswith("input_ids") else 0
                result[name] = nn.functional.pad(tensor, (0, n_wanted - n_words), value=value)
        return result

    def release(self) -> None:
        """Give the devices back."""
        for executor in self._compiled.values():
            executor.destroy()
        self._compiled.clear()


def _cut(outputs: ModelOutput, n_computed: int, n_words: int) -> ModelOutput:
    """The results without those of padding."""
    if n_computed == n_words:
        return outputs
    for name, value in outputs.items():
        if isinstance(value, Tensor) and value.dim() > 1 and value.shape[1] == n_computed:
            outputs[name] = value[:, :n_words]
    return outputs
