"""Tensors and arrays by name.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.named.tensors import (
    NamedTensorData,
    NamedTensors,
    TensorMap,
    print_named_tensors,
)

__all__ = [
    "NamedTensorData",
    "NamedTensors",
    "TensorMap",
    "print_named_tensors",
]
