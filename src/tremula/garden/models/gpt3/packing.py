"""Weights of the dense model cut into the parts that replicas hold, and put together again."""

from collections.abc import Sequence

import numpy as np

from tremula.frontends.popxl_addons.array_munging import shard, shard2D
from tremula.garden.models.gpt3.config import GPTConfig
from tremula.garden.models.gpt3.layout import ShardedWeight

# Matrices whose rows are split over tp1 and whose columns over tp2; all others the other way round.
_ROWS_OVER_TP1 = ("output.weight", "embeddings.word", "embeddings.position")


def _axes(name: str) -> tuple[int, int]:
    """Which axis of a matrix tp1 splits, and which tp2."""
    return (0, 1) if name.endswith(_ROWS_OVER_TP1) else (1, 0)


def parts_of(dense: np.ndarray, weight: ShardedWeight, config: GPTConfig) -> np.ndarray:
    """[groups, *shape on a replica]: row g is what replicas of value group g hold."""
    tp1, tp2 = config.parallel.tensor_1, config.parallel.tensor_2
    if weight.name == "embeddings.word":
        dense = np.pad(dense, ((0, config.word_rows * tp1 - len(dense)), (0, 0)))
    if "qkv" in weight.name:
        dense = _by_heads(dense, tp1)
    if weight.split == "both":
        return shard2D(dense, tp1, tp2, *_axes(weight.name))
    if weight.split == "none":
        return dense[None]
    return shard(dense, tp1 if weight.split == "tp1" else tp2, 0)


def dense_of(parts: np.ndarray, weight: ShardedWeight, config: GPTConfig) -> np.ndarray:
    """The dense weight of its parts: what `parts_of` cut, padding left out."""
    tp1, tp2 = config.parallel.tensor_1, config.parallel.tensor_2
    if weight.split == "both":
        axis1, axis2 = _axes(weight.name)
        grid = parts.reshape(tp1, tp2, *weight.shape)
        rows = [np.concatenate(list(row), axis2) for row in grid]
        dense = np.concatenate(rows, axis1)
    else:
        dense = np.concatenate(list(parts), 0)
    if "qkv" in weight.name:
        dense = _by_kind(dense, tp1)
    return dense[: config.model.vocabulary] if weight.name == "embeddings.word" else dense


def _by_heads(dense: np.ndarray, n: int) -> np.ndarray:
    """From [q | k | v] to [q₀ k₀ v₀ | q₁ k₁ v₁ | …]: each part has all three of its heads."""
    parts = dense.reshape(*dense.shape[:-1], 3, n, -1)
    return np.swapaxes(parts, -3, -2).reshape(dense.shape)


def _by_kind(dense: np.ndarray, n: int) -> np.ndarray:
    parts = dense.reshape(*dense.shape[:-1], n, 3, -1)
    return np.swapaxes(parts, -3, -2).reshape(dense.shape)


def samples_for_replicas(tokens: np.ndarray, config: GPTConfig) -> np.ndarray:
    """[accumulation, replicas, rows]: tokens [global batch, sequence] as a session loads them.

    Replicas of one data parallel place read the same.
    """
    size = config.training.micro_batch
    rows = tokens.reshape(config.accumulation, config.parallel.data, size * tokens.shape[-1])
    return np.repeat(rows, config.parallel.tensor, axis=1)


def shape_of_dense(name: str, config: GPTConfig) -> Sequence[int]:
    """The shape of a weight of the dense model."""
    h, model = config.model.hidden, config.model
    shapes = {
        "embeddings.word": (model.vocabulary, h),
        "embeddings.position": (model.sequence, h),
        "attention.qkv.weight": (h, 3 * h),
        "attention.qkv.bias": (3 * h,),
        "attention.output.weight": (h, h),
        "feed_forward.intermediate.weight": (h, 4 * h),
        "feed_forward.intermediate.bias": (4 * h,),
        "feed_forward.output.weight": (4 * h, h),
    }
    return shapes.get(name, (h,))
