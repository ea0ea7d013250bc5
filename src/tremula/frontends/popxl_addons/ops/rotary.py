"""Rotary position embeddings: pairs of neighbouring elements turn by an angle of their position."""

import numpy as np
import torch

import popxl
from tremula.frontends.popxl.core.table import Operand, operation


def trig_tables(
    seq_len: int, rotary_dim: int, base: int = 10000, np_dtype: object = "float32"
) -> tuple[np.ndarray, np.ndarray]:
    """Sine and cosine [seq_len, rotary_dim / 2] of position · base^(-2 pair / rotary_dim)."""
    _check_even(rotary_dim)
    rates = base ** (-np.arange(0, rotary_dim, 2) / rotary_dim)
    angles = np.outer(np.arange(seq_len), rates)
    return np.sin(angles).astype(np_dtype), np.cos(angles).astype(np_dtype)  # type: ignore[call-overload]


def trig_table_constants(
    seq_len: int, rotary_dim: int, base: int = 10000, dtype: popxl.dtype = popxl.float32
) -> tuple[popxl.Tensor, popxl.Tensor]:
    """Both tables as constants of the graph that is open."""
    sin, cos = trig_tables(seq_len, rotary_dim, base)
    return popxl.constant(sin, dtype, "sin"), popxl.constant(cos, dtype, "cos")


def rotary_pos_embed(
    t: popxl.Tensor, sin: popxl.Tensor, cos: popxl.Tensor, rotary_dim: int | None = None
) -> popxl.Tensor:
    """Queries or keys [batch, sequence, heads, size], turned: elements 2 i and 2 i + 1 together.

    `sin` and `cos` are [sequence, rotary_dim / 2], or one such table for each sample. Elements from
    `rotary_dim` on stay as they are.
    """
    size = rotary_dim or t.shape[-1]
    _check_even(size)
    tables = ((t.shape[1], size // 2), (1, t.shape[1], size // 2), (*t.shape[:2], size // 2))
    if t.rank != 4 or size > t.shape[-1] or sin.shape not in tables or cos.shape != sin.shape:
        raise ValueError(
            "rotary_pos_embed takes [batch, sequence, heads, size] and tables"
            f" [sequence, {size // 2}], got {t.shape}, sin {sin.shape} and cos {cos.shape}"
        )
    return _rotary_pos_embed(t, sin, cos, size)


@operation("RotaryPosEmbed", name="_rotary_pos_embed", same=("t", "sin", "cos"))
def _rotary_pos_embed(t: Operand, sin: Operand, cos: Operand, rotary_dim: int) -> torch.Tensor:
    rotated, rest = t[..., :rotary_dim], t[..., rotary_dim:]
    even, odd = rotated[..., 0::2], rotated[..., 1::2]
    sin, cos = sin.unsqueeze(-2), cos.unsqueeze(-2)  # the same for all heads
    pairs = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1)
    return torch.cat([pairs.flatten(-2), rest], dim=-1)


def _check_even(rotary_dim: int) -> None:
    if rotary_dim < 2 or rotary_dim % 2:
        raise ValueError(f"Pairs of elements turn: rotary_dim must be even, got {rotary_dim}")
