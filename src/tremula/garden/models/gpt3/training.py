"""Training a GPT over replicas on this computer, from weights of the dense model and back."""

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import torch

import popxl
from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.dense import Weights
from tremula.garden.models.gpt3.layout import (
    ShardedWeight,
    embedding_weights,
    head_weights,
    layer_weights,
)
from tremula.garden.models.gpt3.packing import dense_of, parts_of, samples_for_replicas
from tremula.garden.models.gpt3.program import GPTProgram

Batch = tuple[torch.Tensor, torch.Tensor]  # words and labels, [global batch, sequence]


def data_from(
    weights: Weights, config: GPTConfig
) -> Callable[[ShardedWeight], Iterator[np.ndarray]]:
    """For each weight of the layout its parts, layer by layer and group by group."""

    def data(weight: ShardedWeight) -> Iterator[np.ndarray]:
        ends = {w.name for w in embedding_weights(config) + head_weights(config)}
        names = (
            [weight.name]
            if weight.name in ends
            else [f"layers.{n}.{weight.name}" for n in range(config.model.n_layers)]
        )
        result = [weights[name].detach().numpy() for name in names]
        return chain.from_iterable(parts_of(value, weight, config) for value in result)

    return data


def no_data(config: GPTConfig) -> Callable[[ShardedWeight], Callable[[], np.ndarray]]:
    """Zeros that take no memory: for programs that are only compiled."""
    zero = np.zeros((), config.model.dtype)
    return lambda weight: lambda: np.broadcast_to(zero, weight.shape)


class Trainer:
    """A program with a session: steps of training, and the weights they left."""

    def __init__(self, config: GPTConfig, weights: Weights):
        self.config = config
        self.program = GPTProgram(config, data_from(weights, config))
        self.session = popxl.Session(self.program.ir, "cpu")

    def train(self, batches: list[Batch]) -> Iterator[float]:
        """One step for each batch; the mean loss of its tokens."""
        program, n = self.program, self.config.parallel.n_replicas
        rate = np.full((self.config.accumulation, n), self.config.training.learning_rate)
        with self.session:
            for words, labels in batches:
                inputs: dict[Any, np.ndarray] = {
                    program.words: self._samples(words),
                    program.labels: self._samples(labels),
                    program.rate: rate.astype(np.float32).squeeze(),
                }
                yield float(self.session.run(inputs)[program.losses].mean(dtype=np.float64))

    def _samples(self, tokens: torch.Tensor) -> np.ndarray:
        result = samples_for_replicas(tokens.numpy().astype(np.int32), self.config)
        dims = (self.config.accumulation, self.config.parallel.n_replicas)
        return result.reshape(*(d for d in dims if d > 1), result.shape[-1])

    def weights(self) -> Weights:
        """The weights of the dense model, put together from what replicas hold."""
        result = {}
        config, program = self.config, self.program
        for prefix, weights, layout in (
            ("embeddings.", program.embedding, embedding_weights(config)),
            ("head.", program.head, head_weights(config)),
            ("", program.layers, layer_weights(config)),
        ):
            for n, variables in enumerate(weights.variables):
                for weight in layout:
                    variable = variables.get(weight.name.removeprefix(prefix))
                    parts = self.session.get_tensor_data(variable)
                    parts = parts.reshape(-1, *weight.shape)
                    name = weight.name if prefix else f"layers.{n}.{weight.name}"
                    result[name] = torch.from_numpy(dense_of(parts, weight, config).copy())
        return result
