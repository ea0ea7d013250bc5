"""Cross entropy of logits sharded over the IPUs of a replica.

Names only, made by tools/redirect_modules.py; code is in tremula.frontends.
"""

from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy_sharded_wr_loss,
    handle_ipus,
)

__all__ = [
    "cross_entropy_sharded_wr_loss",
    "handle_ipus",
]
