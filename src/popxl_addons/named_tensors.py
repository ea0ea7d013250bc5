"""Tensors by dotted names."""

from tremula.frontends.popxl_addons.named.tensors import (
    NamedTensorData,
    NamedTensors,
)

__all__ = [
    "NamedTensorData",
    "NamedTensors",
]
