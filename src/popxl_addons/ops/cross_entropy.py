"""Cross entropy of one replica."""

from tremula.frontends.popxl_addons.ops.losses import (
    cross_entropy,
    cross_entropy_with_grad,
)

__all__ = [
    "cross_entropy",
    "cross_entropy_with_grad",
]
