"""Layer norms of columns that replicas share out."""

from tremula.frontends.popxl_addons.ops.norms import (
    layer_norm_distributed,
)

__all__ = [
    "layer_norm_distributed",
]
