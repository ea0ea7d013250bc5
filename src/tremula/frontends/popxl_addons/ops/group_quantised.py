"""Weights of 4 bits: four codes in a word, a scale and a bias for each group of a row."""

import numpy as np
import torch

import popxl
from popxl import ops
from tremula.frontends.popxl.core.table import Operand, operation
from tremula.ir.ops.low_precision import N_LEVELS

CODES_PER_WORD = 4
_PLACES = tuple(N_LEVELS**k for k in reversed(range(CODES_PER_WORD)))  # the first code is highest
Packed = tuple[np.ndarray, np.ndarray, np.ndarray]


def group_quantize_compress_numpy(t: np.ndarray, group_size: int, dim: int = -1) -> Packed:
    """Words […, groups, group_size / 4], scales and biases […, groups, 1] of an array.

    Groups are neighbours along dimension `dim`, which becomes the last. A group's codes run from
    its least element to its largest.
    """
    rows = np.moveaxis(t, dim, -1)
    if group_size < 1 or rows.shape[-1] % group_size or group_size % CODES_PER_WORD:
        raise ValueError(
            f"Dimension {dim} must have whole groups of a multiple of {CODES_PER_WORD} elements,"
            f" got {t.shape} and a group size of {group_size}"
        )
    if not np.isfinite(t).all():
        raise ValueError("Cannot compress an array with infinite elements or NaN")
    groups = rows.astype(np.float32).reshape(*rows.shape[:-1], -1, group_size)
    bias = groups.min(-1, keepdims=True)
    scale = (groups.max(-1, keepdims=True) - bias) / (N_LEVELS - 1)
    scale, bias = scale.astype(np.float16), bias.astype(np.float16)
    steps = (groups - bias) / np.where(scale > 0, scale, np.float16(1))
    codes = np.clip(np.rint(steps), 0, N_LEVELS - 1).astype(np.uint16)
    words = codes.reshape(*groups.shape[:-1], -1, CODES_PER_WORD) @ np.array(_PLACES, np.uint16)
    return words.astype(np.uint16), scale, bias


def group_quantize_decompress_numpy(
    t: np.ndarray, group_scale: np.ndarray, group_bias: np.ndarray, dim: int = -1
) -> np.ndarray:
    """The array that words, scales and biases represent, float16, with groups along `dim`."""
    codes = np.stack([t // place % N_LEVELS for place in _PLACES], axis=-1)
    codes = codes.reshape(*t.shape[:-1], -1).astype(np.float16)
    rows = (codes * group_scale + group_bias).reshape(*t.shape[:-2], -1)
    return np.moveaxis(rows, -1, dim)


def group_quantize_decompress(
    t: popxl.Tensor, group_scale: popxl.Tensor, group_bias: popxl.Tensor, dim: int = -1
) -> popxl.Tensor:
    """Decompression on tiles: words uint16 [rows, groups, n] → [rows, groups · n · 4].

    With `dim` 0 the result is transposed: groups are neighbours of a column.
    """
    if t.rank != 3 or t.dtype != popxl.uint16:
        raise ValueError(f"Codes are words uint16 [rows, groups, n], got {t!r}")
    scale, bias = (
        _of_groups(name, value, t)
        for name, value in (("group_scale", group_scale), ("group_bias", group_bias))
    )
    result = _group_quantize_decompress(t, scale, bias)
    return result if dim in (-1, 1) else ops.transpose(result)


def _of_groups(name: str, value: popxl.Tensor, t: popxl.Tensor) -> popxl.Tensor:
    if value.shape not in (t.shape[:2], (*t.shape[:2], 1)):
        raise ValueError(f"{name} must have one number for each group of {t!r}, got {value!r}")
    return value if value.rank == 3 else value.reshape((*value.shape, 1))


@operation(
    "GroupQuantizeDecompress", name="_group_quantize_decompress",
    same=("group_scale", "group_bias"), types=lambda inputs, _attributes: inputs[1],
)  # fmt: skip
def _group_quantize_decompress(
    t: Operand, group_scale: Operand, group_bias: Operand
) -> torch.Tensor:
    words = t.to(torch.int32)
    codes = torch.stack([words // place % N_LEVELS for place in _PLACES], dim=-1)
    return (codes.flatten(2).to(group_scale.dtype) * group_scale + group_bias).flatten(1)
