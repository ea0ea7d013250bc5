"""A linear layer in 8-bit floats."""

from tremula.frontends.popxl_addons.low_precision_layers import (
    LinearFP8,
)

__all__ = [
    "LinearFP8",
]
