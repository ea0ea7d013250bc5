"""Layers with variables."""

from tremula.frontends.popxl_addons.layers import (
    Embedding,
    LayerNorm,
    LayerNormDistributed,
    Linear,
)

__all__ = [
    "Embedding",
    "LayerNorm",
    "LayerNormDistributed",
    "Linear",
]
