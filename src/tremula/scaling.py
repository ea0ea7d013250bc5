"""`import tremula.scaling`: unit-scaled layers and functions, and histograms of exponents."""

from tremula.frontends.scaling import functional
from tremula.frontends.scaling.exponents import FORMATS, Exponents, Format, Watched, watch
from tremula.frontends.scaling.exponents_view import exponents_page, exponents_table
from tremula.frontends.scaling.factors import scaled
from tremula.frontends.scaling.layers import (
    GELU,
    CausalSelfAttention,
    CharacterModel,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    Residual,
)

__all__ = [
    "FORMATS", "GELU", "CausalSelfAttention", "CharacterModel", "Dropout", "Embedding",
    "Exponents", "Format", "LayerNorm", "Linear", "Residual", "Watched", "exponents_page",
    "exponents_table", "functional", "scaled", "watch",
]  # fmt: skip
