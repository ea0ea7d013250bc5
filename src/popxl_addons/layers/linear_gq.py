"""Linear layers with weights of 4 bits.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.low_precision import (
    LinearGQ,
)
from tremula.frontends.popxl_addons.ops.group_quantised import (
    group_quantize_compress_numpy,
    group_quantize_decompress,
)

__all__ = [
    "LinearGQ",
    "group_quantize_compress_numpy",
    "group_quantize_decompress",
]
