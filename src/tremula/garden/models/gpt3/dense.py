"""A GPT on one device in plain PyTorch: the reference of the parallel one."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.layout import embedding_weights, head_weights, layer_weights
from tremula.garden.models.gpt3.packing import shape_of_dense

Weights = dict[str, Tensor]
Drop = Callable[[Tensor, str], Tensor]  # what dropout leaves of rows, by the name of the place


def nothing_dropped(x: Tensor, name: str) -> Tensor:  # noqa: ARG001
    return x


def random_weights(config: GPTConfig, seed: int = 0, scale: float = 0.05) -> Weights:
    """Weights of the dense model by name, `layers.0.attention.…`; biases are random, too."""
    draw = torch.Generator().manual_seed(seed)
    result = {}
    for name in weight_names(config):
        own = name.split(".", 2)[2] if name.startswith("layers.") else name
        shape = shape_of_dense(own, config)
        value = torch.randn(tuple(shape), generator=draw) * scale
        result[name] = value + 1 if "ln_" in name and name.endswith("weight") else value
    return result


def weight_names(config: GPTConfig) -> list[str]:
    """Names of all weights: embeddings, layers, head."""
    layer = [w.name for w in layer_weights(config)]
    ends = [w.name for w in embedding_weights(config)], [w.name for w in head_weights(config)]
    layers = [f"layers.{n}.{name}" for n in range(config.model.n_layers) for name in layer]
    return [*ends[0], *layers, *ends[1]]


def of_layer(weights: Weights, n: int) -> Weights:
    """The weights of one layer, by their names in it."""
    prefix = f"layers.{n}."
    return {k.removeprefix(prefix): w for k, w in weights.items() if k.startswith(prefix)}


def layer_norm(x: Tensor, weights: Weights, name: str, epsilon: float) -> Tensor:
    """A layer norm over the last dimension."""
    return F.layer_norm(
        x, (x.shape[-1],), weights[f"{name}.weight"], weights[f"{name}.bias"], epsilon
    )


def attention(
    x: Tensor, weights: Weights, config: GPTConfig, drop: Drop = nothing_dropped
) -> Tensor:
    """Causal attention of rows [batch · sequence, hidden], with the residual."""
    model = config.model
    y = layer_norm(x, weights, "attention.ln_1", model.epsilon)
    qkv = y @ weights["attention.qkv.weight"] + weights["attention.qkv.bias"]
    shape = (-1, model.sequence, model.n_heads, model.head_size)
    q, k, v = (part.reshape(shape).transpose(1, 2) for part in qkv.chunk(3, 1))
    scores = q @ k.transpose(2, 3) / math.sqrt(model.head_size)
    allowed = torch.ones(model.sequence, model.sequence, dtype=torch.bool).tril()
    scores = scores.masked_fill(~allowed, -1e4)
    heads = (scores.softmax(-1) @ v).transpose(1, 2).reshape(x.shape)
    y = heads @ weights["attention.output.weight"] + weights["attention.output.bias"]
    return x + drop(y, "attention")


def feed_forward(
    x: Tensor, weights: Weights, config: GPTConfig, drop: Drop = nothing_dropped
) -> Tensor:
    """The two products with a gelu between them, with the residual."""
    y = layer_norm(x, weights, "feed_forward.ln_2", config.model.epsilon)
    y = y @ weights["feed_forward.intermediate.weight"] + weights["feed_forward.intermediate.bias"]
    y = F.gelu(y, approximate="tanh")
    y = y @ weights["feed_forward.output.weight"] + weights["feed_forward.output.bias"]
    return x + drop(y, "feed_forward")


def embedding(words: Tensor, weights: Weights, config: GPTConfig) -> Tensor:
    """Rows for words [batch · sequence]."""
    places = torch.arange(config.model.sequence).repeat(len(words) // config.model.sequence)
    return weights["embeddings.word"][words] + weights["embeddings.position"][places]


def head_loss(x: Tensor, labels: Tensor, weights: Weights, config: GPTConfig) -> Tensor:
    """The mean cross entropy of all tokens; logits use the word table."""
    y = layer_norm(x, weights, "head.ln_f", config.model.epsilon)
    return F.cross_entropy(y @ weights["embeddings.word"].T, labels)


def loss_of(
    words: Tensor,
    labels: Tensor,
    weights: Weights,
    config: GPTConfig,
    drop: Drop = nothing_dropped,
) -> Tensor:
    """The loss of the whole model; places of dropout are `embedding`, `layers.0.attention`, …"""
    x = drop(embedding(words, weights, config), "embedding")
    for n in range(config.model.n_layers):
        own = of_layer(weights, n)

        def in_layer(x: Tensor, name: str, prefix: str = f"layers.{n}.") -> Tensor:
            return drop(x, prefix + name)

        x = feed_forward(attention(x, own, config, in_layer), own, config, in_layer)
    return head_loss(x, labels, weights, config)


def train(
    weights: Weights,
    batches: list[tuple[Tensor, Tensor]],
    config: GPTConfig,
    drops: Iterable[Drop] | None = None,
) -> Iterator[float]:
    """Adam on all of a global batch at once, in place; the loss of each step.

    Batches are words and labels, [global batch, sequence]; `drops` what each step drops.
    """
    settings = config.training
    for w in weights.values():
        w.requires_grad_(True)
    optimiser = torch.optim.AdamW(
        list(weights.values()), lr=settings.learning_rate, betas=(settings.beta1, settings.beta2),
        eps=settings.epsilon, weight_decay=settings.weight_decay,
    )  # fmt: skip
    for (words, labels), drop in zip(batches, drops or repeat(nothing_dropped), strict=False):
        optimiser.zero_grad()
        loss = loss_of(words.reshape(-1), labels.reshape(-1), weights, config, drop)
        loss.backward()
        if settings.max_grad_norm:
            _clip(list(weights.values()), settings.max_grad_norm)
        optimiser.step()
        yield loss.item()


def _clip(weights: list[Tensor], most: float) -> None:
    """Gradients no longer than `most`, all of them together."""
    grads = [w.grad for w in weights if w.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_(most / torch.clamp(norm, min=most))
