"""Layers with variables.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from .conv import (
    Conv2D,
)
from .embedding import (
    Embedding,
)
from .group_norm import (
    GroupNorm,
)
from .layer_norm import (
    LayerNorm,
)
from .layer_norm_distributed import (
    LayerNormDistributed,
)
from .linear import (
    Linear,
)
from .linear_fp8 import (
    LinearFP8,
)
from .linear_gq import (
    LinearGQ,
)

__all__ = [
    "Conv2D",
    "Embedding",
    "GroupNorm",
    "LayerNorm",
    "LayerNormDistributed",
    "Linear",
    "LinearFP8",
    "LinearGQ",
    "conv",
    "embedding",
    "group_norm",
    "layer_norm",
    "layer_norm_distributed",
    "linear",
    "linear_fp8",
    "linear_gq",
]
