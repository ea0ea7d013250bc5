"""A linear layer with weights of 4 bits."""

from tremula.frontends.popxl_addons.low_precision_layers import (
    LinearGQ,
)

__all__ = [
    "LinearGQ",
]
