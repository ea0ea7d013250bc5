"""Layer norms of rows that replicas share.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.layers.norms import (
    LayerNormDistributed,
)

__all__ = [
    "LayerNormDistributed",
]
