"""Layers with variables."""

from popxl_addons.layers.linear_fp8 import (
    LinearFP8,
)
from popxl_addons.layers.linear_gq import (
    LinearGQ,
)
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
    "LinearFP8",
    "LinearGQ",
]
