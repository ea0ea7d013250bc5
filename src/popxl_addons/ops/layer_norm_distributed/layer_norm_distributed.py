"""Layer norms of rows that replicas share.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.norms import (
    layer_norm_distributed,
)

__all__ = [
    "layer_norm_distributed",
]
