"""Cross entropy of logits that replicas share out."""

from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy_sharded_loss,
)

__all__ = [
    "cross_entropy_sharded_loss",
]
