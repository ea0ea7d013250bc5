"""Layers of a GPT whose weights two groups of replicas share out, as modules of PopXL.

Rows x are [T, h / tp2]: the same on all of tp1, split over tp2. With tp2 = 1 this is tensor
parallelism in one dimension, with tp1 = 1, too, a plain GPT: a group of one replica sends nothing.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.ops.layer_norm_distributed import layer_norm_distributed  # pyright: ignore[reportMissingImports] - from the table of modules
from popxl_addons.ops.replicated_all_reduce_TP import (  # pyright: ignore[reportMissingImports] - from the table of modules
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)
from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.layout import ShardedWeight
from tremula.garden.models.gpt3.replicas import Replicas

MASKED = -1e4  # added to scores of later positions: small enough, and a half


@dataclass(frozen=True)
class Build:
    """What all modules are built from: sizes, groups of replicas, data of weights.

    `data(weight)` returns what `add_variable_input` takes: values for one group after another.
    """

    config: GPTConfig
    replicas: Replicas
    data: Callable[[ShardedWeight], Any]

    @property
    def dtype(self) -> popxl.dtype:
        return popxl.dtype.as_dtype(self.config.model.dtype)


def whole(t: popxl.Tensor, group: popxl.ReplicaGrouping) -> popxl.Tensor:
    """The sum over a group of what each has a part of; gradients are the same on all."""
    if group.group_size == 1:
        return t
    return replicated_all_reduce_identical_grad_inputs(t, group=group)


def shared(t: popxl.Tensor, group: popxl.ReplicaGrouping) -> popxl.Tensor:
    """A tensor that is the same on a group, before each continues with its own part of a weight."""
    if group.group_size == 1:
        return t
    return replicated_all_reduce_identical_inputs(t, group=group)


class _Part(addons.Module):
    """A module with weights under a name of the layout."""

    def __init__(self, build: Build, name: str):
        super().__init__()
        self.of, self.name = build, name

    def weight(self, name: str, shape: tuple[int, ...], split: str) -> popxl.Tensor:
        """An input for a weight, as this replica holds it."""
        weight = ShardedWeight(f"{self.name}.{name}", shape, split)
        group = self.of.replicas.holding(split)
        data = self.of.data(weight)
        return self.add_variable_input(name, data, self.of.dtype, replica_grouping=group)


class ShardedLayerNorm(_Part):
    """A layer norm over columns that tp2 shares out."""

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Rows [T, h / tp2] → the same."""
        gamma, beta = (self.weight(name, (x.shape[1],), "tp2") for name in ("weight", "bias"))
        epsilon = self.of.config.model.epsilon
        return layer_norm_distributed(x, gamma, beta, epsilon, self.of.replicas.tp2)


class ShardedProduct(_Part):
    """A product with a weight whose columns are split over tp1 (`wide`) or over tp2."""

    def __init__(self, build: Build, name: str, n_in: int, n_out: int, wide: bool):
        super().__init__(build, name)
        self.shape, self.wide = (n_in, n_out), wide

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        """Rows times the weight, summed over those that have other rows of it, plus the bias."""
        groups = self.of.replicas
        weight = self.weight("weight", self.shape, "both")
        bias = self.weight("bias", self.shape[1:], "tp1" if self.wide else "tp2")
        y = whole(x @ weight, groups.tp2 if self.wide else groups.tp1)
        return y + bias


class FeedForward(_Part):
    """ln_2, a wide product, gelu, a narrow product, and the residual."""

    def __init__(self, build: Build, name: str = "feed_forward"):
        super().__init__(build, name)
        h, p = build.config.model.hidden, build.config.parallel
        narrow, wide = h // p.tensor_2, 4 * h // p.tensor_1
        self.ln_2 = ShardedLayerNorm(build, f"{name}.ln_2")
        self.intermediate = ShardedProduct(build, f"{name}.intermediate", narrow, wide, wide=True)
        self.output = ShardedProduct(build, f"{name}.output", wide, narrow, wide=False)

    def build(self, x: popxl.Tensor, seed: popxl.Tensor | None = None) -> popxl.Tensor:
        """Rows [T, h / tp2] → the same."""
        groups = self.of.replicas
        y = self.intermediate(shared(self.ln_2(x), groups.tp1))
        # Marked before the gelu: gradients are summed behind its derivative, same on all of tp2.
        y = self.output(ops.gelu(shared(y, groups.tp2)))
        return x + dropped(y, seed, self.of.config.model.dropout)


class AttentionOfQueries(addons.Module):
    """Attention of some queries to all keys; its gradient computes it again."""

    def __init__(self, head_size: int):
        super().__init__(cache=True)
        self.scale = 1 / math.sqrt(head_size)

    def build(
        self, q: popxl.Tensor, k: popxl.Tensor, v: popxl.Tensor, mask: popxl.Tensor
    ) -> popxl.Tensor:
        """Q [b, heads, queries, d], k and v [b, heads, s, d], mask [queries, s] → like q."""
        scores = q @ ops.transpose(k, (0, 1, 3, 2)) * self.scale + mask
        return ops.softmax(scores, axis=-1) @ v


class ShardedAttention(_Part):
    """ln_1, queries, keys and values of some heads, attention, a product, and the residual."""

    def __init__(self, build: Build, name: str = "attention"):
        super().__init__(build, name)
        h, p = build.config.model.hidden, build.config.parallel
        narrow, heads = h // p.tensor_2, h // p.tensor_1
        self.ln_1 = ShardedLayerNorm(build, f"{name}.ln_1")
        self.qkv = ShardedProduct(build, f"{name}.qkv", narrow, 3 * heads, wide=True)
        self.output = ShardedProduct(build, f"{name}.output", heads, narrow, wide=False)
        self.heads = AttentionOfQueries(build.config.model.head_size)

    def build(self, x: popxl.Tensor, seed: popxl.Tensor | None = None) -> popxl.Tensor:
        """Rows [T, h / tp2] → the same."""
        groups = self.of.replicas
        q, k, v = self._split(self.qkv(shared(self.ln_1(x), groups.tp1)))
        z = self._attend(q, k, v)
        z = ops.reshape(ops.transpose(z, (0, 2, 1, 3)), (x.shape[0], -1))
        y = self.output(shared(z, groups.tp2))
        return x + dropped(y, seed, self.of.config.model.dropout)

    def _split(self, qkv: popxl.Tensor) -> list[popxl.Tensor]:
        """[T, 3 · heads · d] → three of [b, heads, s, d]."""
        model, training = self.of.config.model, self.of.config.training
        shape = (training.micro_batch, model.sequence, -1, model.head_size)
        parts = ops.split(qkv, 3, axis=1)
        return [ops.transpose(ops.reshape(part, shape), (0, 2, 1, 3)) for part in parts]

    def _attend(self, q: popxl.Tensor, k: popxl.Tensor, v: popxl.Tensor) -> popxl.Tensor:
        """Queries in as many parts as the configuration asks for, each a call of one graph."""
        s, n = self.of.config.model.sequence, self.of.config.machine.attention_serialisation
        mask = np.where(np.tril(np.ones((s, s), bool)), 0, MASKED).astype(np.float32)
        masks = [popxl.constant(part, q.dtype, "mask") for part in np.split(mask, n)]
        queries = [q] if n == 1 else ops.split(q, n, axis=2)
        _, graph = self.heads.create_graph(queries[0], k, v, masks[0])
        addons.recomputed(graph)
        rows = [graph.call(part, k, v, m)[0] for part, m in zip(queries, masks, strict=True)]
        return rows[0] if n == 1 else ops.concat(rows, axis=2)


class ShardedDecoderLayer(_Part):
    """Attention, then feed-forward."""

    def __init__(self, build: Build, name: str = ""):
        super().__init__(build, name)
        self.attention = ShardedAttention(build)
        self.feed_forward = FeedForward(build)

    def build(self, x: popxl.Tensor, seed: popxl.Tensor | None = None) -> popxl.Tensor:
        """Rows [T, h / tp2] → the same."""
        first, second = (None, None) if seed is None else ops.split_random_seed(seed)
        return self.feed_forward(self.attention(x, first), second)


def dropped(t: popxl.Tensor, seed: popxl.Tensor | None, rate: float) -> popxl.Tensor:
    """Dropout of rows that are the same on all of tp1: so must the seed be."""
    return t if seed is None or not rate else ops.dropout(t, seed, p=rate)
