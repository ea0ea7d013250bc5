"""Parts that the programs' models share: tensor parallel attention and feed-forward layers."""

import math
from dataclasses import dataclass

import numpy as np
import torch

import popxl
import popxl_addons as addons
from popxl import ops
from popxl_addons.layers import Linear
from popxl_addons.ops.replicated_all_reduce_TP import (
    replicated_all_reduce_identical_grad_inputs,
    replicated_all_reduce_identical_inputs,
)


@dataclass(frozen=True)
class Config:
    """Sizes of a tiny model, and how replicas share it."""

    hidden: int = 8
    heads: int = 2
    sequence: int = 4
    layers: int = 2
    vocab: int = 24
    batch: int = 1
    tp: int = 2
    dp: int = 1
    accumulation: int = 2
    rotary: int | None = None

    @property
    def rows(self) -> int:
        """Tokens of a micro-batch."""
        return self.batch * self.sequence

    def weight_group(self) -> popxl.ReplicaGrouping:
        """Replicas that have the same part of a weight."""
        return popxl.gcg().ir.replica_grouping(stride=self.tp, group_size=self.dp)


class Attention(addons.Module):
    """Causal or full self-attention, with heads over replicas."""

    def __init__(self, config: Config, causal: bool = True, position=None):
        super().__init__()
        self.config, self.causal, self.position = config, causal, position
        self.group = config.weight_group()
        n = config.hidden // config.tp
        self.qkv = Linear(3 * n, bias=False, replica_grouping=self.group)
        self.output = Linear(config.hidden, bias=False, replica_grouping=self.group)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        z = replicated_all_reduce_identical_inputs(x, group=self.group.transpose())
        q, k, v = (self.split(t) for t in ops.split(self.qkv(z), 3, axis=-1))
        if self.position is not None:
            q, k = self.position(q), self.position(k)
        mixed = attend(q, k, v, self.causal)
        mixed = mixed.reshape((self.config.rows, -1))
        return replicated_all_reduce_identical_grad_inputs(
            self.output(mixed), group=self.group.transpose()
        )

    def split(self, t: popxl.Tensor) -> popxl.Tensor:
        c = self.config
        return t.reshape((c.batch, c.sequence, c.heads // c.tp, c.hidden // c.heads))


def attend(q: popxl.Tensor, k: popxl.Tensor, v: popxl.Tensor, causal: bool) -> popxl.Tensor:
    """[batch, sequence, heads, size] each."""
    q, v = q.transpose((0, 2, 1, 3)), v.transpose((0, 2, 1, 3))
    scores = (q @ k.transpose((0, 2, 3, 1))) * (1 / math.sqrt(q.shape[-1]))
    if causal:
        n = q.shape[2]
        mask = 1e4 * (np.tril(np.ones((n, n))) - 1)
        scores = scores + popxl.constant(mask, q.dtype, name="mask")
    return (ops.softmax(scores, axis=-1) @ v).transpose((0, 2, 1, 3))


class FeedForward(addons.Module):
    """Two linear layers with a GELU, their inner columns over replicas."""

    def __init__(self, config: Config):
        super().__init__()
        self.group = config.weight_group()
        n = 4 * config.hidden // config.tp
        self.intermediate = Linear(n, replica_grouping=self.group)
        self.output = Linear(config.hidden, bias=False, replica_grouping=self.group)

    def build(self, x: popxl.Tensor) -> popxl.Tensor:
        z = replicated_all_reduce_identical_inputs(x, group=self.group.transpose())
        z = self.output(ops.gelu(self.intermediate(z)))
        return replicated_all_reduce_identical_grad_inputs(z, group=self.group.transpose())


# -- the dense model -------------------------------------------------------------------------------


def dense_weights(seed: int, **shapes: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Random weights by name."""
    draw = torch.Generator().manual_seed(seed)
    return {name: torch.randn(shape, generator=draw) * 0.3 for name, shape in shapes.items()}


def dense_attention(x, qkv, out, config: Config, causal: bool = True, position=None):
    """Rows [sequence, hidden] of one sample."""
    q, k, v = (t.view(-1, config.heads, config.hidden // config.heads) for t in qkv_of(x, qkv))
    if position is not None:
        q, k = position(q), position(k)
    q, k, v = (t.transpose(0, 1)[None] for t in (q, k, v))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return mixed[0].transpose(0, 1).reshape(len(x), -1) @ out


def qkv_of(x, qkv):
    return (x @ qkv).chunk(3, -1)


def qkv_shards(qkv: np.ndarray, tp: int) -> np.ndarray:
    """Each replica's queries, keys and values beside each other."""
    parts = [np.split(w, tp, 1) for w in np.split(qkv, 3, 1)]
    return np.stack([np.concatenate([w[i] for w in parts], 1) for i in range(tp)])
