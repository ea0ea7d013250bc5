"""The compiled steps of a trainer: one trains, and one for each form of batch predicts."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

import poptorch
from tremula.frontends.optimum.ipu_config import IPUConfig

ComputeLoss = Callable[..., Any]  # of a trainer: a loss, or a pair of loss and outputs
ITEMS = "num_items_in_batch"


def loss_of_model(model: nn.Module, inputs: Mapping[str, object], **_: object) -> Tensor:
    """The loss that a model of transformers finds by itself."""
    outputs = model(**inputs)
    return outputs["loss"] if isinstance(outputs, dict) else outputs[0]


class ComputedLoss(nn.Module):
    """Returns the loss of a trainer's `compute_loss`, marked as the one to minimise."""

    def __init__(self, model: nn.Module, compute_loss: ComputeLoss = loss_of_model):
        super().__init__()
        self.model = model
        self._compute_loss = compute_loss

    def forward(self, **inputs: Tensor) -> Tensor:
        n_items = inputs.pop(ITEMS, None)
        if n_items is not None:
            n_items = n_items.reshape(())
        loss = self._compute_loss(self.model, inputs, num_items_in_batch=n_items)
        return poptorch.identity_loss(loss, reduction="none")


def items_per_micro_batch(labels: Tensor, config: IPUConfig, *, shifts: bool) -> Tensor:
    """For each micro-batch of a call: the labels that count in its update, split evenly.

    The loss of a micro-batch is its sum over that number, and an update averages its micro-batches:
    so every label of an update has the same weight, wherever it is.
    """
    n_iterations = config.value("device_iterations", for_inference=False)
    n_micro = config.batch_size_factor() // n_iterations
    counted = labels[..., 1:] if shifts else labels
    n_items = counted.ne(-100).reshape(n_iterations, -1).sum(dim=1)
    return (n_items / n_micro).float().repeat_interleave(n_micro)


class _Counted(nn.Module):
    """A model whose input says how many labels count, one number for each micro-batch."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> object:
        if ITEMS in inputs:
            inputs[ITEMS] = inputs[ITEMS].reshape(())
        return self.model(**inputs)


class Predictor:
    """Runs a model on batches of any form; each form is compiled once."""

    def __init__(
        self, model: nn.Module, options: Callable[[], poptorch.Options], config: IPUConfig
    ):
        self._model = _Counted(copy.copy(model))
        self._options = options
        self._n_micro = config.batch_size_factor(for_inference=True)
        self._compiled: dict[tuple, poptorch.PoplarExecutor] = {}

    def forward(self, **inputs: object) -> object:
        """The outputs of the model for a batch."""
        batch = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
        if ITEMS in batch:
            batch[ITEMS] = (batch[ITEMS] / self._n_micro).float().expand(self._n_micro)
        form = tuple((name, value.shape, value.dtype) for name, value in batch.items())
        if form not in self._compiled:
            self._compiled[form] = poptorch.inferenceModel(self._model, self._options())
        with torch.no_grad():
            result = self._compiled[form](**batch)
        if isinstance(result, dict) and result.get("loss") is not None:
            result["loss"] = result["loss"].float().mean()
        return result

    def release(self) -> None:
        """Give the devices back; the next call compiles again."""
        for executor in self._compiled.values():
            executor.destroy()
        self._compiled.clear()
