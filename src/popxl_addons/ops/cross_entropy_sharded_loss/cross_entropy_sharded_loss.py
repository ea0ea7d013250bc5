"""Cross entropy of logits sharded over replicas.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy_sharded_loss,
)

__all__ = [
    "cross_entropy_sharded_loss",
]
