"""Weights in 4 bits."""

from tremula.frontends.optimum.quantisation import (
    GroupQuantizedLinear,
    group_dequantize,
    group_quantize,
    group_quantize_model,
)

__all__ = ["GroupQuantizedLinear", "group_dequantize", "group_quantize", "group_quantize_model"]
